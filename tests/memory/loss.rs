//! Loss: reported by the end of validity, in three ways, regardless of the network.

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{MS, TTL, VALIDITY, another, bench, suspendable};
use anyhow::Context as _;
use futures::poll;
use quorlock::protocol::Moment;
use quorlock::{
    AcquireError, Coordinator, LossReason, Lost, Renewal, Wait, WithError,
    node::Expiry,
    runtime::{Clock, Sleep},
};
use quorlock_testkit::{MemoryNode, SkewedClock, memory_nodes_on};

#[tokio::test(start_paused = true)]
async fn loss_is_announced_by_the_deadline_with_all_nodes_silent() {
    let bench = bench(5);
    let start = bench.clock.now();
    let lease = bench.lock().acquire().await.unwrap();
    for node in &bench.nodes {
        node.hang();
    }
    let lost = lease.lost().await;
    assert_eq!(lost.reason, LossReason::Expired);
    let reported = bench.clock.now().since(start);
    // Timers fire late: one set for the deadline would report the loss after it.
    assert_eq!(reported, VALIDITY - Duration::from_millis(2));
    assert!(lease.check().is_err(), "check reports the same");
}

#[tokio::test(start_paused = true)]
async fn after_a_loss_with_all_nodes_silent_it_is_unknown_who_holds_the_lock() {
    let bench = bench(3);
    let lease = bench.lock().acquire().await.unwrap();
    bench.nodes.iter().for_each(MemoryNode::hang);
    assert_eq!(lease.lost().await.reason, LossReason::Expired);
    // The keeper sees the end later than the holder.
    let lock = bench.coordinator.lock("r").ttl(TTL);
    let waiting = lock.clone().wait(Wait::UpTo(MS));
    let (asked, at_the_end) = tokio::join!(lock.try_acquire(), waiting.acquire());
    assert!(matches!(asked, Err(AcquireError::Unavailable { .. })), "{asked:?}");
    assert!(matches!(at_the_end, Err(AcquireError::Unavailable { .. })), "{at_the_end:?}");
}

#[tokio::test(start_paused = true)]
async fn check_needs_no_timer_and_no_task() {
    let bench = bench(3);
    let (clock, client) = suspendable(&bench);
    let lease = client.lock("r").ttl(TTL).acquire().await.unwrap();
    clock.jump_forward(VALIDITY + Duration::from_millis(1));
    // No await since the suspend: the lease detects it without a timer.
    assert_eq!(lease.check().unwrap_err().reason, LossReason::Expired);
    assert_eq!(lease.remaining(), Duration::ZERO);
}

/// The runtime's timers do not advance during it.
#[tokio::test(start_paused = true)]
async fn a_watcher_sees_the_loss_within_a_second_of_resuming() {
    let bench = bench(3);
    let (clock, client) = suspendable(&bench);
    let lease = client.lock("r").ttl(TTL).acquire().await.unwrap();
    let watch = lease.watch();
    let watching = tokio::spawn(async move { watch.lost().await });
    bench.settle().await;
    clock.jump_forward(TTL);
    bench.pass(Duration::from_millis(1_010)).await;
    assert!(watching.is_finished(), "it sleeps until the timer set before the suspend");
}

#[tokio::test(start_paused = true)]
async fn a_resumed_machine_does_not_renew_an_expired_lease() {
    let bench = bench(3);
    let (clock, client) = suspendable(&bench);
    let lease = client.lock("r").ttl(TTL).acquire().await.unwrap();
    clock.jump_forward(TTL);
    bench.pass(TTL).await;
    assert!(lease.check().is_err());
    assert!(bench.nodes.iter().all(|node| node.requests().renew == 0), "no renewal was sent");
}

#[tokio::test(start_paused = true)]
async fn work_under_a_lock_stops_when_the_lease_is_lost() {
    let bench = bench(5);
    let lock = bench.lock();
    let (clock, start) = (bench.clock.clone(), bench.clock.now());
    let work = lock.with(async |_lease| {
        clock.sleep_until(clock.now() + TTL * 10).await;
        Ok::<_, WithError>("done")
    });
    let (outcome, ()) = tokio::join!(work, async {
        bench.settle().await;
        for node in &bench.nodes {
            node.hang();
        }
    });
    assert!(matches!(outcome, Err(WithError::Lost(Lost { reason: LossReason::Expired, .. }))), "{outcome:?}");
    let stopped = bench.clock.now().since(start);
    assert!(stopped <= VALIDITY, "stopped after {stopped:?}");
}

#[tokio::test(start_paused = true)]
async fn work_ending_after_the_lease_is_not_called_protected() {
    let bench = bench(3);
    let (clock, client) = suspendable(&bench);
    let outcome = client
        .lock("r")
        .with(async |_lease| {
            // Blocks past the end without letting any timer fire.
            clock.jump_forward(TTL * 2);
            Ok::<_, WithError>(7)
        })
        .await;
    assert!(matches!(outcome, Err(WithError::Lost(_))), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn work_ending_after_the_loss_did_not_run_under_it() {
    let bench = bench(3);
    let (clock, client) = suspendable(&bench);
    let lease = client.lock("r").ttl(TTL).acquire().await.unwrap();
    let outcome = lease.run_until_lost(async { clock.jump_forward(TTL) }).await;
    assert_eq!(outcome.unwrap_err().reason, LossReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn work_that_fails_gives_the_lock_back_and_its_error_is_not_masked() {
    let bench = bench(3);
    let outcome = bench.lock().with(async |_lease| Err::<(), _>(WithError::Work("out of paper"))).await;
    assert_eq!(outcome, Err(WithError::Work("out of paper")));
    bench.settle().await;
    assert_eq!(bench.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn work_that_panics_gives_the_lock_back() {
    let bench = bench(3);
    let lock = bench.lock();
    let task = tokio::spawn(async move {
        lock.with(async |_lease| -> Result<(), WithError> { panic!("the work panics") }).await
    });
    assert!(task.await.unwrap_err().is_panic());
    bench.settle().await;
    assert_eq!(bench.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn watchers_learn_of_a_release_and_cannot_undo_it() {
    let bench = bench(3);
    let lease = bench.lock().acquire().await.unwrap();
    let watch = lease.watch();
    let reported = tokio::spawn({
        let watch = watch.clone();
        async move { watch.lost().await }
    });
    lease.release().await.unwrap();
    assert_eq!(reported.await.unwrap().reason, LossReason::Released);
    assert_eq!(watch.check().unwrap_err().reason, LossReason::Released);
}

#[tokio::test(start_paused = true)]
async fn closing_notifies_holders_and_releases_all_leases() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    let waiting = bench.waiting(bench.lock().wait(Wait::Forever)).await;
    bench.coordinator.close(Duration::from_secs(1)).await;
    assert_eq!(lease.check().unwrap_err().reason, LossReason::Closed);
    assert!(lease.renew().await.is_err());
    assert_eq!(bench.keys(), 0, "closing waits until the nodes have confirmed");
    assert_eq!(waiting.await.unwrap().unwrap_err().to_string(), "the coordinator is closed");
    assert!(bench.lock().acquire().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_an_acquire_in_flight() {
    let bench = bench(5);
    bench.delay(Duration::from_millis(5), Duration::from_millis(5));
    let lock = bench.lock();
    let mut acquiring = pin!(lock.acquire());
    assert!(poll!(acquiring.as_mut()).is_pending());
    let closed = async {
        bench.coordinator.close(Duration::from_secs(1)).await;
        bench.keys()
    };
    let (lease, keys) = tokio::join!(acquiring, closed);
    assert_eq!(keys, 0, "closing waits until the nodes have confirmed");
    assert_eq!(lease.unwrap().check().unwrap_err().reason, LossReason::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_clock_within_the_allowance_is_safe_and_beyond_it_is_not() {
    for (rate, safe) in [(0.991, true), (0.95, false)] {
        let bench = bench(3);
        let slow = Arc::new(SkewedClock::new(bench.clock.clone(), rate));
        let client = another(&bench.clock, &bench.nodes, |builder| builder.clock(slow));
        let lease = client.lock("r").ttl(TTL).acquire().await.unwrap();
        for node in &bench.nodes {
            node.lose_replies(true);
        }
        // For the nodes, the lock has just expired.
        bench.pass(TTL).await;
        for node in &bench.nodes {
            node.lose_replies(false);
        }
        assert_eq!(lease.check().is_err(), safe, "a clock at {rate} of real time");
    }
}

/// Timers that fire only when polled, as on a machine that has just resumed.
#[derive(Debug, Default)]
struct LateTimers {
    millis: AtomicU64,
}

impl Clock for LateTimers {
    fn now(&self) -> Moment {
        Moment::since_origin(Duration::from_millis(self.millis.load(Ordering::SeqCst)))
    }

    fn sleep_until(&self, _: Moment) -> Sleep {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_late_release_reports_the_loss_before_any_timer_fires() {
    let late = Arc::new(LateTimers::default());
    let clock: Arc<dyn Clock> = late.clone();
    let nodes = memory_nodes_on(&clock, 3);
    let coordinator = Coordinator::builder().custom_nodes(nodes).clock(clock).ttl(TTL).build().unwrap();
    let [held, lapsed] = ["held", "lapsed"].map(|name| coordinator.lock(name));
    let (held, lapsed) = (held.acquire().await.unwrap(), lapsed.acquire().await.unwrap());
    let before_the_end = u64::try_from(VALIDITY.as_millis()).unwrap() - 1;
    late.millis.store(before_the_end, Ordering::SeqCst);
    held.release().await.unwrap();
    late.millis.store(before_the_end + 1, Ordering::SeqCst);
    assert_eq!(lapsed.release().await.unwrap_err().reason, LossReason::Expired);
}

/// A program's own error type.
#[derive(Debug, PartialEq)]
enum Own {
    Busy,
    Stopped,
    OutOfPaper,
}

impl From<AcquireError> for Own {
    fn from(_: AcquireError) -> Own {
        Own::Busy
    }
}

impl From<Lost> for Own {
    fn from(_: Lost) -> Own {
        Own::Stopped
    }
}

#[tokio::test(start_paused = true)]
async fn work_may_fail_with_any_error_made_from_ours() {
    let bench = bench(3);
    let lock = bench.lock().wait(Wait::Never);
    let paper = || Err::<u32, _>(std::io::Error::other("out of paper"));

    let boxed: Result<u32, Box<dyn Error + Send + Sync>> = lock
        .with(async |lease| {
            lease.check()?;
            Ok(paper()?)
        })
        .await;
    assert!(boxed.unwrap_err().is::<std::io::Error>());
    let any: anyhow::Result<u32> = lock
        .with(async |lease| {
            lease.check()?;
            paper().context("printing")
        })
        .await;
    assert_eq!(format!("{:#}", any.unwrap_err()), "printing: out of paper", "the causes are included");
    let own = lock.with(async |_| paper().map_err(|_| Own::OutOfPaper)).await;
    assert_eq!(own, Err(Own::OutOfPaper));

    bench.settle().await;
    let _held = bench.lock().acquire().await.unwrap();
    let boxed = lock.with(async |_| Ok::<_, Box<dyn Error + Send + Sync>>(())).await;
    assert!(matches!(boxed.unwrap_err().downcast_ref(), Some(AcquireError::Contended { .. })));
    let any = lock.with(async |_| anyhow::Ok(())).await;
    assert!(matches!(any.unwrap_err().downcast_ref(), Some(AcquireError::Contended { .. })));
    assert_eq!(lock.with(async |_| Ok::<_, Own>(())).await, Err(Own::Busy));
}

/// Whether or not a caller of the process takes the lock over.
#[tokio::test(start_paused = true)]
async fn i11_a_release_says_that_the_lease_was_lost_if_too_many_nodes_had_lost_the_key() {
    for (without, lost) in [(1, false), (2, false), (3, true), (5, true)] {
        for (others, follows) in [(false, false), (false, true), (true, false), (true, true)] {
            let bench = bench(5);
            let lease = bench.lock().acquire().await.unwrap();
            let next = if follows {
                Some(bench.waiting(bench.lock().wait(Wait::UpTo(TTL / 10))).await)
            } else {
                None
            };
            // From the last one: the first answers alone are no loss.
            for node in &bench.nodes[5 - without..] {
                node.remove("r");
                if others {
                    node.set_data("r", "another client", Expiry::In(TTL));
                }
            }
            let released = lease.release().await;
            assert_eq!(released.is_err(), lost, "{without} of 5, others {others}: {released:?}");
            assert!(released.err().is_none_or(|lost| lost.reason == LossReason::QuorumLost));
            if let Some(next) = next {
                let next = next.await.unwrap();
                assert_eq!(
                    next.is_ok(),
                    !(others && lost),
                    "{without} of 5, others {others}: the next holder"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_arrives_when_the_key_has_expired_says_nothing_of_a_loss() {
    let bench = bench(3);
    let second = Duration::from_secs(1);
    let lease = bench.lock().ttl(second).renewal(Renewal::Manual).acquire().await.unwrap();
    bench.pass(second * 98 / 100).await;
    bench.delay(second * 3 / 100, Duration::ZERO);
    assert_eq!(lease.release().await, Ok(()), "it was valid until then");
}

/// The renewal stores the keys again, so what ends the lease finds them.
#[tokio::test(start_paused = true)]
async fn i11_a_loss_that_a_renewal_in_flight_has_found_is_reported_by_what_ends_the_lease() {
    for how in ["release", "retain", "pass on"] {
        for lost in [0, 2, 3, 5] {
            let bench = bench(5);
            let lease = bench.lock().acquire().await.unwrap();
            let next = bench.lock().wait(Wait::Forever);
            let next = if how == "pass on" { Some(bench.waiting(next).await) } else { None };
            bench.nodes[5 - lost..].iter().for_each(|node| node.remove("r"));
            bench.delay(MS * 20, MS * 20);
            bench.pass(TTL / 3 + MS * 5).await;
            assert_eq!(bench.nodes[0].requests().renew, 1, "it is in flight");
            let ended = match how {
                "retain" => {
                    lease.retain(Duration::from_secs(60), "").await.map_err(|error| error.to_string())
                }
                _ => lease.release().await.map_err(|error| error.to_string()),
            };
            assert_eq!(ended.is_err(), lost >= 3, "{how}, {lost} of 5 nodes: {ended:?}");
            if let Some(next) = next {
                assert!(next.await.unwrap().is_ok(), "{lost} of 5 nodes: the next holder");
            }
        }
    }
}

/// The next renewal finds the keys that the first has stored again, and would be confirmed.
#[tokio::test(start_paused = true)]
async fn i11_what_a_renewal_has_found_counts_also_when_its_answers_come_after_its_verdict() {
    for without in [2, 3] {
        let bench = bench(5);
        let lease = bench.lock().acquire().await.unwrap();
        bench.nodes[5 - without..].iter().for_each(|node| node.remove("r"));
        bench.nodes[2..].iter().for_each(|node| node.lose_replies(true));
        bench.pass(TTL / 2).await;
        assert!(bench.nodes[0].requests().renew > 1, "the first was not confirmed");
        lease.check().unwrap();
        bench.nodes[2..].iter().for_each(|node| node.lose_replies(false));
        bench.settle().await;
        let lost = lease.check().err().map(|lost| lost.reason);
        assert_eq!(lost, (without == 3).then_some(LossReason::QuorumLost), "{without} of 5");
    }
}
