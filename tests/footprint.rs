//! The memory of a held and renewed lease, and of a waiting task. A separate program, since it counts
//! allocations.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::System;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use quorlock::protocol::Moment;
use quorlock::{
    Coordinator, Lease, RestartGuard, Wait,
    node::{Capabilities, Identity, Node, Request, Responder, Response, SharedRequest, Vote},
    runtime::Clock,
};
use quorlock_testkit::TokioClock;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const COUNT: usize = 2000;
const TTL: Duration = Duration::from_secs(30);
/// Allocator overhead, rounds in flight and the program's own share bring this to 1 KiB.
const MOST: usize = 900;

/// Grants every request and stores nothing: only the library's memory is counted.
#[derive(Debug)]
struct Generous(Arc<Identity>);

impl Node for Generous {
    fn name(&self) -> &str {
        &self.0.id
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::all()
    }

    fn ask(&self, request: SharedRequest, reply: Responder) {
        let number = if let Request::Acquire { fence_hint: Some(fence_hint), .. } = &*request {
            Some(fence_hint.usual())
        } else {
            None
        };
        reply.send(Ok(Response::new(Vote::Granted, self.0.clone()).with_fencing_token(number)));
    }
}

async fn hold(coordinator: &Coordinator, count: usize) -> Vec<Lease> {
    let acquire = async |number| coordinator.lock(format!("orders/{number}")).acquire().await.unwrap();
    join_all((0..count).map(acquire)).await
}

/// The heap bytes allocated in the region, per item.
fn each(region: &Region<'_, System>) -> usize {
    let change = region.change();
    (change.bytes_allocated - change.bytes_deallocated) / COUNT
}

#[tokio::test(start_paused = true)]
async fn a_held_lease_and_a_task_that_waits_take_less_than_a_kilobyte() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let node = |name: &str| Generous(Arc::new(Identity::new(name, Moment::ORIGIN, Duration::ZERO)));
    let nodes = ["a", "b", "c", "d", "e"].map(node);
    let builder = Coordinator::builder().custom_nodes(nodes).clock(clock.clone()).ttl(TTL);
    let coordinator = builder.restart_guard(RestartGuard::Off).build().unwrap();
    drop(hold(&coordinator, 64).await);

    let held = Region::new(COUNTING);
    let leases = hold(&coordinator, COUNT).await;
    clock.sleep_until(clock.now() + TTL / 6).await;
    assert!(each(&held) < MOST, "{} bytes for a lease that was acquired", each(&held));
    clock.sleep_until(clock.now() + TTL * 3).await;
    let lease = each(&held);
    assert!(lease < MOST, "{lease} bytes for one that was renewed");
    assert!(leases.iter().all(|lease| lease.check().is_ok()));

    let waiting = Region::new(COUNTING);
    let wanted = coordinator.lock("orders/0").wait(Wait::Forever);
    let wait = |_| {
        let wanted = wanted.clone();
        tokio::spawn(async move { wanted.acquire().await.map(drop) })
    };
    let tasks: Vec<_> = (0..COUNT).map(wait).collect();
    clock.sleep_until(clock.now() + TTL).await;
    assert!(each(&waiting) < MOST, "{} bytes for a waiting task", each(&waiting));
    assert!(tasks.iter().all(|task| !task.is_finished()));
    println!("{lease} bytes for a lease, {} for a waiting task", each(&waiting));
}
