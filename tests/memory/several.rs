//! Several resources together: all of them or none.

mod waiting;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Bench, LATE, MS, TTL, another, bench, client, passing};
use futures::future::join_all;
use quorlock::protocol::{Claim, Token};
use quorlock::{
    AcquireError, ConfigError, Fencing, Lock, LossReason, MultiLock, Owner, Renewal, Wait, WithError,
    node::Expiry, votes::VoteOutcome,
};

const SECOND: Duration = Duration::from_secs(1);

impl Bench {
    fn both(&self) -> MultiLock {
        self.coordinator.lock_all(["a", "b"]).wait(Wait::Never)
    }

    fn one(&self, name: &str) -> Lock {
        self.coordinator.lock(name).wait(Wait::Never)
    }

    /// At how many nodes each of these is locked.
    fn locked<const N: usize>(&self, names: [&str; N]) -> [usize; N] {
        names.map(|name| self.nodes.iter().filter(|node| node.holder(name).is_some()).count())
    }

    fn asked(&self) -> usize {
        self.nodes.iter().map(|node| node.requests().acquire).sum()
    }
}

#[tokio::test(start_paused = true)]
async fn m1_all_are_locked_together_and_exclude_others() {
    let bench = bench(5);
    let lease = bench.both().acquire().await.unwrap();
    assert_eq!((bench.locked(["a", "b"]), lease.resource().as_str()), ([5, 5], "a + b"));
    let other = client(&bench);
    for name in ["a", "b"] {
        let lock = other.lock(name).wait(Wait::Never);
        assert!(lock.try_acquire().await.unwrap().is_none(), "alone");
        assert!(lock.clone().fencing(Fencing::Off).try_acquire().await.unwrap().is_none(), "a plain SET NX");
        assert!(lock.clone().shared().try_acquire().await.unwrap().is_none(), "shared");
        let overlapping = other.lock_all(["0", name, "z"]);
        assert!(overlapping.try_acquire().await.unwrap().is_none(), "together with others");
    }
    bench.settle().await;
    assert_eq!(bench.locked(["0", "z"]), [0, 0], "a refused client holds nothing");
    lease.release().await.unwrap();
    bench.settle().await;
    assert_eq!(bench.locked(["a", "b"]), [0, 0]);
    assert!(other.lock_all(["b", "0"]).try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn m1_one_held_resource_blocks_all_and_is_named_with_its_holder() {
    let bench = bench(5);
    let holder = client(&bench);
    let _held = holder.lock("b").label("nightly").acquire().await.unwrap();
    assert!(bench.both().try_acquire().await.unwrap().is_none());
    bench.settle().await;
    assert_eq!(bench.locked(["a"]), [0], "nothing is held while others are in the way");
    let error = bench.both().wait(Wait::UpTo(SECOND)).acquire().await.unwrap_err();
    let message = error.to_string();
    assert!(message.contains("`a + b` is held at `b` by") && message.contains("nightly"), "{message}");
    let holder = error.report().unwrap().holder().unwrap();
    assert_eq!((holder.key.as_deref(), holder.nodes), (Some("b"), 5));
    assert!(error.report().unwrap().to_string().contains("`b` is held by"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_held_or_dead_minority_blocks_no_client() {
    let bench = bench(5);
    bench.nodes[0].set_data("a", "left behind", Expiry::In(TTL));
    bench.nodes[1].disconnect();
    let lease = bench.both().acquire().await.unwrap();
    bench.pass(TTL * 3).await;
    assert_eq!(lease.check(), Ok(()));
    lease.release().await.unwrap();
    bench.settle().await;
    assert_eq!(bench.locked(["a", "b"]), [0, 0], "the rest has run out");
}

/// Neither lock is held on more than a minority, and yet no client has a quorum of nodes for both.
#[tokio::test(start_paused = true)]
async fn m1_a_quorum_of_nodes_must_have_all_of_them() {
    let bench = bench(5);
    for (node, key) in [(0, "a"), (1, "a"), (2, "b"), (3, "b")] {
        bench.nodes[node].set_data(key, "another client", Expiry::In(TTL));
    }
    assert!(bench.both().try_acquire().await.unwrap().is_none());
    bench.nodes[0].remove("a");
    bench.nodes[2].remove("b");
    assert!(bench.both().try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn one_resource_given_once_or_twice_is_a_plain_lock() {
    let bench = bench(3);
    let once = bench.coordinator.lock_all(["a"]).acquire().await.unwrap();
    assert_eq!(once.resource().as_str(), "a");
    let waiting = passing(bench.coordinator.lock_all(["a", "a"]));
    bench.settle().await;
    once.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    let passed_on: usize = bench.nodes.iter().map(|node| node.requests().transfer).sum();
    assert_eq!(passed_on, 3, "in the same queue as all waiters of this process");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_set_is_refused_before_any_request() {
    let bench = bench(3);
    let many: Vec<String> = (0..65).map(|number| number.to_string()).collect();
    let long = "x".repeat(1025);
    for (lock, says) in [
        (bench.coordinator.lock_all([""; 0]), "a lock of 0 resources"),
        (
            bench.coordinator.lock_all(&many),
            "a lock of 65 resources is not possible; it has between 1 and 64",
        ),
        (bench.coordinator.lock_all(["a", ""]), "a resource name is empty"),
        (bench.coordinator.lock_all(["a", &*long]), "has 1025 bytes"),
    ] {
        let error = lock.validate().unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert!(matches!(lock.acquire().await, Err(AcquireError::Config(_))));
    }
    assert_eq!(bench.asked(), 0);
    drop(bench.coordinator.lock_all(&many[..64]).acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn m2_a_lease_that_is_gone_at_one_resource_is_lost() {
    for gone in ["a", "b"] {
        let bench = bench(5);
        let lease = bench.both().acquire().await.unwrap();
        for node in &bench.nodes[..3] {
            node.remove(gone);
        }
        assert_eq!(lease.lost().await.reason, LossReason::QuorumLost, "{gone}");
        bench.pass(SECOND).await;
        assert_eq!(bench.locked(["a", "b"]), [0, 0], "a lease that is lost leaves nothing");
    }
}

/// Three nodes confirm one key and three the other: no more than one has both.
#[tokio::test(start_paused = true)]
async fn m2_nodes_that_confirm_different_resources_are_no_quorum() {
    let bench = bench(5);
    let lease = bench.both().renewal(Renewal::Manual).acquire().await.unwrap();
    bench.pass(SECOND).await;
    let before = lease.remaining();
    bench.nodes[0].remove("a");
    bench.nodes[1].remove("b");
    bench.nodes[2].disconnect();
    lease.renew().await.unwrap_err();
    assert!(lease.remaining() <= before, "the end has not moved");
    assert_eq!(bench.locked(["a", "b"]), [5, 5], "and yet what was gone stands again");
}

#[tokio::test(start_paused = true)]
async fn m2_a_key_lost_by_a_minority_is_restored_unless_another_holds_it() {
    let bench = bench(5);
    let lease = bench.both().acquire().await.unwrap();
    bench.nodes[0].remove("b");
    bench.nodes[1].remove("a");
    bench.nodes[1].set_data("b", "another client", Expiry::In(TTL * 3));
    bench.pass(TTL / 2).await;
    assert_eq!((lease.check(), bench.locked(["a", "b"])), (Ok(()), [4, 5]), "it renews itself at both");
    assert!(bench.nodes[0].holder("b").is_some_and(|token| token == *lease.token()));
    lease.release().await.unwrap();
    bench.settle().await;
    assert_eq!(bench.locked(["a", "b"]), [0, 1], "another client's key stays");
}

#[tokio::test(start_paused = true)]
async fn m3_an_acquisition_that_is_dropped_at_any_point_leaves_nothing_at_any_resource() {
    for failure in 0..4 {
        for point in 0..140_u32 {
            let bench = bench(5);
            for (index, node) in bench.nodes.iter().enumerate() {
                let spread = MS * 7 * u32::try_from(index).unwrap();
                match failure {
                    0 => node.delay(MS * 3, MS * 3),
                    1 => node.delay(MS * 5 + spread, MS * 11 + spread),
                    2 if index < 3 => node.lose_replies(true),
                    2 => node.delay(spread, spread),
                    _ => node.set_data(["a", "b"][index % 2], "another client", Expiry::In(MS * 90)),
                }
            }
            let acquiring = passing(bench.both().wait(Wait::Forever));
            bench.pass(MS * point).await;
            acquiring.abort();
            bench.pass(MS * 30).await;
            for node in &bench.nodes {
                node.delay(Duration::ZERO, Duration::ZERO);
                node.resume();
            }
            bench.pass(MS * 1_500).await;
            assert_eq!(bench.locked(["a", "b"]), [0, 0], "cut at {point} ms under trouble {failure}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn m3_a_late_request_of_a_dropped_acquire_stores_nothing() {
    let bench = bench(5);
    bench.delay(LATE, MS);
    let acquiring = passing(bench.both());
    bench.pass(MS * 10).await;
    for node in &bench.nodes {
        // What is in the socket is read after what comes over the next connection.
        node.disconnect();
        node.connect();
        node.delay(Duration::ZERO, Duration::ZERO);
    }
    acquiring.abort();
    bench.pass(SECOND).await;
    assert_eq!(bench.locked(["a", "b"]), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn m4_the_token_is_above_every_earlier_and_below_every_later_one() {
    let bench = bench(5);
    // The locks come from nodes that have drawn differently.
    let mut before = Vec::new();
    for (name, ahead) in [("a", 0), ("b", 1), ("b", 2)] {
        for _ in 0..=ahead {
            let lease = bench.one(name).acquire().await.unwrap();
            before.push(lease.fencing_token());
            lease.release().await.unwrap();
        }
    }
    bench.nodes[0].disconnect();
    let lease = bench.one("a").acquire().await.unwrap();
    before.push(lease.fencing_token());
    lease.release().await.unwrap();
    bench.nodes[0].connect();
    let both = bench.both().acquire().await.unwrap();
    assert!(before.iter().all(|token| *token < both.fencing_token()), "{before:?}");
    let carried = |name| {
        bench.nodes.iter().filter(|node| node.fencing_token(name) == Some(both.fencing_token())).count()
    };
    assert!(carried("a") >= 3 && carried("b") >= 3, "a quorum carries it at each");
    let token = both.fencing_token();
    both.release().await.unwrap();
    for name in ["a", "b"] {
        assert!(bench.one(name).acquire().await.unwrap().fencing_token() > token);
    }
}

#[tokio::test(start_paused = true)]
async fn m4_a_number_few_nodes_have_drawn_is_written_back_per_resource() {
    let bench = bench(3);
    let counter = quorlock::protocol::fence_counter("", "b");
    let ahead = u64::try_from((bench.clock.wall() + SECOND).as_micros()).unwrap();
    bench.nodes[1].set_data(&counter, ahead, Expiry::In(TTL));
    bench.nodes[2].delay(LATE, LATE);
    let both = bench.both().acquire().await.unwrap();
    let written: usize = bench.nodes.iter().map(|node| node.requests().write_back).sum();
    assert!(written > 0, "the nodes drew different numbers");
    for node in &bench.nodes[..2] {
        assert_eq!([node.fencing_token("a"), node.fencing_token("b")], [Some(both.fencing_token()); 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_reenters_the_same_set_in_any_order() {
    let bench = bench(3);
    let me = Owner::new();
    let outer = bench.coordinator.lock_all(["a", "b"]).owner(&me).acquire().await.unwrap();
    let inner = bench.coordinator.lock_all(["b", "a"]).owner(&me).try_acquire().await.unwrap().unwrap();
    assert_eq!(inner.fencing_token(), outer.fencing_token());
    outer.release().await.unwrap();
    assert_eq!(bench.locked(["a", "b"]), [3, 3]);
    inner.release().await.unwrap();
    bench.settle().await;
    assert_eq!(bench.locked(["a", "b"]), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_refused_what_it_holds_together_with_others() {
    let bench = bench(3);
    let (me, other) = (Owner::new(), Owner::new());
    let all = |names: &[&str]| bench.coordinator.lock_all(names).wait(Wait::Forever);
    for (held, wanted) in [
        (&["a", "b"][..], &["b"][..]),
        (&["a", "b"], &["b", "c"]),
        (&["b"], &["a", "b"]),
        (&["a", "b", "c"], &["a", "b"]),
    ] {
        let lease = all(held).owner(&me).renewal(Renewal::Manual).acquire().await.unwrap();
        let error = all(wanted).owner(&me).acquire().await.unwrap_err();
        let resource = lease.resource().clone();
        assert_eq!(error, AcquireError::Config(ConfigError::Overlap { held: resource }));
        assert!(
            all(wanted).owner(&other).try_acquire().await.unwrap().is_none(),
            "another owner is only refused"
        );
        all(&["1:a1:b"]).owner(&me).acquire().await.unwrap().release().await.unwrap();
        bench.pass(TTL * 2).await;
        drop(all(wanted).owner(&me).acquire().await.expect("the owner has lost it"));
    }
}

#[tokio::test(start_paused = true)]
async fn work_under_several_locks_runs_without_fencing() {
    let bench = bench(5);
    let lock = bench.both().fencing(Fencing::Off);
    lock.with(async |lease| {
        assert_eq!((bench.locked(["a", "b"]), lease.fencing_token()), ([5, 5], None));
        bench.pass(TTL * 2).await;
        lease.check()?;
        Ok::<_, WithError>(())
    })
    .await
    .unwrap();
    bench.settle().await;
    assert!(bench.nodes.iter().all(|node| node.keys().is_empty()), "not even a counter is left");
}

#[tokio::test(start_paused = true)]
async fn an_inspection_names_holders_and_a_revocation_takes_all() {
    let bench = bench(5);
    let wide = bench.coordinator.lock_all(["0", "a", "b"]);
    assert_eq!(wide.inspect().await.unwrap().holder(), None);
    let lease = bench.both().acquire().await.unwrap();
    let report = wide.inspect().await.unwrap();
    let holder = report.holder().unwrap();
    assert_eq!((holder.key.as_deref(), &holder.token, holder.nodes), (Some("a"), lease.token(), 5));
    let report = client(&bench).lock_all(["a", "b"]).revoke(&holder.token).await.unwrap();
    assert!(report.votes().iter().all(|vote| vote.outcome == VoteOutcome::Granted), "{report}");
    assert_eq!(bench.locked(["a", "b"]), [0, 0]);
    assert_eq!(lease.lost().await.reason, LossReason::QuorumLost);
    bench.pass(SECOND).await;
    assert_eq!(bench.locked(["a", "b"]), [0, 0], "no renewal has stored it again");
}

/// By a client that knows only one of them.
#[tokio::test(start_paused = true)]
async fn a_lease_revoked_on_one_resource_is_lost_on_all() {
    for name in ["a", "b"] {
        let bench = bench(5);
        let lease = bench.both().acquire().await.unwrap();
        client(&bench).lock(name).revoke(lease.token()).await.unwrap();
        assert_eq!(lease.lost().await.reason, LossReason::QuorumLost);
        assert_eq!(bench.locked([name]), [0]);
        bench.pass(SECOND).await;
        assert_eq!(bench.locked(["a", "b"]), [0, 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn two_prefixes_are_independent_and_the_blocking_key_has_its_own() {
    let bench = bench(3);
    let prefixed = another(&bench.clock, &bench.nodes, |builder| builder.key_prefix("app:"));
    let _held = bench.both().acquire().await.unwrap();
    let lease = prefixed.lock_all(["a", "b"]).acquire().await.unwrap();
    assert_eq!(bench.locked(["app:a", "app:b"]), [3, 3]);
    let error = prefixed.lock_all(["b", "c"]).wait(Wait::UpTo(MS)).acquire().await.unwrap_err();
    assert!(error.to_string().contains("held at `app:b`"), "{error}");
    drop(lease);
}
