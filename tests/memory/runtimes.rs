//! Several runtimes with one coordinator, some of them stalled: they exist but are no longer driven,
//! like those whose `block_on` has returned.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::{Either, select};
use futures::{FutureExt as _, poll};
use quorlock::lock::Single;
use quorlock::protocol::Moment;
use quorlock::{
    AcquireError, Coordinator, Fencing, Lease, LossReason, Renewal, Wait,
    runtime::{Clock, Sleep},
};
use quorlock_testkit::{MemoryNode, memory_nodes_on};
use tokio::runtime::{Builder, Runtime};

const TTL: Duration = Duration::from_secs(10);

/// A clock that advances only on request.
#[derive(Clone, Debug)]
struct ByHand {
    inside: Arc<Mutex<(Moment, Vec<Waker>)>>,
}

impl ByHand {
    fn new() -> ByHand {
        let hour = Moment::since_origin(Duration::from_secs(3600));
        ByHand { inside: Arc::new(Mutex::new((hour, Vec::new()))) }
    }

    /// Advances the time by this much, and runs everything that is due here.
    async fn pass(&self, time: Duration) {
        let waiting = {
            let mut inside = self.inside.lock().unwrap();
            inside.0 = inside.0 + time;
            std::mem::take(&mut inside.1)
        };
        waiting.into_iter().for_each(Waker::wake);
        settle().await;
    }
}

/// Nodes in memory answer immediately, so this takes some polls and no time.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

impl Clock for ByHand {
    fn now(&self) -> Moment {
        self.inside.lock().unwrap().0
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        Box::pin(Nap { clock: self.clone(), moment })
    }
}

struct Nap {
    clock: ByHand,
    moment: Moment,
}

impl Future for Nap {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut inside = self.clock.inside.lock().unwrap();
        if inside.0 >= self.moment {
            return Poll::Ready(());
        }
        inside.1.push(context.waker().clone());
        Poll::Pending
    }
}

struct Bench {
    clock: ByHand,
    nodes: Vec<MemoryNode>,
    coordinator: Coordinator,
}

fn bench() -> Bench {
    let clock = ByHand::new();
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let nodes = memory_nodes_on(&shared, 5);
    let builder = Coordinator::builder().custom_nodes(nodes.clone()).clock(clock.clone()).ttl(TTL);
    Bench { clock, nodes, coordinator: builder.build().unwrap() }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

#[test]
fn leases_are_renewed_while_another_runtime_stalls() {
    let Bench { clock, coordinator, .. } = bench();
    let (still, driven) = (runtime(), runtime());
    let idle = still.block_on(coordinator.lock("idle").acquire()).unwrap();
    driven.block_on(async {
        let kept = coordinator.lock("kept").acquire().await.unwrap();
        for tenth in 0..30 {
            clock.pass(TTL / 10).await;
            assert_eq!(kept.check(), Ok(()), "after {tenth} tenths of the TTL");
        }
    });
    assert_eq!(idle.check().unwrap_err().reason, LossReason::Expired, "it was not renewed");
}

#[test]
fn hung_nodes_time_out_while_another_runtime_stalls() {
    let Bench { clock, coordinator, nodes } = bench();
    let (still, driven) = (runtime(), runtime());
    let _idle = still.block_on(coordinator.lock("idle").acquire()).unwrap();
    driven.block_on(async {
        nodes.iter().take(3).for_each(MemoryNode::hang);
        let lock = coordinator.lock("r").wait(Wait::Never);
        let mut asked = pin!(lock.acquire());
        assert!(poll!(asked.as_mut()).is_pending());
        clock.pass(Duration::from_millis(1)).await;
        assert!(poll!(asked.as_mut()).is_pending(), "they may still answer");
        clock.pass(Duration::from_secs(1)).await;
        // Other tasks that might deliver their answers are polled first.
        let Either::Left((outcome, _)) = select(asked, pin!(settle())).await else {
            panic!("the timeout is over");
        };
        assert!(matches!(outcome, Err(AcquireError::Unavailable { .. })), "{outcome:?}");
    });
}

#[test]
fn a_watcher_sees_the_end_of_a_lease_of_a_stalled_runtime() {
    let Bench { clock, coordinator, .. } = bench();
    let (still, driven) = (runtime(), runtime());
    let lease = still.block_on(coordinator.lock("r").acquire()).unwrap();
    driven.block_on(async {
        let mut lost = pin!(lease.lost());
        clock.pass(TTL / 2).await;
        assert!(poll!(lost.as_mut()).is_pending());
        clock.pass(TTL / 2).await;
        let lost = lost.now_or_never().expect("its validity has ended");
        assert_eq!(lost.reason, LossReason::Expired);
    });
}

#[test]
fn leases_of_runtimes_that_are_driven_again_are_renewed_again() {
    let Bench { clock, coordinator, .. } = bench();
    let runtimes = [runtime(), runtime(), runtime()];
    let leases: Vec<_> = (0..3)
        .map(|number| runtimes[number].block_on(coordinator.lock(format!("r{number}")).acquire()).unwrap())
        .collect();
    for _ in 0..30 {
        // Each is driven once in three tenths of a TTL.
        for runtime in &runtimes {
            runtime.block_on(clock.pass(TTL / 10));
        }
        assert!(leases.iter().all(|lease| lease.check().is_ok()), "{leases:?}");
    }
}

#[test]
fn i33_a_lease_of_a_stalled_runtime_is_released_from_another() {
    for drops in [true, false] {
        let Bench { coordinator, nodes, .. } = bench();
        let (still, driven) = (runtime(), runtime());
        let lease = still.block_on(coordinator.lock("r").acquire()).unwrap();
        driven.block_on(async {
            if drops {
                drop(lease);
                settle().await;
            } else {
                lease.release().await.unwrap();
            }
        });
        assert_free(&nodes);
        assert!(driven.block_on(coordinator.lock("r").try_acquire()).unwrap().is_some());
    }
}

#[test]
#[should_panic(expected = "there is no reactor running")]
fn a_question_outside_a_runtime_is_not_answered_by_nodes_that_cannot_connect() {
    drop(bench().coordinator.lock("r").inspect().now_or_never());
}

#[test]
fn a_lease_dropped_outside_a_runtime_is_released_by_its_own() {
    let Bench { coordinator, nodes, .. } = bench();
    let runtime = runtime();
    let lease = runtime.block_on(coordinator.lock("r").acquire()).unwrap();
    drop(lease);
    runtime.block_on(settle());
    assert!(nodes.iter().all(|node| node.holder("r").is_none()));
}

#[test]
fn i20_an_acquire_dropped_outside_a_runtime_is_undone_in_its_own() {
    let Bench { clock, coordinator, nodes } = bench();
    let runtime = runtime();
    let lock = coordinator.lock("r");
    let mut asked = Box::pin(lock.acquire());
    runtime.block_on(async {
        nodes.iter().skip(2).for_each(MemoryNode::hang);
        assert!(poll!(asked.as_mut()).is_pending());
        settle().await;
    });
    // The release is to be sent again when the node is back.
    nodes[0].disconnect();
    drop(asked);
    assert!(nodes[0].holder("r").is_some());
    nodes.iter().for_each(MemoryNode::resume);
    nodes[0].connect();
    for _ in 0..3 {
        runtime.block_on(clock.pass(TTL / 10));
    }
    assert!(nodes.iter().all(|node| node.holder("r").is_none()), "long before its TTL");
}

/// Asserts that no node has a key of that name.
fn assert_free(nodes: &[MemoryNode]) {
    assert!(nodes.iter().all(|node| node.holder("r").is_none()), "a key is left");
}

/// A lease in runtime `two` that was handed off from one in `one`, which was released there.
fn passed(bench: &Bench, fencing: Fencing, one: &Runtime, two: &Runtime) -> Lease<Single, Fencing> {
    let lock = bench.coordinator.lock("r").wait(Wait::Forever).fencing(fencing);
    let first = one.block_on(lock.acquire()).unwrap();
    let mut waiting = Box::pin(lock.acquire());
    assert!(two.block_on(async { poll!(waiting.as_mut()) }).is_pending());
    one.block_on(first.release()).unwrap();
    two.block_on(waiting).unwrap()
}

/// For three TTLs, until it is released.
async fn is_renewed<F>(bench: &Bench, lease: Lease<Single, F>, case: String) {
    for tenth in 0..30 {
        bench.clock.pass(TTL / 10).await;
        assert_eq!(lease.check(), Ok(()), "after {tenth} tenths of the TTL, {case}");
    }
    lease.release().await.unwrap();
}

#[test]
fn i32_a_lease_that_came_from_another_runtime_lives_in_that_of_its_holder() {
    for fencing in [Fencing::On, Fencing::Off] {
        for ends in [true, false] {
            let bench = bench();
            let (one, two) = (runtime(), runtime());
            let lease = passed(&bench, fencing, &one, &two);
            let still = (!ends).then_some(one);
            two.block_on(is_renewed(&bench, lease, format!("{fencing:?}, ends: {ends}")));
            assert_free(&bench.nodes);
            drop(still);
        }
    }
}

#[test]
fn i32_a_lease_that_its_holder_renews_from_another_runtime_lives_there_if_its_own_is_not_driven() {
    for ends in [true, false] {
        let bench = bench();
        let (one, two) = (runtime(), runtime());
        let lease = one.block_on(bench.coordinator.lock("r").acquire()).unwrap();
        let still = (!ends).then_some(one);
        two.block_on(async {
            bench.clock.pass(TTL / 2).await;
            lease.renew().await.unwrap();
            is_renewed(&bench, lease, format!("ends: {ends}")).await;
        });
        assert_free(&bench.nodes);
        drop(still);
    }
}

/// The connections may belong to another runtime, which may be blocked soon.
#[test]
fn i32_a_lease_stays_in_the_runtime_of_its_holder_when_a_node_says_elsewhere_that_its_key_has_changed() {
    let bench = bench();
    let (one, two) = (runtime(), runtime());
    let lease = one.block_on(async {
        let lease = bench.coordinator.lock("r").acquire().await.unwrap();
        bench.clock.pass(TTL / 2).await;
        lease
    });
    two.block_on(async {
        bench.nodes[0].remove("r");
        settle().await;
    });
    one.block_on(async {
        settle().await;
        assert!(bench.nodes[0].holder("r").is_some(), "it was renewed early");
        is_renewed(&bench, lease, "hinted".into()).await;
    });
    assert_free(&bench.nodes);
}

#[test]
fn i32_a_lease_stays_in_the_runtime_of_its_holder_when_nodes_answer_elsewhere_while_that_is_busy() {
    let bench = bench();
    let (one, two) = (runtime(), runtime());
    let lease = one.block_on(bench.coordinator.lock("r").acquire()).unwrap();
    bench.nodes.iter().for_each(MemoryNode::hang);
    one.block_on(bench.clock.pass(TTL / 3));
    two.block_on(async {
        bench.clock.pass(Duration::from_millis(500)).await;
        bench.nodes.iter().for_each(MemoryNode::resume);
        settle().await;
    });
    assert!(lease.remaining() > TTL / 2, "it was renewed, and its runtime has seen nothing of that");
    one.block_on(is_renewed(&bench, lease, "busy".into()));
    assert_free(&bench.nodes);
}

/// Nothing drives the task that waits for the verdict: neither its runtime, nor a coordinator that knows of another one.
#[test]
fn a_renewal_whose_task_has_gone_is_joined_by_the_next_one_and_loses_no_caller() {
    let bench = bench();
    let (one, two) = (runtime(), runtime());
    let lease = one.block_on(bench.coordinator.lock("r").acquire()).unwrap();
    bench.nodes.iter().for_each(MemoryNode::hang);
    let mut first = Box::pin(lease.renew());
    one.block_on(async { assert!(poll!(first.as_mut()).is_pending()) });
    let Bench { coordinator, nodes, .. } = bench;
    drop((coordinator, one));
    nodes.iter().for_each(MemoryNode::resume);
    let (first, second) = two.block_on(async { futures::join!(first, lease.renew()) });
    assert_eq!((first, second), (Ok(()), Ok(())));
    two.block_on(lease.release()).unwrap();
    assert_free(&nodes);
}

#[test]
fn i33_a_lease_of_a_stalled_or_ended_runtime_is_released_elsewhere() {
    for ends in [true, false] {
        for drops in [true, false] {
            let bench = bench();
            let (first, driven) = (runtime(), runtime());
            let lock = bench.coordinator.lock("r").wait(Wait::Forever);
            let lease = first.block_on(lock.acquire()).unwrap();
            let mut waiting = Box::pin(lock.acquire());
            driven.block_on(async {
                assert!(poll!(waiting.as_mut()).is_pending());
                settle().await;
            });
            let still = (!ends).then_some(first);
            driven.block_on(async {
                if drops {
                    drop(lease);
                } else {
                    let mut release = Box::pin(lease.release());
                    settle_with(&mut release).await.expect("it does not hang").unwrap();
                }
                let next = settle_with(&mut waiting).await.expect("the next waiter acquires").unwrap();
                for _ in 0..30 {
                    bench.clock.pass(TTL / 10).await;
                    assert_eq!(next.check(), Ok(()), "ends: {ends}, drops: {drops}");
                }
                next.release().await.unwrap();
            });
            assert_free(&bench.nodes);
            drop(still);
        }
    }
}

/// Polls a few times, without advancing the time, and returns the output if it is ready.
async fn settle_with<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    for _ in 0..100 {
        if let Poll::Ready(output) = poll!(&mut *future) {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

#[test]
fn i33_the_work_of_a_stalled_runtime_is_done_by_another() {
    for ends in [true, false] {
        let bench = bench();
        let (first, driven) = (runtime(), runtime());
        let lock = bench.coordinator.lock("r").wait(Wait::Forever);
        let lease = first.block_on(lock.acquire()).unwrap();
        let mut waiting = Box::pin(lock.acquire());
        assert!(driven.block_on(async { poll!(waiting.as_mut()) }).is_pending());
        // The renewal is in flight when the runtime ends, or stalls.
        bench.nodes.iter().for_each(MemoryNode::hang);
        first.block_on(bench.clock.pass(TTL / 2));
        bench.nodes.iter().for_each(MemoryNode::resume);
        let still = (!ends).then_some(first);
        driven.block_on(async {
            let mut release = Box::pin(lease.release());
            settle_with(&mut release).await.expect("it does not hang").unwrap();
            let next = settle_with(&mut waiting).await.expect("the next waiter acquires").unwrap();
            next.release().await.unwrap();
        });
        assert_free(&bench.nodes);
        drop(still);
    }
}

/// A program may keep the lock alone.
#[test]
fn i33_the_work_of_a_stalled_runtime_is_done_by_another_when_the_coordinator_has_gone() {
    let Bench { coordinator, nodes, .. } = bench();
    let (still, driven) = (runtime(), runtime());
    let lock = coordinator.lock("r").wait(Wait::Forever);
    drop(coordinator);
    drop(still.block_on(lock.acquire()).unwrap());
    driven.block_on(async {
        let mut waiting = Box::pin(lock.acquire());
        let next = settle_with(&mut waiting).await.expect("the lease was dropped").unwrap();
        next.release().await.unwrap();
    });
    assert_free(&nodes);
}

#[test]
fn i33_a_waiter_gets_the_lock_when_an_unrenewed_lease_ends() {
    let bench = bench();
    let (still, driven) = (runtime(), runtime());
    let lock = bench.coordinator.lock("r").renewal(Renewal::Manual).wait(Wait::Forever);
    let lease = still.block_on(lock.acquire()).unwrap();
    let mut waiting = Box::pin(lock.acquire());
    driven.block_on(async {
        assert!(poll!(waiting.as_mut()).is_pending());
        for _ in 0..30 {
            bench.clock.pass(TTL / 10).await;
            if let Poll::Ready(next) = poll!(waiting.as_mut()) {
                assert!(lease.check().is_err());
                next.unwrap().release().await.unwrap();
                return;
            }
        }
        panic!("it waits forever");
    });
}

#[test]
fn a_waiter_gets_the_lock_after_the_runtime_of_its_holder_ends() {
    let Bench { clock, coordinator, nodes } = bench();
    let (first, driven) = (runtime(), runtime());
    let lease = first.block_on(coordinator.lock("r").acquire()).unwrap();
    let lock = coordinator.lock("r").wait(Wait::Forever);
    let mut waiting = [Box::pin(lock.acquire()), Box::pin(lock.acquire())];
    driven.block_on(async {
        for waiting in &mut waiting {
            assert!(poll!(waiting.as_mut()).is_pending());
        }
    });
    drop(first);
    driven.block_on(async {
        for waiting in &mut waiting {
            assert!(settle_with(waiting).await.is_none(), "it is held");
        }
        for _ in 0..20 {
            clock.pass(TTL / 10).await;
            assert_eq!(lease.check(), Ok(()), "renewed by the waiter");
        }
        drop(lease);
        for waiting in &mut waiting {
            settle_with(waiting).await.expect("it is free").unwrap().release().await.unwrap();
        }
    });
    assert_free(&nodes);
}

#[test]
fn a_coordinator_is_closed_from_another_runtime_than_that_of_its_leases() {
    for ends in [true, false] {
        let Bench { coordinator, nodes, .. } = bench();
        let (first, driven) = (runtime(), runtime());
        let lease = first.block_on(coordinator.lock("r").acquire()).unwrap();
        let still = (!ends).then_some(first);
        driven.block_on(async {
            let mut close = Box::pin(coordinator.close(TTL));
            settle_with(&mut close).await.expect("without patience");
        });
        assert_eq!(lease.check().unwrap_err().reason, LossReason::Closed);
        assert_free(&nodes);
        drop(still);
    }
}
