//! Synthetic outcomes of 30 s with 5 nodes and 4 locks, in which everything that is shown occurs.

use std::collections::BTreeMap;

use quorlock_history::{Check, Ending, Seen};

use crate::outcome::{
    Around, Broken, FaultSpan, HoldSpan, Latency, Outcome, Phase, Place, Timeline, Verdict, WriteMark,
};

const SECOND: u64 = 1_000_000;

/// Returns a run in which every expectation held.
pub(crate) fn held(scenario: &str, seed: u64) -> Outcome {
    let latency =
        Latency { tried: 812, acquired: 811, p50_micros: 1_130, p99_micros: 88_400, max_micros: 402_000 };
    let none = Latency { tried: 3, ..Latency::default() };
    let endings = [Ending::Released, Ending::Lost, Ending::Lapsed, Ending::Crashed];
    let hold = |number: usize, ending| HoldSpan {
        worker: number % 2,
        resource: number % 4,
        from_micros: number as u64 * SECOND,
        until_micros: number as u64 * SECOND + SECOND / 2,
        ending,
        fencing_token: Some(number as u64),
    };
    let holds: Vec<_> =
        (0..28).zip(endings.into_iter().cycle()).map(|(number, ending)| hold(number, ending)).collect();
    Outcome {
        scenario: scenario.to_owned(),
        summary: "Kills, freezes and cuts off masters, while workers stop, die and lose the network"
            .to_owned(),
        seed,
        replay: format!("quorlock-chaos --scenario {scenario} --duration 30s --seed {seed}"),
        servers: "5 × redis-server 7.0.15".to_owned(),
        layout: Some("three in one place (0.4 ms), two in others (9 ms, 31 ms)".to_owned()),
        nodes: (0..5).map(|node| format!("node-{node}")).collect(),
        workers: (0..2).map(|worker| format!("worker-{worker}")).collect(),
        duration_micros: 30 * SECOND,
        passed: true,
        verdicts: vec![Verdict {
            expectation: "no two holders overlap".to_owned(),
            held: true,
            evidence: "13,877 holds of 4 contended and 4 uncontended locks".to_owned(),
        }],
        seen: Seen::default(),
        overlaps: 0,
        offers: 1_204,
        violations: Vec::new(),
        violations_in_all: 0,
        broken_locks: BTreeMap::new(),
        left_out: 0,
        around: vec![Around {
            kind: "freeze".to_owned(),
            faults: 2,
            before: latency.clone(),
            during: none.clone(),
            after: latency.clone(),
        }],
        phases: vec![
            Phase { faulty_nodes: 0, lasted_micros: 20 * SECOND, latency: latency.clone() },
            Phase { faulty_nodes: 3, lasted_micros: 10 * SECOND, latency: none.clone() },
        ],
        timeline: Timeline {
            bin_micros: SECOND / 10,
            bins: [vec![latency.clone(); 200], vec![none; 100]].concat(),
            resources: ["orders/1", "orders/2", "billing", "nightly-report"].map(str::to_owned).to_vec(),
            holds_in_all: holds.len(),
            holds,
            writes: vec![write(true); 3],
            writes_in_all: 3,
        },
        faults: vec![
            fault("freeze", "node-0 frozen", &[0], &[]),
            fault("cut-off", "node-3 and node-4 cut off", &[3, 4], &[]),
            fault("stop-worker", "worker-1 stopped", &[], &[1]),
            fault("cut-worker-off", "worker-0 cut off from node-2", &[2], &[0]),
        ],
        places: vec![Place {
            worker: "worker-0 (virginia)".to_owned(),
            quorum_round_trip_micros: 115_000,
            longest_round_trip_micros: 220_000,
            latency,
        }],
    }
}

/// Returns a run with unexpected violations.
pub(super) fn failed(scenario: &str, seed: u64) -> Outcome {
    let mut outcome = held(scenario, seed);
    outcome.passed = false;
    outcome.overlaps = 1;
    for verdict in &mut outcome.verdicts {
        verdict.held = false;
        verdict.evidence = "2 violations, such as `orders/1` held twice for 41.2ms".to_owned();
    }
    let broken = |check, expected| Broken {
        check,
        at_micros: Some(12 * SECOND),
        resource: Some("orders/1".to_owned()),
        text: "`orders/1` was held twice for 41.2ms: by worker-1 (attempt 88), and by worker-2 (attempt 91)"
            .to_owned(),
        expected,
    };
    outcome.violations =
        vec![broken(Check::Exclusion, false), broken(Check::Register, false), broken(Check::Loss, true)];
    outcome.violations_in_all = 3;
    outcome.timeline.writes.push(write(false));
    outcome.timeline.writes_in_all += 1;
    outcome
}

fn write(refused: bool) -> WriteMark {
    WriteMark { worker: 1, resource: 0, at_micros: 12 * SECOND, fencing_token: 1_204, refused }
}

fn fault(kind: &str, name: &str, nodes: &[usize], workers: &[usize]) -> FaultSpan {
    FaultSpan {
        kind: kind.to_owned(),
        name: name.to_owned(),
        nodes: nodes.to_vec(),
        workers: workers.to_vec(),
        from_micros: 3 * SECOND,
        until_micros: 5 * SECOND,
    }
}
