//! One scenario: what was expected, what came of it, and the tables behind it.

use super::fill;
use super::overview::{badge, minority_of, violations};
use super::text::{Text, embedded};
use crate::figures::{at, count, counted, number, share, span};
use crate::outcome::{Around, Broken, FaultSpan, Latency, Outcome, Phase, Place, Verdict};

/// As many violations are shown at once; the others fold out.
const AT_ONCE: usize = 5;

/// The section about one outcome. Sections are numbered, as a name may hold any characters and come
/// twice.
pub(super) fn section(outcome: &Outcome, number: usize) -> String {
    // Every outcome can be written as JSON. If one could not, its timeline would say so.
    let json = serde_json::to_string(outcome).unwrap_or_else(|_| "null".to_owned());
    fill(
        include_str!("scenario.html"),
        &[
            ("number", &number.to_string()),
            ("verdict", badge(outcome.passed)),
            ("name", &Text(&outcome.scenario).to_string()),
            ("summary", &Text(&outcome.summary).to_string()),
            ("expectations", &outcome.verdicts.iter().map(expectation).collect::<String>()),
            ("facts", &facts(outcome)),
            ("violations", &broken_promises(outcome, number)),
            ("phases", &phases(outcome)),
            ("around", &around(&outcome.around)),
            ("places", &places(&outcome.places)),
            ("faults", &faults(outcome)),
            ("outcome", &embedded(&json)),
        ],
    )
}

fn expectation(verdict: &Verdict) -> String {
    let Verdict { expectation, held, evidence } = verdict;
    let (class, sign, word) = if *held { ("held", "✓", "held") } else { ("failed", "✗", "failed") };
    format!(
        "<li class=\"{class}\"><span class=\"sign\" role=\"img\" aria-label=\"{word}\">{sign}</span>\
         <span class=\"expectation\">{}</span> <span class=\"evidence\">{}</span></li>\n",
        Text(expectation),
        Text(evidence),
    )
}

fn facts(outcome: &Outcome) -> String {
    let seen = &outcome.seen;
    // A line must not end within a word of it, as in `--` and `seed`.
    let words: Vec<String> =
        outcome.replay.split(' ').map(|word| format!("<span>{}</span>", Text(word))).collect();
    let command = format!(
        "<code class=\"command\">{}</code> <button type=\"button\" class=\"copy\" hidden>copy</button>",
        words.join(" "),
    );
    let judged = [
        (seen.attempts, "attempt"),
        (seen.holds, "acquisition"),
        (seen.renewals, "renewal"),
        (outcome.offers, "offer"),
        (seen.accepted, "write accepted"),
        (seen.refused, "write refused"),
        (seen.lost, "lease lost"),
        (seen.crashes, "crash"),
        (seen.keys, "key seen"),
    ];
    let overlaps = match outcome.overlaps {
        0 => "none".to_owned(),
        some => format!("<span class=\"alarm\">{}</span>", number(some)),
    };
    let layout = outcome.layout.as_ref().map(|layout| ("Layout", Text(layout).to_string()));
    [
        Some(("Replay", command)),
        Some(("Seed", format!("<code>{}</code>", outcome.seed))),
        Some(("Servers", Text(&outcome.servers).to_string())),
        layout,
        Some(("Lasted", span(outcome.duration_micros))),
        Some(("Judged", judged.map(|(many, what)| plural(many, what)).join(", "))),
        Some(("Overlaps in one process", overlaps)),
    ]
    .into_iter()
    .flatten()
    .fold(String::new(), |facts, (name, value)| facts + "<dt>" + name + "</dt><dd>" + &value + "</dd>\n")
}

/// What was judged, and how much of it.
fn plural(many: usize, what: &str) -> String {
    match what {
        "crash" if many != 1 => format!("{} crashes", count(many)),
        // Such as `2 writes refused`.
        _ => match what.split_once(' ') {
            Some((what, how)) => format!("{} {how}", counted(many, what)),
            None => counted(many, what),
        },
    }
}

/// Unexpected ones first: an expected one is no reason to worry.
fn broken_promises(outcome: &Outcome, section: usize) -> String {
    let (mood, sum) = violations(outcome);
    let mut promises: Vec<&Broken> = outcome.violations.iter().collect();
    promises.sort_by_key(|broken| broken.expected);
    let items: Vec<String> = promises.into_iter().map(|broken| broken_promise(broken, section)).collect();
    let (first, others) = items.split_at(items.len().min(AT_ONCE));

    let list = |items: &[String]| match items {
        [] => String::new(),
        items => format!("<ul class=\"violations\">\n{}</ul>\n", items.concat()),
    };
    let others = match others {
        [] => String::new(),
        others => {
            format!("<details><summary>{} more</summary>\n{}</details>\n", count(others.len()), list(others))
        }
    };
    let unlisted = match outcome.violations_in_all.saturating_sub(outcome.violations.len()) {
        0 => String::new(),
        some => format!("<p class=\"note\">{} not listed here.</p>\n", counted(some, "violation")),
    };
    format!("<p class=\"{mood} sum\">{}</p>\n{}{others}{unlisted}", sentence(&sum), list(first))
}

fn broken_promise(broken: &Broken, section: usize) -> String {
    let (class, word) = if broken.expected { ("expected", "expected") } else { ("alarm", "unexpected") };
    let when = broken.at_micros.map_or_else(String::new, |micros| {
        format!("<a href=\"#timeline-{section}\" data-at=\"{micros}\">{}</a> ", at(micros))
    });
    let resource = match &broken.resource {
        // Most sentences name it themselves.
        Some(resource) if !broken.text.contains(resource) => format!(" of <code>{}</code>", Text(resource)),
        _ => String::new(),
    };
    format!(
        "<li class=\"{class}\">{when}<strong>{word}: {}</strong>{resource} <span class=\"evidence\">{}</span></li>\n",
        broken.check,
        Text(&broken.text),
    )
}

fn phases(outcome: &Outcome) -> String {
    let minority = minority_of(outcome);
    let rows: String = outcome.phases.iter().map(|phase| phase_row(phase, minority)).collect();
    if rows.is_empty() {
        return "<p class=\"note\">Nothing was measured.</p>".to_owned();
    }
    let headings = ["lasted", "tried", "success", "p50", "p99", "max"].map(heading).concat();
    table(
        "Latency by number of faulty nodes",
        &format!("<tr><th scope=\"col\">Faulty nodes</th>{headings}</tr>"),
        &rows,
    )
}

fn phase_row(phase: &Phase, minority: usize) -> String {
    let Phase { faulty_nodes, lasted_micros, latency } = phase;
    let majority = if *faulty_nodes > minority { " <span class=\"note\">no majority</span>" } else { "" };
    format!(
        "<tr><th scope=\"row\">{faulty_nodes}{majority}</th><td class=\"figure\">{lasted}</td>\
         <td class=\"figure\">{tried}</td>{cells}{max}</tr>\n",
        lasted = span(*lasted_micros),
        tried = number(latency.tried),
        cells = cells(latency),
        max = figure(latency, latency.max_micros),
    )
}

/// What a lock costs at each place; nothing where all are in one.
fn places(places: &[Place]) -> String {
    if places.is_empty() {
        return String::new();
    }
    let headings =
        ["round trip to a quorum", "to the farthest", "tried", "success", "p50", "p99"].map(heading).concat();
    let rows: String = places.iter().map(place_row).collect();
    let table =
        table("Latency by place", &format!("<tr><th scope=\"col\">Worker</th>{headings}</tr>"), &rows);
    format!("<h3>Latency by place</h3>\n{table}")
}

fn place_row(place: &Place) -> String {
    let Place { worker, quorum_round_trip_micros, longest_round_trip_micros, latency } = place;
    format!(
        "<tr><th scope=\"row\">{worker}</th><td class=\"figure\">{quorum}</td><td class=\"figure\">{longest}</td>\
         <td class=\"figure\">{tried}</td>{cells}</tr>\n",
        worker = Text(worker),
        quorum = span(*quorum_round_trip_micros),
        longest = span(*longest_round_trip_micros),
        tried = number(latency.tried),
        cells = cells(latency),
    )
}

fn around(kinds: &[Around]) -> String {
    if kinds.is_empty() {
        return "<p class=\"note\">There was no fault.</p>".to_owned();
    }
    let group = |name| format!("<th scope=\"colgroup\" colspan=\"3\" class=\"group\">{name}</th>");
    let groups = ["before", "during", "after"].map(group).concat();
    let headings = ["success", "p50", "p99"].map(heading).concat().repeat(3);
    table(
        "Latency around faults",
        &format!("<tr><th scope=\"col\" rowspan=\"2\">Fault</th>{groups}</tr>\n<tr>{headings}</tr>"),
        &kinds.iter().map(around_row).collect::<String>(),
    )
}

fn around_row(around: &Around) -> String {
    let Around { kind, faults, before, during, after } = around;
    format!(
        "<tr><th scope=\"row\">{kind} <span class=\"note\">× {faults}</span></th>{cells}</tr>\n",
        kind = Text(kind),
        faults = count(*faults),
        cells = [before, during, after].map(cells).concat(),
    )
}

fn faults(outcome: &Outcome) -> String {
    if outcome.faults.is_empty() {
        return String::new();
    }
    let headings = ["at", "lasted"].map(heading).concat();
    let table = table(
        "Faults",
        &format!("<tr>{headings}<th scope=\"col\">kind</th><th scope=\"col\">what</th></tr>"),
        &outcome.faults.iter().map(fault_row).collect::<String>(),
    );
    format!(
        "<details class=\"faults\"><summary>{}, one by one</summary>\n{table}</details>",
        counted(outcome.faults.len(), "fault"),
    )
}

fn fault_row(fault: &FaultSpan) -> String {
    let FaultSpan { kind, name, from_micros, until_micros, .. } = fault;
    format!(
        "<tr><td class=\"figure\">{at}</td><td class=\"figure\">{lasted}</td><td>{kind}</td><td>{name}</td></tr>\n",
        at = at(*from_micros),
        lasted = span(until_micros.saturating_sub(*from_micros)),
        kind = Text(kind),
        name = Text(name),
    )
}

/// A table that can be moved sideways, by keys too, where it is wider than the page.
fn table(name: &str, head: &str, rows: &str) -> String {
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{name}\"><table>\n\
         <thead>{head}</thead>\n<tbody>\n{rows}</tbody>\n</table></div>"
    )
}

/// Success, p50 and p99.
fn cells(latency: &Latency) -> String {
    let success = match latency.tried {
        0 => "<td class=\"figure\">–</td>".to_owned(),
        tried => {
            let class = if latency.acquired < tried { "figure short" } else { "figure" };
            format!("<td class=\"{class}\">{}</td>", share(latency.acquired, tried))
        }
    };
    format!("{success}{}{}", figure(latency, latency.p50_micros), figure(latency, latency.p99_micros))
}

/// Where nothing was acquired there is no latency, which is not the same as none.
fn figure(latency: &Latency, micros: u64) -> String {
    let value = if latency.acquired == 0 { "–".to_owned() } else { span(micros) };
    format!("<td class=\"figure\">{value}</td>")
}

fn heading(name: &str) -> String {
    format!("<th scope=\"col\" class=\"figure\">{name}</th>")
}

/// The same words as a sentence of their own.
fn sentence(words: &str) -> String {
    let mut characters = words.chars();
    let first = characters.next().map(char::to_uppercase);
    format!("{}{}.", first.map(String::from_iter).unwrap_or_default(), characters.as_str())
}
