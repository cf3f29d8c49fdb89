//! The top of the page: the verdict over all, and one line for each scenario.

use super::text::Text;
use crate::figures::{count, counted, share, span};
use crate::outcome::{Latency, Outcome, Phase};

/// The verdict over all in a few words.
pub(super) fn title(outcomes: &[Outcome]) -> String {
    format!("{} – quorlock-chaos", headline(outcomes))
}

/// The header of the page.
pub(super) fn overview(outcomes: &[Outcome]) -> String {
    let class = if all_held(outcomes) { "held" } else { "failed" };
    let rows: String = outcomes.iter().zip(1..).map(|(outcome, number)| row(outcome, number)).collect();
    let which = minority(outcomes);
    format!(
        "<header class=\"overview\" id=\"top\">\n\
         <p class=\"program\">quorlock-chaos</p>\n\
         <h1 class=\"{class}\">{headline}</h1>\n\
         <p class=\"totals\">{totals}</p>\n\
         <table class=\"scenarios\">\n\
         <thead>\n\
         <tr><th scope=\"col\" rowspan=\"2\">Scenario</th><th scope=\"col\" rowspan=\"2\">Verdict</th>\
         <th scope=\"col\" rowspan=\"2\">Violations</th>\
         <th scope=\"colgroup\" colspan=\"2\" class=\"group\">While {which} are faulty</th>\
         <th scope=\"col\" rowspan=\"2\" class=\"figure\">Acquisitions</th>\
         <th scope=\"col\" rowspan=\"2\" class=\"figure\">Faults</th></tr>\n\
         <tr><th scope=\"col\" class=\"figure\">success</th><th scope=\"col\" class=\"figure\">p99</th></tr>\n\
         </thead>\n\
         <tbody>\n{rows}</tbody>\n\
         </table>\n\
         </header>",
        headline = headline(outcomes),
        totals = totals(outcomes),
    )
}

/// `✓ held` or `✗ failed`.
pub(super) fn badge(passed: bool) -> &'static str {
    if passed {
        "<span class=\"badge held\"><span aria-hidden=\"true\">✓</span> held</span>"
    } else {
        "<span class=\"badge failed\"><span aria-hidden=\"true\">✗</span> failed</span>"
    }
}

/// What the violations of a run come to, and whether that is as it should be.
pub(super) fn violations(outcome: &Outcome) -> (&'static str, String) {
    let (all, listed) = (outcome.violations_in_all, outcome.violations.len());
    let unexpected = outcome.violations.iter().filter(|broken| !broken.expected).count();
    match unexpected {
        0 if all == 0 => ("calm", "none".to_owned()),
        0 if all <= listed => ("expected", format!("{} found, as expected", count(all))),
        0 => ("expected", format!("{} found; the first {} as expected", count(all), count(listed))),
        _ if unexpected == all => ("alarm", format!("{} unexpected", count(all))),
        _ if all <= listed => ("alarm", format!("{} of {} unexpected", count(unexpected), count(all))),
        _ => ("alarm", format!("at least {} of {} unexpected", count(unexpected), count(all))),
    }
}

/// How many nodes may be faulty while the others are still a majority.
pub(super) fn minority_of(outcome: &Outcome) -> usize {
    outcome.nodes.len().saturating_sub(1) / 2
}

fn row(outcome: &Outcome, number: usize) -> String {
    let (mood, violations) = violations(outcome);
    let calm = while_a_majority_is_well(outcome);
    let (success, p99) = if calm.tried == 0 {
        ("–".to_owned(), "–".to_owned())
    } else {
        let p99 = if calm.acquired == 0 { "–".to_owned() } else { span(calm.p99_micros) };
        (share(calm.acquired, calm.tried), p99)
    };
    format!(
        "<tr class=\"{class}\"><th scope=\"row\"><a href=\"#scenario-{number}\">{name}</a></th>\
         <td>{badge}</td>\
         <td class=\"{mood}\" data-label=\"violations\">{violations}</td>\
         <td class=\"figure\" data-label=\"success\">{success}</td>\
         <td class=\"figure\" data-label=\"p99\">{p99}</td>\
         <td class=\"figure\" data-label=\"acquisitions\">{holds}</td>\
         <td class=\"figure\" data-label=\"faults\">{faults}</td></tr>\n",
        class = if outcome.passed { "held" } else { "failed" },
        name = Text(&outcome.scenario),
        badge = badge(outcome.passed),
        holds = count(outcome.seen.holds),
        faults = count(outcome.faults.len()),
    )
}

/// All phases with a majority of nodes in order taken together. Quantiles cannot be added up, so the
/// worst of them stands for all.
fn while_a_majority_is_well(outcome: &Outcome) -> Latency {
    let minority = minority_of(outcome);
    let phases = outcome.phases.iter().filter(|phase| phase.faulty_nodes <= minority);
    phases.fold(Latency::default(), |sum, Phase { latency, .. }| Latency {
        tried: sum.tried + latency.tried,
        acquired: sum.acquired + latency.acquired,
        p50_micros: sum.p50_micros.max(latency.p50_micros),
        p99_micros: sum.p99_micros.max(latency.p99_micros),
        max_micros: sum.max_micros.max(latency.max_micros),
    })
}

fn minority(outcomes: &[Outcome]) -> String {
    match outcomes {
        [first, others @ ..] if others.iter().all(|other| other.nodes.len() == first.nodes.len()) => {
            format!("≤ {} of {}", minority_of(first), counted(first.nodes.len(), "node"))
        }
        _ => "less than half of the nodes".to_owned(),
    }
}

fn headline(outcomes: &[Outcome]) -> String {
    let failed = outcomes.iter().filter(|outcome| !outcome.passed).count();
    match outcomes.len() {
        0 => "Nothing was run".to_owned(),
        1 if failed == 1 => "The scenario failed".to_owned(),
        all if failed > 0 => format!("{} of {} scenarios failed", count(failed), count(all)),
        _ if all_held(outcomes) => "All expectations held".to_owned(),
        _ => "Nothing was expected".to_owned(),
    }
}

fn totals(outcomes: &[Outcome]) -> String {
    let verdicts = || outcomes.iter().flat_map(|outcome| &outcome.verdicts);
    let sum = |of: fn(&Outcome) -> usize| outcomes.iter().map(of).sum::<usize>();
    let lasted = outcomes.iter().map(|outcome| outcome.duration_micros).sum();
    format!(
        "{held} of {expectations} held in {scenarios}: {holds} in {lasted}, with {faults} and {violations}.",
        held = count(verdicts().filter(|verdict| verdict.held).count()),
        expectations = counted(verdicts().count(), "expectation"),
        scenarios = counted(outcomes.len(), "scenario"),
        holds = counted(sum(|outcome| outcome.seen.holds), "acquisition"),
        lasted = span(lasted),
        faults = counted(sum(|outcome| outcome.faults.len()), "fault"),
        violations = counted(sum(|outcome| outcome.violations_in_all), "violation"),
    )
}

/// Where nothing was expected nothing has held.
fn all_held(outcomes: &[Outcome]) -> bool {
    outcomes.iter().all(|outcome| outcome.passed)
        && outcomes.iter().any(|outcome| !outcome.verdicts.is_empty())
}
