//! Parses durations, and derives settings from them.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use quorlock::protocol::{Drift, LeaseTiming, Quarantine, RoundTrip, node_timeout};
use quorlock::{Coordinator, Wait, duration};

fuzz_target!(|text: &str| {
    let Ok(time) = duration::parse(text) else { return };
    let shown = humantime::format_duration(time).to_string();
    assert_eq!(humantime::parse_duration(&shown), Ok(time), "{shown}");
    for factor in [0.0, 0.01, 0.5] {
        let drift = Drift::of(factor).expect("it is in range");
        assert!(drift.validity(time) <= time && time <= drift.stretch(time));
        assert!(Quarantine::new(time, drift).length() >= time);
    }
    let every = LeaseTiming::new(time, Drift::default(), Duration::ZERO).renewal_every();
    let trip = RoundTrip::first(time).then(time);
    assert!(node_timeout(None, Some(trip), time) <= every);
    assert!(node_timeout(Some(time), None, time) <= every);
    let builder = Coordinator::builder().nodes(["a", "b", "c"]).ttl(time).max_ttl(time).node_timeout(time);
    if let Ok(coordinator) = builder.build() {
        drop(coordinator.lock("r").ttl(time).max_hold(time).wait(Wait::UpTo(time)).validate());
    }
});
