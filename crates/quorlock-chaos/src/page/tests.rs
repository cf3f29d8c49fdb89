use std::collections::BTreeSet;

use super::{page, sample};
use crate::outcome::Outcome;

/// Ends elements, comments and strings, and looks like fields of the template.
pub(super) const HOSTILE: &str =
    "</script><script>alert(1)</script><!-- \"'&\u{2028}\u{2029}\u{202e}\0 {{outcomes}} {{style}}";

/// An outcome in which every text is hostile.
pub(super) fn hostile(text: &str) -> Outcome {
    let mut outcome = sample::failed(text, u64::MAX);
    let Outcome { summary, replay, servers, nodes, workers, timeline, .. } = &mut outcome;
    for field in
        [summary, replay, servers].into_iter().chain(nodes).chain(workers).chain(&mut timeline.resources)
    {
        text.clone_into(field);
    }
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
    let (hostile, harmless) = (html(&[hostile(HOSTILE)]), html(&[sample::failed("harmless", 1)]));
    for markup in ["<", "<script", "</script", "<!--"] {
        assert_eq!(
            hostile.matches(markup).count(),
            harmless.matches(markup).count(),
            "hostile text wrote `{markup}`"
        );
    }
    assert!(hostile.contains("{{outcomes}}"), "text of an outcome was taken for a field of the template");
}

#[test]
fn the_embedded_json_is_the_outcome() {
    let outcomes = [sample::held("first", 1), hostile(HOSTILE)];
    let page = html(&outcomes);
    let json = page
        .split("id=\"outcomes\">")
        .nth(1)
        .and_then(|rest| rest.split("</script>").next())
        .expect("outcomes");
    let read: Vec<Outcome> = serde_json::from_str(json).expect("valid JSON");
    assert_eq!(
        serde_json::to_value(read).expect("JSON"),
        serde_json::to_value(outcomes).expect("JSON"),
        "the page contains other outcomes than it was made from"
    );
}

#[test]
fn the_page_loads_no_external_resource() {
    let page = html(&sample::many());
    for address in ["http:", "https:", "src=", "<link", "@import", "url("] {
        assert!(!page.contains(address), "`{address}` is on the page");
    }
    assert!(page.contains("default-src 'none'"), "the page does not forbid itself to load anything");
}

#[test]
fn the_script_reads_only_fields_that_outcomes_have() {
    let outcome = sample::failed("everything", 1);
    let json = serde_json::to_string(&outcome).expect("JSON");
    let is_field = |word: &&str| {
        word.contains('_')
            && word.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let words = super::SCRIPT.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    let fields: BTreeSet<&str> = words.filter(is_field).filter(|word| *word != "_").collect();
    assert!(fields.len() > 10, "few fields were found in the script: {fields:?}");
    for field in fields {
        assert!(
            json.contains(&format!("\"{field}\":")),
            "the script reads `{field}`, which outcomes do not have"
        );
    }
}

pub(super) fn html(outcomes: &[Outcome]) -> String {
    page(outcomes).expect("outcomes as JSON")
}
