//! The outcome on a terminal.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use quorlock::protocol::printable;

use crate::figures::{self, span};
use crate::outcome::{Latency, Outcome};
use crate::scenario::Scenario;

/// How many violations are listed.
const CITED: usize = 5;

/// Lists the scenarios with their descriptions and expectations.
pub(crate) fn list(scenarios: &[Scenario]) -> String {
    let mut table = table(["scenario", "what happens", "expects"]);
    for Scenario { name, summary, expect, .. } in scenarios {
        table.add_row(row([name.clone(), summary.clone(), expect.to_string()]));
    }
    format!("{table}\n")
}

/// Describes one outcome in full.
pub(crate) fn outcome(outcome: &Outcome) -> String {
    let Outcome { scenario, summary, seed, servers, seen, offers, .. } = outcome;
    let verdict = if outcome.passed { "every expectation held" } else { "FAILED" };
    let layout = outcome.layout.as_ref().map(|layout| format!(", {layout}")).unwrap_or_default();
    let mut lines = vec![
        format!("{scenario}: {verdict}"),
        format!("  {summary}; seed {seed}, {servers}{layout}"),
        String::new(),
    ];
    lines.extend(outcome.verdicts.iter().map(|verdict| {
        let mark = if verdict.held { "ok    " } else { "FAILED" };
        format!("  {mark}  {}: {}", verdict.expectation, verdict.evidence)
    }));
    lines.extend([String::new(), format!("  {seen}, offers: {offers}"), String::new()]);
    lines.push("  latency of uncontended locks, by number of faulty nodes".to_owned());
    lines.extend(indented(&phases(outcome)));
    if !outcome.around.is_empty() {
        lines.push(String::new());
        lines.push("  latency of uncontended locks, before, during and after faults of each kind".to_owned());
        lines.extend(indented(&around(outcome)));
    }
    if !outcome.places.is_empty() {
        lines.push(String::new());
        lines.push("  latency of uncontended locks, by place of the worker".to_owned());
        lines.extend(indented(&places(outcome)));
    }
    lines.extend(outcome.violations.iter().take(CITED).flat_map(|broken| {
        let expected = if broken.expected { "as expected" } else { "NOT EXPECTED" };
        [String::new(), format!("  {} ({expected}): {}", broken.check, broken.text)]
    }));
    if outcome.violations_in_all > CITED {
        lines.push(format!("  and {} more", outcome.violations_in_all - CITED));
    }
    if !outcome.passed {
        lines.extend([String::new(), format!("  replay: {}", outcome.replay)]);
    }
    // A record may be another's, with names that its programs chose.
    lines.iter().map(|line| printable(line).to_string() + "\n").collect()
}

/// Lists all outcomes, one line each.
pub(crate) fn overview(outcomes: &[Outcome], skipped: &[(String, String)]) -> String {
    let mut table =
        table(["scenario", "verdict", "held", "lost", "refused", "faults", "violations", "success", "p99"]);
    for outcome in outcomes {
        let minority = minority(outcome);
        let expected = outcome.violations.iter().all(|broken| broken.expected);
        let violations = match (outcome.violations_in_all, expected) {
            (0, _) => "0".to_owned(),
            (count, true) => format!("{count}, as expected"),
            (count, false) => format!("{count} NOT EXPECTED"),
        };
        table.add_row(row([
            outcome.scenario.clone(),
            if outcome.passed { "ok".to_owned() } else { "FAILED".to_owned() },
            outcome.seen.holds.to_string(),
            outcome.seen.lost.to_string(),
            outcome.seen.refused.to_string(),
            match outcome.left_out {
                0 => outcome.faults.len().to_string(),
                more => format!("{}, {more} left out", outcome.faults.len()),
            },
            violations,
            share(&minority),
            span(minority.p99_micros),
        ]));
    }
    let skipped = skipped
        .iter()
        .map(|(scenario, reason)| format!("skipped: {}: {}\n", printable(scenario), printable(reason)));
    if outcomes.is_empty() {
        return skipped.collect();
    }
    let sum = |count: fn(&Outcome) -> usize| outcomes.iter().map(count).sum::<usize>();
    format!(
        "{table}\n\n{} scenarios, {} acquisitions, {} faults; success and p99 are those of uncontended locks \
        while at most a minority of the nodes is faulty\n{}",
        outcomes.len(),
        sum(|outcome| outcome.seen.holds),
        sum(|outcome| outcome.faults.len()),
        skipped.collect::<String>(),
    )
}

/// Returns the sum of the phases with at most a faulty minority; quantiles cannot be added, so the highest
/// stands for all.
fn minority(outcome: &Outcome) -> Latency {
    let most = outcome.nodes.len().saturating_sub(1) / 2;
    outcome.phases.iter().filter(|phase| phase.faulty_nodes <= most).fold(Latency::default(), |sum, phase| {
        Latency {
            tried: sum.tried + phase.latency.tried,
            acquired: sum.acquired + phase.latency.acquired,
            p50_micros: sum.p50_micros.max(phase.latency.p50_micros),
            p99_micros: sum.p99_micros.max(phase.latency.p99_micros),
            max_micros: sum.max_micros.max(phase.latency.max_micros),
        }
    })
}

fn phases(outcome: &Outcome) -> Table {
    let mut table = table(["faulty nodes", "for", "tried", "success", "p50", "p99", "max"]);
    for phase in &outcome.phases {
        let Latency { tried, p50_micros, p99_micros, max_micros, .. } = phase.latency;
        table.add_row(row([
            phase.faulty_nodes.to_string(),
            span(phase.lasted_micros),
            tried.to_string(),
            share(&phase.latency),
            span(p50_micros),
            span(p99_micros),
            span(max_micros),
        ]));
    }
    numbers_right(&mut table);
    table
}

fn around(outcome: &Outcome) -> Table {
    let mut table = table(["fault", "times", "p99 before", "during", "after", "success during"]);
    for around in &outcome.around {
        table.add_row(row([
            around.kind.clone(),
            around.faults.to_string(),
            span(around.before.p99_micros),
            span(around.during.p99_micros),
            span(around.after.p99_micros),
            share(&around.during),
        ]));
    }
    numbers_right(&mut table);
    table
}

fn places(outcome: &Outcome) -> Table {
    let mut table =
        table(["worker", "round trip to a quorum", "to the farthest", "tried", "success", "p50", "p99"]);
    for place in &outcome.places {
        table.add_row(row([
            place.worker.clone(),
            span(place.quorum_round_trip_micros),
            span(place.longest_round_trip_micros),
            place.latency.tried.to_string(),
            share(&place.latency),
            span(place.latency.p50_micros),
            span(place.latency.p99_micros),
        ]));
    }
    numbers_right(&mut table);
    table
}

/// Formats the share of attempts that acquired.
fn share(latency: &Latency) -> String {
    match latency.tried {
        0 => "-".to_owned(),
        tried => figures::share(latency.acquired, tried),
    }
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
    table
}

/// Returns a row of a table. All rows go through here.
fn row<const CELLS: usize>(cells: [String; CELLS]) -> [String; CELLS] {
    cells.map(|cell| printable(&cell).to_string())
}

fn numbers_right(table: &mut Table) {
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
}

fn indented(table: &Table) -> Vec<String> {
    table.lines().map(|line| format!("  {}", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::sample::held;

    #[test]
    fn each_table_has_a_heading() {
        let text = outcome(&held("kill-masters", 7));
        let tables = ["faulty nodes", "fault", "worker"];
        let mut lines = text.lines().map(str::trim_start);
        let mut before = "";
        let mut seen = 0;
        for line in lines.by_ref() {
            if tables.iter().any(|heading| line.starts_with(heading)) && line.contains("p99") {
                assert!(
                    before.starts_with("latency of uncontended locks"),
                    "no heading above {line}\n{text}"
                );
                seen += 1;
            }
            before = line;
        }
        assert!(seen >= 2, "{text}");
    }
}
