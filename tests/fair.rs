//! Fair order between processes: by ticket, best effort.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{TTL, another, bench};
use quorlock::protocol::{Claim, Moment, Ticket, Token};
use quorlock::{Clock, Coordinator, Expiry, Lock, Request, Sleep, Wait, ask};

const MS: Duration = Duration::from_millis(1);

/// A client's clock whose calendar goes with the paused time.
#[derive(Debug)]
struct Calendar(Arc<dyn Clock>);

impl Clock for Calendar {
    fn now(&self) -> Moment {
        self.0.now()
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        self.0.sleep_until(moment)
    }

    fn wall(&self) -> Duration {
        Duration::from_secs(1_700_000_000) + self.0.now().since(Moment::ORIGIN)
    }
}

fn fair(coordinator: &Coordinator) -> Lock {
    coordinator.lock("r").ttl(TTL).wait(Wait::Forever).fair()
}

fn client(bench: &common::Bench) -> Coordinator {
    another(&bench.clock, &bench.nodes, |builder| builder.clock(Calendar(bench.clock.clone())))
}

#[tokio::test(start_paused = true)]
async fn processes_are_served_in_the_order_they_came() {
    let bench = bench(5);
    for node in &bench.nodes {
        node.delay(Duration::from_millis(1), Duration::from_millis(1));
    }
    let first = fair(&client(&bench)).acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..8 {
        let (lock, order, clock) = (fair(&client(&bench)), order.clone(), bench.clock.clone());
        waiting.push(tokio::spawn(async move {
            let lease = lock.acquire().await.unwrap();
            order.lock().unwrap().push(number);
            clock.sleep_until(clock.now() + Duration::from_millis(3)).await;
            lease.release().await.unwrap();
        }));
        bench.pass(Duration::from_millis(20)).await;
    }
    first.release().await.unwrap();
    for task in waiting {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..8).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_leaves_the_line() {
    let bench = bench(5);
    let first = fair(&client(&bench)).acquire().await.unwrap();
    let impatient = fair(&client(&bench)).wait(Wait::UpTo(Duration::from_secs(1)));
    let (gave_up, ()) = tokio::join!(impatient.acquire(), bench.pass(Duration::from_millis(10)));
    assert!(gave_up.is_err());
    let lock = fair(&client(&bench));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    bench.pass(Duration::from_millis(100)).await;
    let before = bench.clock.now();
    first.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    assert!(
        bench.clock.now().since(before) <= Duration::from_millis(200),
        "nobody waits for one who has left"
    );
}

#[tokio::test(start_paused = true)]
async fn waiters_that_died_hold_the_others_up_for_little_more_than_a_second() {
    let bench = bench(5);
    let first = fair(&client(&bench)).acquire().await.unwrap();
    for dead in 1..=3 {
        join(&bench, Ticket::new(1, dead)).await;
    }
    let lock = fair(&client(&bench));
    let next = tokio::spawn(async move { lock.acquire().await });
    bench.pass(Duration::from_millis(10)).await;
    let before = bench.clock.now();
    first.release().await.unwrap();
    drop(next.await.unwrap().unwrap());
    let held_up = bench.clock.now().since(before);
    assert!(held_up >= Duration::from_secs(1) && held_up <= Duration::from_millis(1_500), "{held_up:?}");
}

/// Somebody who is refused at a node while it was on its way to winning elsewhere is in the line there for a
/// moment more: whoever came behind it was told nothing when it left, and found out by the next heartbeat.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_one_who_leaves_hears_of_that_while_the_lock_is_free() {
    let bench = bench(5);
    let first = fair(&client(&bench)).acquire().await.unwrap();
    let ticket = Ticket::new(1, 1);
    join(&bench, ticket).await;
    let lock = fair(&client(&bench));
    let next = tokio::spawn(async move { lock.acquire().await });
    bench.pass(10 * MS).await;
    first.release().await.unwrap();
    bench.pass(10 * MS).await;
    assert!(!next.is_finished(), "somebody else comes first");
    let before = bench.clock.now();
    for node in &bench.nodes {
        ask(node, Request::LeaveLine { key: "r".into(), ticket }).await.unwrap();
    }
    drop(next.await.unwrap().unwrap());
    let held_up = bench.clock.now().since(before);
    assert!(held_up < 10 * MS, "{held_up:?}");
}

/// Somebody who joins the line at all nodes, and never asks again.
async fn join(bench: &common::Bench, ticket: Ticket) {
    let claim = Arc::new(Claim::new("r".into(), Token::new(1, "dead")));
    for node in &bench.nodes {
        let (claim, patience) = (claim.clone(), Duration::from_secs(6));
        drop(ask(node, Request::AcquireInTurn { claim, ttl: TTL, ticket, patience, fence_hint: None }).await);
    }
}

#[tokio::test(start_paused = true)]
async fn fairness_waits_for_other_libraries_like_any_lock() {
    let bench = bench(3);
    for node in &bench.nodes {
        node.set_data("r", "another library's token", Expiry::In(Duration::from_secs(2)));
    }
    let before = bench.clock.now();
    let _lease = fair(&client(&bench)).acquire().await.unwrap();
    assert!(bench.clock.now().since(before) >= Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_asks_once_leaves_nothing_in_the_line() {
    let bench = bench(5);
    let first = fair(&client(&bench)).acquire().await.unwrap();
    let poller = fair(&client(&bench));
    assert!(poller.try_acquire().await.unwrap().is_none());
    first.release().await.unwrap();
    bench.settle().await;
    let before = bench.clock.now();
    let second = fair(&client(&bench)).acquire().await.unwrap();
    assert!(bench.clock.now().since(before) < MS, "nobody is in front of it");
    second.release().await.unwrap();
    assert!(poller.try_acquire().await.unwrap().is_some(), "nor does it stand in its own way");
}

/// A client that is refused for good while it waits.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_ends_with_an_error_leaves_the_line() {
    let bench = bench(5);
    let first = fair(&client(&bench)).acquire().await.unwrap();
    let closing = client(&bench);
    let waiting = tokio::spawn({
        let lock = fair(&closing);
        async move { lock.acquire().await }
    });
    bench.pass(10 * MS).await;
    closing.close(MS).await;
    assert!(waiting.await.unwrap().is_err());
    first.release().await.unwrap();
    bench.settle().await;
    let before = bench.clock.now();
    let _second = fair(&client(&bench)).acquire().await.unwrap();
    assert!(bench.clock.now().since(before) < MS, "nobody is in front of it");
}

#[tokio::test(start_paused = true)]
async fn a_winner_leaves_the_line_at_nodes_that_refused_it() {
    let bench = bench(5);
    for node in &bench.nodes[3..] {
        node.set_data("r", "another library's token", Expiry::In(500 * MS));
    }
    let lease = fair(&client(&bench)).acquire().await.unwrap();
    bench.pass(600 * MS).await;
    lease.release().await.unwrap();
    bench.pass(100 * MS).await;
    bench.nodes[0].disconnect();
    let before = bench.clock.now();
    let _next = fair(&client(&bench)).acquire().await.unwrap();
    assert!(bench.clock.now().since(before) < 100 * MS, "four nodes are free, and nobody else waits");
}
