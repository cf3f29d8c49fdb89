//! Synthetic outcomes: 30 s, 5 nodes, 4 workers, 4 locks, 3,000 holds.

use std::collections::BTreeMap;

use quorlock_history::{Check, Ending, Seen};

use crate::outcome::{
    Around, Broken, FaultSpan, HoldSpan, Latency, Outcome, Phase, Place, Timeline, Verdict, WriteMark,
};

const SECOND: u64 = 1_000_000;
const DURATION: u64 = 30 * SECOND;
const BIN: u64 = SECOND / 10;
const HOLDS: usize = 3_000;

/// Returns a run in which every expectation held.
pub(crate) fn held(scenario: &str, seed: u64) -> Outcome {
    let mut rng = Dice(seed | 1);
    let faults = faults();
    let holds = holds(&mut rng, &faults);
    Outcome {
        scenario: scenario.to_owned(),
        summary: "Kills masters one by one and in pairs, freezes them, cuts them off and slows them down, \
                  while workers stop, die and lose the network."
            .to_owned(),
        seed,
        replay: format!("quorlock-chaos --scenario {scenario} --duration 30s --seed {seed}"),
        servers: "5 × redis-server 7.0.15".to_owned(),
        layout: Some("three in one place (0.4 ms), two in others (9 ms, 31 ms)".to_owned()),
        nodes: (0..5).map(|node| format!("node-{node}")).collect(),
        workers: (0..4).map(|worker| format!("worker-{worker}")).collect(),
        duration_micros: DURATION,
        passed: true,
        verdicts: vec![
            verdict("no two holders overlap", "13,877 holds of 4 contended and 4 uncontended locks"),
            verdict("the guarded resource refuses every late write", "3 of 3 refused"),
            verdict("with up to 2 faulty nodes, 99% of attempts succeed", "99.93% of 12,206"),
            verdict("with up to 2 faulty nodes, p99 is below 100 ms", "88.4 ms"),
            verdict("every worker acquires again within 5 s of the last heal", "after 1.2 s at the latest"),
        ],
        seen: seen(&faults, &holds),
        overlaps: 0,
        offers: 1_204,
        violations: Vec::new(),
        violations_in_all: 0,
        broken_locks: BTreeMap::new(),
        around: around(),
        phases: phases(),
        timeline: Timeline {
            bin_micros: BIN,
            bins: bins(&mut rng, &faults),
            resources: ["orders/1", "orders/2", "billing", "nightly-report"].map(str::to_owned).to_vec(),
            holds_in_all: holds.len(),
            holds,
            writes: writes(),
            writes_in_all: 3,
        },
        faults,
        places: vec![Place {
            worker: "worker-0 (virginia)".to_owned(),
            quorum_round_trip_micros: 115_000,
            longest_round_trip_micros: 220_000,
            latency: Latency {
                tried: 812,
                acquired: 811,
                p50_micros: 116_400,
                p99_micros: 131_000,
                max_micros: 402_000,
            },
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
        verdict.evidence = "2 violations, such as `orders/1` held twice for 41.2ms".to_owned();
    }
    outcome.violations = vec![
        broken(Check::Exclusion, 12_480_000, "orders/1", false),
        broken(Check::Register, 12_521_000, "orders/1", false),
        broken(Check::Loss, 20_950_000, "billing", true),
    ];
    outcome.violations_in_all = 3;
    outcome.timeline.writes.push(WriteMark {
        worker: 1,
        resource: 0,
        at_micros: 12_521_000,
        fencing_token: 1_204,
        refused: false,
    });
    outcome.timeline.writes_in_all += 1;
    outcome
}

fn seen(faults: &[FaultSpan], holds: &[HoldSpan]) -> Seen {
    let mut seen = Seen::default();
    seen.attempts = 14_210;
    seen.holds = 13_877;
    seen.not_acquired = 333;
    seen.renewals = 212;
    seen.lost = holds.iter().filter(|hold| matches!(hold.ending, Ending::Lost | Ending::Lapsed)).count();
    seen.crashes = 2;
    seen.accepted = 9_921;
    seen.refused = 3;
    seen.keys = 55;
    seen.faults = faults.len();
    seen
}

fn verdict(expectation: &str, evidence: &str) -> Verdict {
    Verdict { expectation: expectation.to_owned(), held: true, evidence: evidence.to_owned() }
}

fn broken(check: Check, at_micros: u64, resource: &str, expected: bool) -> Broken {
    Broken {
        check,
        at_micros: Some(at_micros),
        resource: Some(resource.to_owned()),
        text: format!(
            "`{resource}` was held twice for 41.2ms: by worker-1 (attempt 88, fencing token 1204), and by \
             worker-2 (attempt 91, fencing token 1205)"
        ),
        expected,
    }
}

/// Kind, description, nodes, workers, beginning and end in milliseconds.
type Fault = (&'static str, &'static str, &'static [usize], &'static [usize], u64, u64);

#[rustfmt::skip]
const FAULTS: [Fault; 15] = [
    ("kill", "node-2 killed, restarted empty", &[2], &[], 1_500, 4_200),
    ("freeze", "node-0 frozen", &[0], &[], 3_000, 5_600),
    ("cut-off", "node-3 and node-4 cut off", &[3, 4], &[], 6_000, 8_300),
    ("slow", "node-1 slowed to 80 ms", &[1], &[], 7_200, 12_900),
    ("kill", "node-0 killed, restarted with its data", &[0], &[], 9_800, 11_000),
    ("stop-worker", "worker-1 stopped", &[], &[1], 10_200, 12_500),
    ("kill", "node-2 killed, restarted empty", &[2], &[], 13_500, 14_100),
    ("freeze", "node-3 frozen", &[3], &[], 14_800, 19_000),
    ("cut-off", "node-4 cut off", &[4], &[], 15_200, 18_600),
    ("kill", "node-2 killed, restarted empty", &[2], &[], 16_100, 17_900),
    ("clock", "node-1's clock set forward by 3 s", &[1], &[], 20_000, 20_060),
    ("kill-worker", "worker-3 killed", &[], &[3], 19_500, 20_700),
    ("cut-worker-off", "worker-2 cut off from all nodes", &[], &[2], 22_000, 24_400),
    ("cut-worker-off", "worker-2 cut off from node-0", &[0], &[2], 23_600, 26_200),
    ("slow", "node-0 slowed to 20 ms", &[0], &[], 24_900, 27_000),
];

fn faults() -> Vec<FaultSpan> {
    let fault = |&(kind, name, nodes, workers, from, until): &Fault| FaultSpan {
        kind: kind.to_owned(),
        name: name.to_owned(),
        nodes: nodes.to_vec(),
        workers: workers.to_vec(),
        from_micros: from * 1_000,
        until_micros: until * 1_000,
    };
    FAULTS.iter().map(fault).collect()
}

/// Returns `first`, or the next worker that has no fault at that time.
fn well(faults: &[FaultSpan], first: u64, from_micros: u64) -> usize {
    let first = usize::try_from(first).expect("one of four");
    let ill = |worker: &usize| {
        faults.iter().any(|fault| {
            fault.workers.contains(worker)
                && fault.from_micros < from_micros
                && from_micros < fault.until_micros
        })
    };
    (first..first + 4).map(|worker| worker % 4).find(|worker| !ill(worker)).unwrap_or(first)
}

/// Returns holds of each lock by changing workers.
fn holds(rng: &mut Dice, faults: &[FaultSpan]) -> Vec<HoldSpan> {
    let each = HOLDS / 4;
    let mut holds = Vec::new();
    for resource in 0..4 {
        let mut free_at = 0;
        for number in 0..each {
            let left = (DURATION - free_at) / u64::try_from(each - number).expect("a few");
            let from_micros = free_at + rng.up_to(left / 3);
            let until_micros = from_micros + left / 4 + rng.up_to(left);
            let ending = match rng.up_to(120) {
                0 => Ending::Lost,
                1 => Ending::Lapsed,
                _ if number % 300 == 299 => Ending::Crashed,
                _ => Ending::Released,
            };
            let worker = well(faults, rng.up_to(4), from_micros);
            let fencing_token = u64::try_from(number).ok().map(|number| 1_000 + number);
            holds.push(HoldSpan { worker, resource, from_micros, until_micros, ending, fencing_token });
            free_at = until_micros.min(DURATION);
        }
    }
    holds
}

fn writes() -> Vec<WriteMark> {
    [(1, 0, 12_610), (1, 2, 12_640), (2, 3, 24_450)]
        .map(|(worker, resource, millis)| WriteMark {
            worker,
            resource,
            at_micros: millis * 1_000,
            fencing_token: 1_200 + millis % 100,
            refused: true,
        })
        .to_vec()
}

fn bins(rng: &mut Dice, faults: &[FaultSpan]) -> Vec<Latency> {
    (0..DURATION / BIN)
        .map(|bin| {
            let (from, until) = (bin * BIN, (bin + 1) * BIN);
            let during = |fault: &&FaultSpan| fault.from_micros < until && fault.until_micros > from;
            let out_of_order: usize = faults.iter().filter(during).map(|fault| fault.nodes.len()).sum();
            let tried = 38 + rng.up_to(9);
            let p50_micros = 900 + rng.up_to(500) + if out_of_order > 1 { 700 } else { 0 };
            let p99_micros =
                p50_micros * 2 + rng.up_to(4_000) * (1 + u64::try_from(out_of_order).expect("few")).pow(2);
            let acquired = match out_of_order {
                0 | 1 => tried,
                2 => tried - rng.up_to(2),
                _ => rng.up_to(tried / 4).saturating_sub(3),
            };
            Latency { tried, acquired, p50_micros, p99_micros, max_micros: p99_micros + rng.up_to(9_000) }
        })
        .collect()
}

fn latency(tried: u64, failed: u64, p50_micros: u64, p99_micros: u64) -> Latency {
    Latency { tried, acquired: tried - failed, p50_micros, p99_micros, max_micros: p99_micros * 13 / 10 }
}

fn phases() -> Vec<Phase> {
    [
        (0, 9_740, latency(4_100, 0, 1_130, 4_870)),
        (1, 12_200, latency(5_004, 0, 1_210, 9_020)),
        (2, 6_260, latency(3_102, 8, 1_870, 88_400)),
        (3, 1_800, latency(610, 571, 40_200, 412_000)),
        (5, 0, latency(0, 0, 0, 0)),
    ]
    .map(|(faulty_nodes, millis, latency)| Phase { faulty_nodes, lasted_micros: millis * 1_000, latency })
    .to_vec()
}

fn around() -> Vec<Around> {
    [
        ("kill", 4, 11_200),
        ("freeze", 2, 88_400),
        ("cut-off", 2, 61_300),
        ("slow", 2, 83_100),
        ("clock", 1, 5_020),
    ]
    .map(|(kind, faults, p99)| Around {
        kind: kind.to_owned(),
        faults,
        before: latency(400, 0, 1_120, 4_870),
        during: latency(1_210, p99 / 10_000, 1_480, p99),
        after: latency(400, 0, 1_140, 5_110),
    })
    .to_vec()
}

/// A generator that returns the same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn up_to(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound.max(1)
    }
}
