//! Extreme inputs: no setting, name or token causes a panic.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use quorlock::protocol::{
    Backoff, Claim, Drift, LeaseTiming, Quarantine, Resource, ResourceError, RoundTrip, fence_counter,
    node_timeout, overdue_after, readers_key, semaphore_limit, want_mark,
};
use quorlock::{
    AcquireError, ConfigError, Coordinator, RestartGuard, Token, Wait,
    node::{Request, Vote, ask},
};
use quorlock_testkit::{MemoryNode, memory_nodes};

use crate::common::{bench, passing};

/// Who chooses a name would otherwise store a token where a server keeps something of another lock.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_stored_beside_a_lock_is_not_locked() {
    let bench = bench(3);
    let names = [fence_counter("", "r"), readers_key("r"), semaphore_limit("r"), want_mark("r") + ":order"];
    for name in names {
        let lock = bench.coordinator.lock(&name);
        let error = lock.acquire().await.unwrap_err();
        let is_reserved =
            |error: &ConfigError| matches!(error, ConfigError::Resource(ResourceError::Reserved { .. }));
        assert!(matches!(&error, AcquireError::Config(config) if is_reserved(config)), "{name}: {error}");
        assert!(is_reserved(&lock.validate().unwrap_err()));
        assert!(bench.coordinator.lock_all(["r", &*name]).try_acquire().await.is_err());
        lock.inspect().await.unwrap();
    }
    bench.coordinator.lock("orders:quorlock").acquire().await.unwrap().release().await.unwrap();
}

/// Any duration, often close to the smallest or largest.
fn times() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        Just(Duration::from_nanos(1)),
        Just(Duration::from_secs(u64::MAX / 4)),
        (1..100_000_u64).prop_map(Duration::from_millis),
        any::<Duration>(),
    ]
}

fn paused<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(test)
}

proptest! {
    #[test]
    fn the_rules_saturate(
        one in times(),
        two in times(),
        three in times(),
        factor in prop_oneof![Just(0.0), Just(0.5), 0.0..=0.5],
        random: u64,
    ) {
        let drift = Drift::of(factor).unwrap();
        prop_assert!(drift.validity(one) <= one, "a lease must not outlive its keys");
        prop_assert!(drift.stretch(one) >= one, "a key must not outlive the quarantine");
        prop_assert!(Quarantine::new(one, drift).left(two) <= drift.stretch(one));
        let trip = RoundTrip::first(one).then(two);
        prop_assert!(trip.smoothed() <= one.max(two) && trip.deviation() <= one.max(two));
        for limit in [node_timeout(None, Some(trip), three), node_timeout(Some(one), Some(trip), three)] {
            prop_assert!(limit <= three / 4);
            prop_assert!(overdue_after(Some(trip), two, limit) <= limit);
        }
        let timing = LeaseTiming::new(one, drift, two);
        prop_assert!(timing.renewal_every() <= one && timing.at_most(three) <= one);
        prop_assert!(timing.longest_notice() <= timing.left_when_due(three).max(timing.left_by_renewal()));
        prop_assert!(timing.warned_below(three) <= one);
        let mut backoff = Backoff::new(one, two);
        for _ in 0..70 {
            prop_assert!(backoff.next(random) <= two);
        }
    }

    #[test]
    fn settings_of_any_size_are_taken_or_refused(
        ttl in times(),
        max_ttl in times(),
        node_timeout in times(),
        connect_timeout in times(),
        lock_ttl in times(),
        max_hold in times(),
        drift in prop_oneof![0.0..=0.5, any::<f64>()],
    ) {
        let builder = Coordinator::builder()
            .custom_nodes(memory_nodes(3))
            .ttl(ttl)
            .max_ttl(max_ttl)
            .node_timeout(node_timeout)
            .connect_timeout(connect_timeout)
            .drift(drift);
        match builder.build() {
            Ok(coordinator) => {
                prop_assert!((0.0..=0.5).contains(&drift) && !node_timeout.is_zero() && ttl <= max_ttl);
                let lock = coordinator.lock("orders/42").ttl(lock_ttl).max_hold(max_hold).wait(Wait::UpTo(ttl));
                prop_assert!(lock.validate().is_err() || lock_ttl <= max_ttl);
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn a_lock_of_any_length_is_held_and_given_back(
        ttl in prop_oneof![Just(Duration::from_secs(10 * 366 * 24 * 3600)), (2..1_u64 << 28).prop_map(Duration::from_secs)],
        hold in times(),
    ) {
        paused(async {
            let bench = bench(3);
            let coordinator = crate::common::another(&bench.clock, &bench.nodes, |builder| {
                builder.max_ttl(ttl).restart_guard(RestartGuard::Off)
            });
            let lock = coordinator.lock("r").ttl(ttl).max_hold(hold.max(Duration::from_secs(1))).wait(Wait::Never);
            let lease = lock.acquire().await.unwrap();
            prop_assert!(lease.check().is_ok());
            lease.release().await.unwrap();
            Ok(())
        })?;
    }

    #[test]
    fn a_lock_of_any_name_is_held_once_and_given_back(
        name in prop_oneof!["\\PC{1,20}", any::<String>(), "[a{}:]{1,6}", "(a|\u{1F512}){1020,1030}"],
    ) {
        paused(async {
            let bench = bench(3);
            let lock = || bench.coordinator.lock(&name).wait(Wait::Never);
            if name.is_empty() || name.len() > Resource::MAX_LEN {
                prop_assert!(lock().acquire().await.is_err());
                return Ok(());
            }
            let lease = lock().acquire().await.unwrap();
            prop_assert!(lock().try_acquire().await.unwrap().is_none(), "two holders");
            // A name with the same hash tag is a different lock.
            let neighbour = format!("{{{name}}}");
            if neighbour.len() <= Resource::MAX_LEN {
                let neighbour = bench.coordinator.lock(&neighbour).wait(Wait::Never);
                neighbour.acquire().await.unwrap().release().await.unwrap();
            }
            lease.release().await.unwrap();
            prop_assert!(bench.nodes.iter().all(|node| node.holder(&name).is_none()), "it is still held");
            Ok(())
        })?;
    }

    #[test]
    fn a_token_of_any_bytes_is_printed_safely_and_releases_only_its_key(
        bytes in prop::collection::vec(any::<u8>(), 1..60),
        at in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        paused(async {
            let node = MemoryNode::new("memory");
            let claim = |bytes: &[u8]| Arc::new(Claim::new("r".into(), Token::found(bytes)));
            let (ours, mut theirs) = (claim(&bytes), bytes.clone());
            theirs[at.index(bytes.len())] ^= 1 << bit;
            let ttl = Duration::from_secs(9);
            let set = Request::Acquire { claim: Arc::clone(&ours), ttl, fence_hint: None };
            prop_assert_eq!(ask(&node, set).await.unwrap().vote, Vote::Granted);

            let seen = ask(&node, Request::inspect("r")).await.unwrap().vote;
            let Vote::Held(holding) = seen else { return Err(TestCaseError::fail("it is held")) };
            prop_assert_eq!(holding.token.as_bytes(), &*bytes);
            let shown = format!("{0} {0:?}", holding.token);
            prop_assert!(!shown.chars().any(char::is_control), "{:?} could move the cursor", shown);

            ask(&node, Request::Release { claim: claim(&theirs) }).await.unwrap();
            prop_assert!(node.holder("r").is_some(), "{:?} released {:?}", theirs, bytes);
            ask(&node, Request::Release { claim: ours }).await.unwrap();
            prop_assert!(node.holder("r").is_none());
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_a_timeout_ends_when_the_lock_is_free() {
    let bench = bench(3);
    let began = bench.clock.now();
    let held = bench.lock().acquire().await.unwrap();
    let next = passing(bench.lock().wait(Wait::UpTo(Duration::MAX)));
    bench.settle().await;
    held.release().await.unwrap();
    next.await.unwrap().unwrap();
    assert!(bench.clock.now().since(began) < crate::common::TTL);
}
