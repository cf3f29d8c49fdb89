use super::{page, sample};
use crate::outcome::Outcome;

/// Ends elements, comments and strings, and hides or turns text.
const HOSTILE: &str = "</title></pre><script>alert(1)</script><!-- \"'&\u{2028}\u{2029}\u{202e}\0";

/// An outcome in which every text is hostile.
fn hostile(text: &str) -> Outcome {
    let mut outcome = sample::failed(text, u64::MAX);
    let Outcome { summary, replay, servers, nodes, workers, timeline, .. } = &mut outcome;
    let fields = [summary, replay, servers].into_iter().chain(nodes).chain(workers);
    fields.chain(&mut timeline.resources).for_each(|field| text.clone_into(field));
    outcome.layout = Some(text.to_owned());
    for verdict in &mut outcome.verdicts {
        text.clone_into(&mut verdict.expectation);
        text.clone_into(&mut verdict.evidence);
    }
    for broken in &mut outcome.violations {
        text.clone_into(&mut broken.text);
        broken.resource = Some(format!("another {text}"));
    }
    for fault in &mut outcome.faults {
        text.clone_into(&mut fault.kind);
        text.clone_into(&mut fault.name);
    }
    for around in &mut outcome.around {
        text.clone_into(&mut around.kind);
    }
    outcome
}

#[test]
fn hostile_text_stays_text() {
    let (hostile, harmless) = (page(&[hostile(HOSTILE)]), page(&[sample::failed("harmless", u64::MAX)]));
    for markup in ["<", "</pre", "</title", "<script", "<!--"] {
        let [found, usual] = [&hostile, &harmless].map(|page| page.matches(markup).count());
        assert_eq!(found, usual, "hostile text wrote `{markup}`");
    }
    assert!(!hostile.contains(['\u{2028}', '\u{2029}', '\u{202e}', '\0']), "a hidden character is shown");
}

#[test]
fn the_page_runs_no_script_and_loads_nothing() {
    let page = page(&[sample::failed("everything", 1)]);
    for word in ["<script", "href=", "src=", "<link", "@import", "url(", "onload"] {
        assert!(!page.contains(word), "`{word}` is on the page");
    }
    assert!(page.contains("default-src 'none'"), "the page does not forbid itself to load anything");
}

#[test]
fn the_picture_has_every_hold_fault_violation_and_period() {
    let outcome = sample::failed("everything", 42);
    let page = page(std::slice::from_ref(&outcome));
    let count = |part: &str| page.matches(part).count();
    let holds: usize = ["#0072b2", "#009e73", "#aa4499", "#56b4e9"]
        .map(|colour| count(&format!("fill=\"{colour}\">")))
        .iter()
        .sum();
    // The legend has each colour once more.
    assert_eq!(holds, outcome.timeline.holds.len() + 4);
    let lanes: usize = outcome.faults.iter().map(|fault| fault.nodes.len() + fault.workers.len()).sum();
    assert_eq!(count("fill=\"#e69f00\"><title>"), lanes, "a fault in the lane of each node and worker");
    assert_eq!(count("<title>exclusion: "), 1);
    let known = outcome.timeline.bins.iter().filter(|bin| bin.acquired > 0).count();
    assert_eq!(count("fill=\"#33404d\">"), known);
    let late = outcome.timeline.writes.iter().filter(|write| write.refused).count();
    assert_eq!((count("a late write, refused"), count("a late write, NOT refused")), (late, 1));
    for (name, number) in [("node-0 frozen", 1), ("node-3 and node-4 cut off", 2)] {
        assert_eq!(count(&format!(": {name}, ")), number, "{name}");
    }
}

#[test]
fn the_headline_claims_no_success_that_was_not_expected() {
    let shown = |outcomes: &[Outcome], headline: &str| {
        assert!(page(outcomes).contains(&format!("\">{headline}</h1>")), "{headline}");
    };
    shown(&[], "Nothing was expected");
    let mut idle = sample::held("idle", 1);
    idle.verdicts.clear();
    shown(&[idle], "Nothing was expected");
    shown(&[sample::held("kill-masters", 1)], "All expectations held");
    shown(&[sample::held("kill-masters", 1), sample::failed("freeze", 2)], "1 of 2 scenarios failed");
}
