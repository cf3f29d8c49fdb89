//! Random histories of a few attempts each, for porcupine to judge too: `scripts/porcupine` compares the verdicts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::{env, fs};

use quorlock_history::{Check, Expectations, History, What, check};

use crate::script::at;

const HISTORIES: u64 = 4_000;

/// The generator `SplitMix64`.
struct Dice(u64);

impl Dice {
    /// A number from `least` to `most`.
    fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        least + (bits ^ (bits >> 31)) % (most - least + 1)
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.between(1, times) == 1
    }
}

/// Appends one attempt. Its lock and its client have the number of the history in their names.
fn attempt(dice: &mut Dice, history: &mut History, number: u64, attempt: u64) {
    let client = format!("{number}-{}", dice.between(1, 3));
    let name = format!("{number}-attempt-{attempt}");
    let of_semaphore = number.is_multiple_of(4);
    let invoked = dice.between(0, 60);
    let acquired = invoked + dice.between(0, 15);
    let mut record = |time, what| history.record(at(time), what);
    record(
        invoked,
        What::Invoked {
            client: client.as_str().into(),
            resource: format!("{number}-lock").into(),
            attempt: name.as_str().into(),
        },
    );
    if of_semaphore {
        let permits = if dice.once_in(30) { 3 } else { 2 };
        record(invoked, What::OneOf { attempt: name.as_str().into(), permits });
        let number = usize::try_from(dice.between(0, 1)).unwrap();
        if !dice.once_in(4) {
            record(invoked, What::Permit { attempt: name.as_str().into(), number });
        }
    } else if dice.once_in(4) {
        record(invoked, What::Shares { attempt: name.as_str().into() });
    } else if dice.once_in(6) {
        let resource = format!("{number}-other").into();
        record(invoked, What::Wants { attempt: name.as_str().into(), resource });
    }
    match dice.between(1, 12) {
        1 => return record(acquired, What::NotAcquired { attempt: name.as_str().into() }),
        2 => return,
        _ => {}
    }
    // A lease may be over when it is returned, but the permits of a semaphore are counted only while they certainly are held.
    let deadline = if of_semaphore { acquired + 1 } else { invoked + 1 } + dice.between(0, 20);
    // Mostly in the order of time.
    let most = if dice.once_in(3) { 40 } else { 2 };
    let token = acquired + dice.between(1, most);
    let fencing_token = (!dice.once_in(5)).then_some(token);
    record(acquired, What::Acquired { attempt: name.as_str().into(), deadline: at(deadline), fencing_token });
    let ends = acquired + dice.between(1, 15);
    if dice.once_in(3) {
        let deadline = at(deadline + dice.between(1, 10));
        record(acquired, What::Renewed { attempt: name.as_str().into(), deadline });
    }
    match dice.between(1, 8) {
        1 => record(ends, What::Lost { attempt: name.as_str().into(), reason: "no quorum".into() }),
        2 if !of_semaphore => record(ends, What::Crashed { client: client.as_str().into() }),
        3 => {}
        _ => record(ends, What::Releasing { attempt: name.as_str().into() }),
    }
}

#[test]
fn random_histories_are_judged_and_kept_for_a_second_judge() {
    let seed = env::var("QUORLOCK_SEED").map_or(42, |seed| seed.parse().unwrap());
    println!("QUORLOCK_SEED={seed}");
    let mut dice = Dice(seed);
    let mut history = History::new();
    for number in 0..HISTORIES {
        for name in 0..dice.between(2, 6) {
            attempt(&mut dice, &mut history, number, name);
        }
    }
    let report = check(&history, &Expectations::new());
    assert!(report.of(Check::Record).next().is_none() && report.gave_up.is_empty());
    let mut broken: BTreeMap<Check, BTreeSet<&str>> = BTreeMap::new();
    for violation in &report.violations {
        if let Some(lock) = violation.resource() {
            broken.entry(violation.check()).or_default().insert(lock.as_str());
        }
    }
    let checks = [Check::Exclusion, Check::Mutex, Check::Permits];
    let refused: BTreeSet<_> = checks.iter().filter_map(|check| broken.get(check)).flatten().collect();
    let share = refused.len() as u64 * 100 / HISTORIES;
    assert!((20..80).contains(&share), "{share} % are refused");

    let Some(folder) = env::var_os("QUORLOCK_SECOND_JUDGE").map(PathBuf::from) else { return };
    fs::create_dir_all(folder.join("random/history")).unwrap();
    fs::write(folder.join("random/history/all.jsonl"), history.to_lines()).unwrap();
    let outcomes =
        serde_json::json!([{ "scenario": "random", "duration_micros": 0, "broken_locks": broken }]);
    fs::write(folder.join("outcome.json"), outcomes.to_string()).unwrap();
}
