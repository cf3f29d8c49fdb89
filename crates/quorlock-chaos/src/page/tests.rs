use super::page;
use super::sample;
use super::text::embedded;
use crate::outcome::Outcome;

/// Ends elements, comments and strings, and asks for a field of the template.
const HOSTILE: &str =
    "</script><script>alert(1)</script><!-- \"'&\u{2028}\u{2029}\u{202e}\0 {{outcome}} {{style}}";

#[test]
fn hostile_text_stays_text() {
    let mut outcome = sample::failed(HOSTILE, 1);
    for text in [&mut outcome.summary, &mut outcome.replay, &mut outcome.servers] {
        HOSTILE.clone_into(text);
    }
    outcome.layout = Some(HOSTILE.to_owned());
    outcome.nodes.push(HOSTILE.to_owned());
    outcome.workers.push(HOSTILE.to_owned());
    outcome.timeline.resources.push(HOSTILE.to_owned());
    for verdict in &mut outcome.verdicts {
        HOSTILE.clone_into(&mut verdict.expectation);
        HOSTILE.clone_into(&mut verdict.evidence);
    }
    for broken in &mut outcome.violations {
        HOSTILE.clone_into(&mut broken.text);
        broken.resource = Some(HOSTILE.to_owned());
    }
    for fault in &mut outcome.faults {
        HOSTILE.clone_into(&mut fault.kind);
        HOSTILE.clone_into(&mut fault.name);
    }
    for around in &mut outcome.around {
        HOSTILE.clone_into(&mut around.kind);
    }

    let (hostile, harmless) = (page(&[outcome]), page(&[sample::failed("harmless", 1)]));
    assert!(!hostile.contains("<script>alert"), "hostile text became a script");
    for tag in ["<script", "</script", "<!--", "<style", "<section"] {
        assert_eq!(hostile.matches(tag).count(), harmless.matches(tag).count(), "hostile text wrote `{tag}`");
    }
    assert!(
        !hostile.contains(['\u{2028}', '\u{2029}', '\u{202e}', '\0']),
        "a character that is no text got through"
    );
    assert!(hostile.contains("{{outcome}}"), "what is no field of the template stays as it is");
}

#[test]
fn verdicts_and_tables_are_there_without_javascript() {
    let page = page(&[
        sample::held("kill-masters", 1),
        sample::failed("freeze", 2),
        sample::broken_as_expected("early", 3),
    ]);
    let visible = without_scripts(&page);
    for text in [
        "1 of 3 scenarios failed",
        "10 of 11 expectations held in 3 scenarios",
        "2 of 3 unexpected",
        "41 found; the first 7 as expected",
        "no two holders overlap",
        "`orders/1` held twice for 41.2ms",
        "unexpected: exclusion",
        "2 more",
        "99.93%",
        "88.4 ms",
        "no majority",
        "three in one place (0.4 ms)",
        "<span>--scenario</span> <span>freeze</span>",
        "15 faults, one by one",
        "node-1&#39;s clock set forward by 3 s",
        "worker-0 (virginia)",
    ] {
        assert!(visible.contains(text), "`{text}` is not on the page");
    }
}

#[test]
fn the_embedded_json_is_the_outcome() {
    let mut outcome = sample::failed(HOSTILE, 1);
    outcome.seed = u64::MAX;
    let page = page(&[sample::held("first", 1), outcome.clone()]);
    let json = page
        .split("id=\"outcome-2\">")
        .nth(1)
        .and_then(|rest| rest.split("</script>").next())
        .expect("an outcome");
    let read: Outcome = serde_json::from_str(json).expect("valid JSON");
    assert_eq!(
        serde_json::to_value(read).expect("JSON"),
        serde_json::to_value(outcome).expect("JSON"),
        "what the page carries differs from what it was made from"
    );
}

#[test]
fn the_page_asks_for_nothing_from_elsewhere() {
    let page = page(&sample::many());
    for address in ["http:", "https:", "src=", "<link", "@import", "url("] {
        assert!(!page.contains(address), "`{address}` is on the page");
    }
    assert!(page.contains("default-src 'none'"), "the page does not forbid itself to ask");
}

#[test]
fn a_page_of_nothing_claims_no_success() {
    let page = page(&[]);
    assert!(page.contains("Nothing was run"), "nothing is said");
    assert!(!page.contains("All expectations held"), "no expectation is not a success");

    let mut outcome = sample::held("idle", 1);
    outcome.verdicts.clear();
    assert!(super::page(&[outcome]).contains("Nothing was expected"), "no expectation is not a success");
}

#[test]
fn what_was_never_tried_has_no_figures() {
    let mut outcome = sample::held("idle", 1);
    for phase in &mut outcome.phases {
        phase.latency = crate::outcome::Latency::default();
    }
    let page = page(&[outcome]);
    assert!(page.contains("data-label=\"success\">–<"), "a success rate of nothing");
    assert!(page.contains("data-label=\"p99\">–<"), "a p99 of nothing");
}

#[test]
fn json_in_a_script_holds_no_markup() {
    let json = serde_json::to_string(HOSTILE).expect("JSON");
    let read: String = serde_json::from_str(&embedded(&json)).expect("still JSON");
    assert_eq!(read, HOSTILE, "the text changed");
    assert!(!embedded(&json).contains(['<', '>', '\u{2028}', '\u{2029}']), "markup in a script");
}

fn without_scripts(page: &str) -> String {
    let mut pieces = page.split("<script");
    let mut visible = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        visible.push_str(piece.split_once("</script>").map_or("", |(_, rest)| rest));
    }
    visible
}
