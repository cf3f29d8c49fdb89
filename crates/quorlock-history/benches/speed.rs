//! Measures the check of 20,000 holds on 20 resources.
//!
//! `cargo bench -p quorlock-history`

use std::time::Instant;

use quorlock_history::{Expectations, History, Stamp, What, check};

const HOLDS: u64 = 20_000;
/// Clients that wait for one resource at a time.
const WAITING: u64 = 4;

fn main() {
    for resources in [20, 1] {
        let (good, bad) = (history(resources, None), history(resources, Some(HOLDS / 2)));
        measure(&format!("{HOLDS} holds on {resources} resources"), &good);
        measure("the same with one overlap and one token twice", &bad);
    }
}

#[expect(clippy::disallowed_methods, reason = "it measures how long this program takes")]
fn measure(what: &str, history: &History) {
    let lines = history.to_lines();
    let begin = Instant::now();
    let report = check(history, &Expectations::new());
    let checked = begin.elapsed();
    let begin = Instant::now();
    let read = History::from_lines(&lines);
    let took = begin.elapsed();
    println!("{what}: checked in {checked:?}; read from {} bytes in {took:?}", lines.len());
    println!("{report}\n");
    assert_eq!(read.ok().as_ref(), Some(history), "a history is read as it was written");
}

/// Holds of 8 ms, 2 ms apart on each resource, waited for from the time of [`WAITING`] holds
/// before. One of them, if asked for, comes 5 ms too early and with the token of the one before.
fn history(resources: u64, spoilt: Option<u64>) -> History {
    let at = |micros: u64| Stamp::from_nanos(1_000 * micros);
    let mut history = History::new();
    for number in 0..HOLDS {
        let early = u64::from(spoilt == Some(number));
        let turn = WAITING + number / resources;
        let acquired = 10_000 * turn - 5_000 * early;
        let attempt = || format!("attempt-{number}").into();
        let client = format!("client-{}", number % 100).into();
        let resource = format!("orders/{}", number % resources).into();
        let fencing_token = Some(turn - early);
        let deadline = at(acquired + 30_000);
        history.record(
            at(acquired - 10_000 * WAITING + 5_000),
            What::Invoked { client, resource, attempt: attempt() },
        );
        history.record(at(acquired), What::Acquired { attempt: attempt(), deadline, fencing_token });
        history.record(at(acquired + 8_000), What::Releasing { attempt: attempt() });
        history.record(at(acquired + 9_000), What::Released { attempt: attempt() });
    }
    history
}
