//! Synthetic outcomes, with something of everything that a page shows: 30 s, 5 nodes, 4 workers, 4 locks.

use std::collections::BTreeMap;

use quorlock_history::{Check, Ending, Seen};

use crate::outcome::{
    Around, Broken, FaultSpan, HoldSpan, Latency, Outcome, Phase, Place, Timeline, Verdict, WriteMark,
};

const SECOND: u64 = 1_000_000;

/// Returns a run in which every expectation held.
pub(crate) fn held(scenario: &str, seed: u64) -> Outcome {
    let mut events = Seen::default();
    (events.holds, events.lost, events.refused) = (120, 60, 1);
    let verdict = |expectation: &str, evidence: &str| Verdict {
        expectation: expectation.to_owned(),
        held: true,
        evidence: evidence.to_owned(),
    };
    let holds = holds();
    Outcome {
        scenario: scenario.to_owned(),
        summary: "Kills masters, freezes them and cuts them off, while workers stop.".to_owned(),
        seed,
        replay: format!("quorlock-chaos --scenario {scenario} --duration 30s --seed {seed}"),
        servers: "5 × redis-server 7.0.15".to_owned(),
        layout: Some("three in one place (0.4 ms), two in others (9 ms, 31 ms)".to_owned()),
        nodes: (0..5).map(|node| format!("node-{node}")).collect(),
        workers: (0..4).map(|worker| format!("worker-{worker}")).collect(),
        duration_micros: 30 * SECOND,
        passed: true,
        verdicts: vec![
            verdict("no two holders overlap", "120 holds of 4 contended locks"),
            verdict("the guarded resource refuses every late write", "1 of 1 refused"),
        ],
        seen: events,
        overlaps: 0,
        offers: 1_204,
        violations: Vec::new(),
        violations_in_all: 0,
        broken_locks: BTreeMap::new(),
        around: vec![Around {
            kind: "kill".to_owned(),
            faults: 1,
            before: latency(400, 400),
            during: latency(1_210, 1_209),
            after: latency(400, 400),
        }],
        phases: [(0, latency(4_100, 4_100)), (1, latency(5_004, 5_000)), (3, latency(0, 0))]
            .map(|(faulty_nodes, latency)| Phase { faulty_nodes, lasted_micros: 10 * SECOND, latency })
            .into(),
        timeline: Timeline {
            bin_micros: SECOND,
            bins: (0..30).map(|number| latency(40, [40, 38, 0][number % 3])).collect(),
            resources: ["orders/1", "orders/2", "billing", "nightly-report"].map(str::to_owned).into(),
            holds_in_all: holds.len(),
            holds,
            writes: vec![write(12_610, true)],
            writes_in_all: 1,
        },
        faults: faults(),
        places: vec![Place {
            worker: "worker-0 (virginia)".to_owned(),
            quorum_round_trip_micros: 115_000,
            longest_round_trip_micros: 220_000,
            latency: latency(812, 811),
        }],
    }
}

/// Returns a run with unexpected violations.
pub(super) fn failed(scenario: &str, seed: u64) -> Outcome {
    let mut outcome = held(scenario, seed);
    outcome.passed = false;
    outcome.overlaps = 1;
    if let Some(verdict) = outcome.verdicts.first_mut() {
        verdict.held = false;
    }
    outcome.violations = vec![
        broken(Check::Exclusion, 12_480_000, "orders/1", false),
        broken(Check::Register, 12_521_000, "orders/1", false),
        broken(Check::Loss, 20_950_000, "billing", true),
    ];
    outcome.violations_in_all = 3;
    outcome.timeline.writes.push(write(12_521, false));
    outcome.timeline.writes_in_all += 1;
    outcome
}

fn broken(check: Check, at_micros: u64, resource: &str, expected: bool) -> Broken {
    let text = format!("`{resource}` was held twice for 41.2ms: by worker-1 and by worker-2");
    Broken { check, at_micros: Some(at_micros), resource: Some(resource.to_owned()), text, expected }
}

fn faults() -> Vec<FaultSpan> {
    [
        ("kill", "node-2 killed, restarted empty", &[2][..], &[][..], 1),
        ("freeze", "node-0 frozen", &[0], &[], 3),
        ("cut-off", "node-3 and node-4 cut off", &[3, 4], &[], 6),
        ("stop-worker", "worker-1 stopped", &[], &[1], 10),
        ("cut-worker-off", "worker-2 cut off from node-0", &[0], &[2], 22),
    ]
    .map(|(kind, name, nodes, workers, second)| FaultSpan {
        kind: kind.to_owned(),
        name: name.to_owned(),
        nodes: nodes.into(),
        workers: workers.into(),
        from_micros: second * SECOND,
        until_micros: (second + 2) * SECOND,
    })
    .into()
}

/// Returns a hold of each lock in each second, by changing workers, with each ending in turn.
fn holds() -> Vec<HoldSpan> {
    const ENDINGS: [Ending; 4] = [Ending::Released, Ending::Lost, Ending::Lapsed, Ending::Crashed];
    let hold = |(second, resource): (usize, usize)| {
        let from_micros = u64::try_from(second).expect("less than 30") * SECOND;
        HoldSpan {
            worker: (second + resource) % 4,
            resource,
            from_micros,
            until_micros: from_micros + SECOND / 2,
            ending: ENDINGS[second % 4],
            fencing_token: Some(1_000 + from_micros),
        }
    };
    (0..30).flat_map(|second| (0..4).map(move |resource| (second, resource))).map(hold).collect()
}

fn write(millis: u64, refused: bool) -> WriteMark {
    WriteMark { worker: 1, resource: 0, at_micros: millis * 1_000, fencing_token: millis, refused }
}

fn latency(tried: u64, acquired: u64) -> Latency {
    Latency { tried, acquired, p50_micros: 1_130, p99_micros: 4_870, max_micros: 9_020 }
}
