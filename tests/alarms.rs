//! One timer for all leases of a coordinator.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use common::{bench, bench_with};
use futures::future::join_all;
use quorlock::protocol::Moment;
use quorlock::{Clock, Sleep};
use quorlock_testkit::TokioClock;

/// Counts the waits that go on.
#[derive(Clone, Debug)]
struct Counting {
    clock: TokioClock,
    sleeping: Arc<AtomicUsize>,
}

impl Clock for Counting {
    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        self.sleeping.fetch_add(1, Ordering::Relaxed);
        Box::pin(Counted { sleep: self.clock.sleep_until(moment), sleeping: self.sleeping.clone() })
    }
}

struct Counted {
    sleep: Sleep,
    sleeping: Arc<AtomicUsize>,
}

impl Future for Counted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.sleep.as_mut().poll(context)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.sleeping.fetch_sub(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_leases_wait_for_one_timer_and_are_all_renewed() {
    let clock = Counting { clock: TokioClock::new(), sleeping: Arc::default() };
    let bench = bench_with(5, |builder| builder.clock(clock.clone()));
    let locks: Vec<_> = (0..100).map(|number| bench.coordinator.lock(format!("r{number}"))).collect();
    let leases = join_all(locks.iter().map(|lock| async { lock.acquire().await.unwrap() })).await;
    for _ in 0..3 {
        bench.pass(common::TTL).await;
        let sleeping = clock.sleeping.load(Ordering::Relaxed);
        assert!(sleeping <= 1, "{sleeping} timers for {} leases", leases.len());
        assert!(leases.iter().all(|lease| lease.check().is_ok()), "all of them are renewed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_due_before_the_others_is_renewed_in_time() {
    let bench = bench(5);
    let long = bench.coordinator.lock("long").acquire().await.unwrap();
    let short = bench.coordinator.lock("short").ttl(Duration::from_millis(600)).acquire().await.unwrap();
    for _ in 0..30 {
        bench.pass(Duration::from_millis(100)).await;
        assert_eq!(short.check(), Ok(()));
    }
    assert_eq!(long.check(), Ok(()));
}
