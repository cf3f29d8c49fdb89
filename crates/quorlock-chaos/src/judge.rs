//! Checks the record of a run: whether every expectation held, and the figures.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use quorlock_history::{
    Answer, Check, Ending, Event, Expectations, History, Hold, Report, Stamp, Token, Violation, What, check,
};

use crate::director::{GRACE, RECOVERY};
use crate::figures;
use crate::outcome::{Broken, FaultSpan, HoldSpan, Outcome, Timeline, Verdict, WriteMark};
use crate::run_metadata::{Record, RunMetadata};
use crate::scenario::{Scenario, lock_name};
use crate::workers::worker_name;

mod latency;

use latency::Probes;

/// How late a holder may be notified of a loss, because of timers and schedulers of a busy machine.
const SIGNAL_SLACK: Duration = Duration::from_millis(250);
/// Limits of what an outcome lists.
const MOST_HOLDS: usize = 4_000;
const MOST_WRITES: usize = 1_000;
const MOST_VIOLATIONS: usize = 50;
const MOST_ROWS: usize = 10;

/// Checks the record of a run.
pub(crate) fn judge(scenario: &Scenario, metadata: &RunMetadata, record: &Record) -> Outcome {
    let history = &record.history;
    let expect = Expectations::new()
        .max_ttl(scenario.locks.ttl + scenario.servers.longer())
        .grace(GRACE)
        .signal_slack(SIGNAL_SLACK)
        .recovery(RECOVERY + scenario.quarantine());
    let report = check(history, &expect);
    let probes = Probes::of(history, metadata, scenario.nodes);
    let writes = late_writes(history);
    let verdicts = verdicts(scenario, metadata, record, &report, &probes);
    let micros = |at: Stamp| micros(at, metadata);
    let broken = report.violations.iter().map(|violation| Broken {
        check: violation.check(),
        at_micros: violation.at().map(micros),
        resource: violation.resource().map(ToString::to_string),
        text: violation.to_string(),
        expected: is_expected(scenario, violation.check()),
    });
    Outcome {
        scenario: scenario.name.clone(),
        summary: scenario.summary.clone(),
        seed: metadata.seed,
        replay: metadata.replay.clone(),
        servers: metadata.servers.clone(),
        layout: metadata.layout.clone(),
        nodes: metadata.nodes.clone(),
        workers: metadata.workers.clone(),
        duration_micros: micros(metadata.ended),
        passed: verdicts.iter().all(|verdict| verdict.held),
        verdicts,
        seen: report.seen,
        overlaps: metadata.overlaps,
        offers: metadata.offers,
        violations: broken.take(MOST_VIOLATIONS).collect(),
        violations_in_all: report.violations.len(),
        broken_locks: broken_locks(&report),
        faults: faults(metadata),
        left_out: metadata.left_out.values().sum(),
        phases: probes.phases(),
        around: probes.around(),
        places: probes.places(),
        timeline: Timeline {
            bin_micros: probes.bin_micros(),
            bins: probes.bins(),
            resources: (1..=scenario.locks.count).map(lock_name).collect(),
            writes_in_all: writes.len(),
            writes: marks(&writes, history, scenario, metadata),
            ..holds(history, scenario, metadata)
        },
    }
}

fn verdicts(
    scenario: &Scenario,
    metadata: &RunMetadata,
    Record { history, files }: &Record,
    report: &Report,
    probes: &Probes<'_>,
) -> Vec<Verdict> {
    let expect = &scenario.expect;
    let mut verdicts = Vec::new();
    let mut say = |expectation: &str, held: bool, evidence: String| {
        verdicts.push(Verdict { expectation: expectation.to_owned(), held, evidence });
    };
    let seen = &report.seen;
    let count = |check: Check| report.of(check).count();

    let unexpected: BTreeSet<Check> = report
        .violations
        .iter()
        .map(Violation::check)
        .filter(|&check| !is_expected(scenario, check))
        .collect();
    let judged = format!(
        "{} holds, {} renewals, {} writes, {} keys seen",
        seen.holds,
        seen.renewals,
        seen.accepted + seen.refused,
        seen.keys
    );
    // A record that lacks what a process has written breaks no promise, and proves none; nor does one without holds,
    // tokens, writes or keys.
    let (is_complete, evidence) = complete(metadata, files);
    say("the record is complete", is_complete, evidence);
    let of_each = holds_of_each_worker(history, metadata);
    let idle: Vec<_> = (0..).zip(&of_each).filter(|(_, holds)| **holds == 0).collect();
    say(
        "every worker held locks",
        !of_each.is_empty() && idle.is_empty(),
        match of_each.iter().min() {
            Some(least) if idle.is_empty() => format!("each at least {least}"),
            Some(_) => {
                let names = idle.iter().map(|(number, _)| worker_name(*number)).collect::<Vec<_>>();
                format!("none by {}", names.join(", "))
            }
            None => "there are no workers".to_owned(),
        },
    );
    let promise = if expect.violations.is_empty() { "no violation" } else { "no other violation" };
    let found = unexpected.iter().map(|&check| format!("{check}: {}", count(check))).collect::<Vec<_>>();
    say(promise, found.is_empty(), if found.is_empty() { judged } else { found.join(", ") });
    for &check in &expect.violations {
        say(&format!("violations of {check} are found"), count(check) > 0, format!("{} found", count(check)));
    }
    if !report.gave_up.is_empty() {
        say(
            "every lock can be checked",
            false,
            format!("the search for an order gave up: {:?}", report.gave_up),
        );
    }
    if !is_expected(scenario, Check::Exclusion) {
        let overlaps = metadata.overlaps;
        say("no two tasks of a process hold the same lock", overlaps == 0, format!("overlaps: {overlaps}"));
    }
    let found = seen.keys > 0 || !is_whole(scenario, metadata);
    say("keys were found on the nodes", found, format!("{} keys", seen.keys));
    if scenario.locks.fencing {
        let (fenced, evidence) = fenced(scenario, history, seen.accepted);
        say("every hold has a fencing token, and writes with it", fenced, evidence);
    }
    if let Some(share) = expect.success {
        let minority = probes.with_at_most(scenario.minority());
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let reached = minority.acquired as f64 / minority.tried.max(1) as f64;
        say(
            &format!(
                "at least {} % of uncontended locks acquired while at most a minority of the nodes is faulty",
                share * 100.0
            ),
            minority.tried > 0 && reached >= share,
            format!("{} of {}", figures::share(minority.acquired, minority.tried), minority.tried),
        );
    }
    if expect.refused_writes > 0 {
        let least = expect.refused_writes;
        let evidence = format!("{} refused, {} accepted", seen.refused, seen.accepted);
        say(&format!("at least {least} late writes refused"), seen.refused >= least, evidence);
    }
    if let Some(left) = &metadata.left_behind {
        say("no rows left in the databases", left.is_empty(), rows_left(left));
    }
    if expect.offers > 0 {
        let (least, offers) = (expect.offers, metadata.offers);
        let evidence = format!("{offers} offers, {} holds", seen.holds);
        say(&format!("at least {least} offers by a quorum"), offers >= least, evidence);
    }
    if !scenario.faults.is_empty() {
        let (injected, evidence) = injected(scenario, metadata);
        say("faults were injected", injected, evidence);
    }
    let complaints = &metadata.complaints;
    let evidence = if complaints.is_empty() { "none found".to_owned() } else { complaints.join("; ") };
    say("no problems during the run", complaints.is_empty(), evidence);
    verdicts
}

/// Returns whether each file of the history has as many events as when the run ended, and which have not.
fn complete(metadata: &RunMetadata, files: &BTreeMap<String, usize>) -> (bool, String) {
    let names: BTreeSet<&String> = metadata.files.keys().chain(files.keys()).collect();
    let changed = names.into_iter().filter_map(|name| {
        let [has, had] = [files, &metadata.files].map(|files| files.get(name).copied().unwrap_or_default());
        (has != had).then(|| format!("{name} has {has} of {had} events"))
    });
    let changed: Vec<String> = changed.collect();
    let evidence = if changed.is_empty() { format!("{} files", files.len()) } else { changed.join(", ") };
    (changed.is_empty(), evidence)
}

/// Returns whether each hold has a fencing token, of which the guarded resource accepted some, and how many lack it.
fn fenced(scenario: &Scenario, history: &History, accepted: usize) -> (bool, String) {
    let holds = quorlock_history::holds(history);
    let without = holds.iter().filter(|hold| hold.fencing_token.is_none()).count();
    let wrote = accepted > 0 || !scenario.load.writes();
    (without == 0 && wrote, format!("{without} without, {accepted} writes accepted"))
}

fn rows_left(left: &[String]) -> String {
    match left.get(..left.len().min(MOST_ROWS)) {
        Some(first @ [_, ..]) => format!("{} left: {}", left.len(), first.join(", ")),
        _ => "no lock, reader, waiter or tombstone left in any table".to_owned(),
    }
}

/// Whether it was as long as the scenario says. In a shorter run, a busy machine may leave out all faults of a kind, and look
/// at the nodes when no key is there.
fn is_whole(scenario: &Scenario, metadata: &RunMetadata) -> bool {
    metadata.quiet.since(metadata.began) >= scenario.duration
}

/// Returns whether faults of each kind were injected, and how many.
fn injected(scenario: &Scenario, metadata: &RunMetadata) -> (bool, String) {
    let mut kinds: BTreeMap<&str, usize> = scenario.faults.iter().map(|rule| (rule.kind, 0)).collect();
    for done in &metadata.faults {
        *kinds.entry(&done.kind).or_default() += 1;
    }
    let left_out = |kind: &str| metadata.left_out.get(kind).copied().unwrap_or_default();
    let evidence = kinds.iter().map(|(kind, times)| match left_out(kind) {
        0 => format!("{kind} {times}"),
        more => format!("{kind} {times} ({more} left out)"),
    });
    let evidence = evidence.collect::<Vec<_>>().join(", ");
    let lacks =
        is_whole(scenario, metadata) && kinds.iter().any(|(kind, times)| *times == 0 && left_out(kind) > 0);
    (!lacks && !metadata.faults.is_empty(), evidence)
}

fn broken_locks(report: &Report) -> BTreeMap<Check, BTreeSet<String>> {
    let mut locks: BTreeMap<Check, BTreeSet<String>> = BTreeMap::new();
    for violation in &report.violations {
        if let Some(lock) = violation.resource() {
            locks.entry(violation.check()).or_default().insert(lock.to_string());
        }
    }
    locks
}

fn is_expected(scenario: &Scenario, check: Check) -> bool {
    scenario.expect.violations.contains(&check) || scenario.expect.tolerated.contains(&check)
}

fn faults(metadata: &RunMetadata) -> Vec<FaultSpan> {
    let span = |done: &crate::run_metadata::Done| FaultSpan {
        kind: done.kind.clone(),
        name: done.name.clone(),
        nodes: done.nodes.clone(),
        workers: done.workers.clone(),
        from_micros: micros(done.from, metadata),
        until_micros: micros(done.until, metadata),
    };
    let mut spans: Vec<FaultSpan> = metadata.faults.iter().map(span).collect();
    spans.sort_by_key(|span| span.from_micros);
    spans
}

/// Returns how many holds the record has of each worker.
fn holds_of_each_worker(history: &History, metadata: &RunMetadata) -> Vec<usize> {
    let mut counts = vec![0; metadata.workers.len()];
    for hold in quorlock_history::holds(history) {
        if let Some(count) = number(hold.client.as_str()).and_then(|number| counts.get_mut(number)) {
            *count += 1;
        }
    }
    counts
}

/// Returns the holds of contended locks, thinned out to what can be drawn; holds that were not
/// released are thinned out less.
fn holds(history: &History, scenario: &Scenario, metadata: &RunMetadata) -> Timeline {
    let contended =
        |hold: &Hold| Some((number(hold.client.as_str())?, lock(hold.resource.as_str(), scenario)?));
    let all: Vec<(Hold, (usize, usize))> = quorlock_history::holds(history)
        .into_iter()
        .filter_map(|hold| contended(&hold).map(|who| (hold, who)))
        .collect();
    let holds_in_all = all.len();
    let stride = holds_in_all.div_ceil(MOST_HOLDS).max(1);
    let drawn = all.into_iter().enumerate().filter(|(index, (hold, _))| {
        index % stride == 0 || (hold.ending != Ending::Released && index % stride.div_ceil(4) == 0)
    });
    let span = |(_, (hold, (worker, resource))): (usize, (Hold, (usize, usize)))| HoldSpan {
        worker,
        resource,
        from_micros: micros(hold.acquired, metadata),
        until_micros: micros(hold.end, metadata),
        ending: hold.ending,
        fencing_token: hold.fencing_token,
    };
    let mut holds: Vec<HoldSpan> = drawn.map(span).collect();
    holds.sort_by_key(|hold| hold.from_micros);
    Timeline { holds, holds_in_all, ..Timeline::default() }
}

/// A write with a smaller fencing token than one that was received before.
struct Late<'history> {
    at: Stamp,
    resource: &'history str,
    attempt: &'history Token,
    fencing_token: u64,
    refused: bool,
}

fn late_writes(history: &History) -> Vec<Late<'_>> {
    let mut events: Vec<&Event> = history.events().iter().collect();
    events.sort_by_key(|event| event.at);
    let mut largest: HashMap<&str, u64> = HashMap::new();
    let mut late = Vec::new();
    for event in events {
        let What::Wrote { resource, attempt, fencing_token, answer } = &event.what else { continue };
        let seen = largest.entry(resource.as_str()).or_default();
        if fencing_token < seen {
            let (resource, refused) = (resource.as_str(), *answer == Answer::Refused);
            late.push(Late { at: event.at, resource, attempt, fencing_token: *fencing_token, refused });
        }
        *seen = (*fencing_token).max(*seen);
    }
    late
}

fn marks(
    late: &[Late<'_>],
    history: &History,
    scenario: &Scenario,
    metadata: &RunMetadata,
) -> Vec<WriteMark> {
    let whose: HashMap<&Token, &str> = history
        .events()
        .iter()
        .filter_map(|event| {
            let What::Invoked { client, attempt, .. } = &event.what else { return None };
            Some((attempt, client.as_str()))
        })
        .collect();
    let mark = |late: &Late<'_>| {
        Some(WriteMark {
            worker: number(whose.get(late.attempt)?)?,
            resource: lock(late.resource, scenario)?,
            at_micros: micros(late.at, metadata),
            fencing_token: late.fencing_token,
            refused: late.refused,
        })
    };
    late.iter().filter_map(mark).take(MOST_WRITES).collect()
}

fn micros(at: Stamp, metadata: &RunMetadata) -> u64 {
    quorlock::protocol::micros(at.since(metadata.began))
}

/// `worker-3` is number 2.
fn number(worker: &str) -> Option<usize> {
    worker.rsplit_once('-')?.1.parse::<usize>().ok()?.checked_sub(1)
}

/// Returns the index of a contended lock.
fn lock(resource: &str, scenario: &Scenario) -> Option<usize> {
    let lock = resource.starts_with("lock-").then(|| number(resource))??;
    (lock < scenario.locks.count).then_some(lock)
}
