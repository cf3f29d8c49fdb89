//! Fencing tokens: numbers that grow from one holder to the next (docs/fencing.md).

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Acquiring, Bench, LATE, TTL, acquiring, another, bench, client, client_of, suspendable};
use quorlock::protocol::fence_counter;
use quorlock::{
    AcquireError, Coordinator, Fencing, FencingToken, Lock, Owner, Wait,
    node::{Expiry, Node, Response},
    runtime::Clock,
};
use quorlock_testkit::{MemoryNode, SkewedClock, WrappedNode};

/// The coordinator's `max_ttl`, which is 30 s unless set. Half of it is how far clocks may differ.
const MAX_TTL: Duration = Duration::from_secs(30);
/// For how long a restarted node does not vote: `max_ttl` with the allowance for drift.
const QUARANTINE: Duration = Duration::from_millis(30_302);

/// A client whose calendar is wrong.
fn with_calendar(bench: &Bench, set: impl FnOnce(&SkewedClock)) -> Coordinator {
    let clock = SkewedClock::new(bench.clock.clone(), 1.0);
    set(&clock);
    let clock: Arc<dyn Clock> = Arc::new(clock);
    another(&clock, &bench.nodes, |builder| builder)
}

fn lock_of(client: &Coordinator) -> Lock {
    client.lock("r").ttl(TTL).wait(Wait::Never)
}

/// Puts the counter of a node so far ahead of the time.
fn put_ahead(bench: &Bench, node: usize, by: Duration) -> u64 {
    let ahead = u64::try_from((bench.clock.wall() + by).as_micros()).unwrap();
    bench.nodes[node].set_data(&fence_counter("", "r"), ahead, Expiry::In(10 * MAX_TTL));
    ahead
}

fn written_back(bench: &Bench) -> usize {
    bench.nodes.iter().map(|node| node.requests().write_back).sum()
}

/// An attempt whose votes are in, with numbers that differ, and whose write-back is on its way.
async fn writing_back() -> (Bench, Acquiring) {
    let bench = bench(3);
    put_ahead(&bench, 0, MAX_TTL);
    bench.delay(Duration::from_millis(1), Duration::from_millis(1));
    let attempt = acquiring(bench.lock());
    while written_back(&bench) == 0 {
        bench.pass(Duration::from_micros(100)).await;
    }
    (bench, attempt)
}

async fn hold_and_release(lock: &Lock) -> FencingToken {
    let lease = lock.acquire().await.unwrap();
    let fence = lease.fencing_token();
    lease.release().await.unwrap();
    fence
}

#[tokio::test(start_paused = true)]
async fn the_token_grows_with_each_holder_in_one_round_trip() {
    let bench = bench(5);
    let other = client(&bench);
    let mut last = FencingToken::ZERO;
    for _ in 0..10 {
        for client in [&bench.coordinator, &other] {
            let fence = hold_and_release(&lock_of(client)).await;
            assert!(fence > last, "{fence} comes after {last}");
            last = fence;
        }
    }
    assert_eq!(written_back(&bench), 0, "nodes that agree need no second round");
}

#[tokio::test(start_paused = true)]
async fn the_token_survives_renewal_and_reentry() {
    let bench = bench(5);
    let owner = Owner::new();
    let outer = bench.lock().owner(&owner).acquire().await.unwrap();
    let fence = outer.fencing_token();
    bench.pass(5 * TTL).await;
    outer.check().expect("it renews itself");
    let inner = bench.lock().owner(&owner).acquire().await.unwrap();
    assert_eq!([outer.watch().fencing_token(), inner.fencing_token()], [fence; 2]);
    assert_eq!(inner.watch().fencing_token(), fence);
    assert!(format!("{inner:?}").contains(&format!("{fence:?}")), "people see it too");
}

#[tokio::test(start_paused = true)]
async fn each_handoff_in_the_process_draws_a_new_token() {
    let bench = bench(5);
    let lock = bench.lock().wait(Wait::Forever);
    let first = lock.acquire().await.unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { hold_and_release(&lock).await })
        })
        .collect();
    bench.settle().await;
    let mut last = first.fencing_token();
    first.release().await.unwrap();
    for task in waiting {
        let fence = task.await.unwrap();
        assert!(fence > last, "{fence} comes after {last}");
        last = fence;
    }
    assert_eq!(bench.nodes[0].requests().transfer, 3, "the lock was passed on");
}

#[tokio::test(start_paused = true)]
async fn a_handoff_asks_for_a_larger_token() {
    let bench = bench(5);
    put_ahead(&bench, 0, MAX_TTL / 3);
    let lock = bench.lock().wait(Wait::Forever);
    let first = lock.acquire().await.unwrap();
    // Most nodes have fallen behind the token, and so has the clock.
    for node in &bench.nodes[2..] {
        node.remove(&fence_counter("", "r"));
    }
    let next = tokio::spawn(async move { hold_and_release(&lock).await });
    bench.settle().await;
    let (fence, rounds) = (first.fencing_token(), written_back(&bench));
    first.release().await.unwrap();
    assert!(next.await.unwrap() > fence);
    assert_eq!(written_back(&bench), rounds, "all have drawn the same number");
}

#[tokio::test(start_paused = true)]
async fn a_number_few_nodes_have_drawn_is_written_back_before_use() {
    let bench = bench(5);
    let ahead = put_ahead(&bench, 0, MAX_TTL);
    let lease = bench.lock().acquire().await.unwrap();
    let fence = lease.fencing_token();
    assert_eq!(fence.get(), ahead + 2, "the number after the largest of the quorum");
    assert_eq!(written_back(&bench), 5);
    let carry = bench.nodes.iter().filter(|node| node.fencing_token("r") == Some(fence)).count();
    assert!(carry >= 3, "{carry} nodes carry it");
    lease.release().await.unwrap();
    // The next client reaches one of them, even without the node that was ahead.
    bench.nodes[0].disconnect();
    let next = hold_and_release(&bench.lock()).await;
    assert!(next > fence, "{next} comes after {fence}");
}

#[tokio::test(start_paused = true)]
async fn a_number_that_cannot_be_written_back_is_no_lease_and_leaves_no_key() {
    let (bench, attempt) = writing_back().await;
    bench.nodes[1].hang();
    bench.nodes[2].hang();
    let error = attempt.await.unwrap().expect_err("one node carries the number");
    assert!(matches!(error, AcquireError::Unavailable { .. }), "{error}");
    bench.nodes[1].resume();
    bench.nodes[2].resume();
    bench.pass(2 * LATE).await;
    assert_eq!(bench.keys(), 0, "the attempt is taken back");
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_ran_ahead_in_between_does_not_confirm() {
    let (bench, attempt) = writing_back().await;
    // As if the votes of two of them had been drawn late, and not been counted.
    put_ahead(&bench, 1, 2 * MAX_TTL);
    put_ahead(&bench, 2, 2 * MAX_TTL);
    let error = attempt.await.unwrap().expect_err("two nodes would let the number be drawn again");
    assert!(
        error.report().unwrap().to_string().contains("has drawn this fencing token or a larger one"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_refused_client_learns_the_counters() {
    let bench = bench(5);
    for node in &bench.nodes {
        node.set_data("r", "of another program", Expiry::In(Duration::from_secs(2)));
    }
    // A client whose clock is ahead has left numbers on a minority.
    put_ahead(&bench, 0, MAX_TTL / 3);
    let lease = bench.lock().wait(Wait::Forever).acquire().await.unwrap();
    assert!(bench.nodes.iter().all(|node| node.fencing_token("r") == Some(lease.fencing_token())));
    assert_eq!(written_back(&bench), 0, "one round was enough");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_stores_the_key_anew_raises_the_counter() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    bench.nodes[0].restart_empty();
    assert_eq!(bench.nodes[0].fencing_token("r"), None);
    bench.pass(TTL / 2).await;
    assert!(bench.nodes[0].holder("r").is_some(), "the renewal has stored it");
    assert_eq!(bench.nodes[0].fencing_token("r"), Some(lease.fencing_token()));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_delayed_by_half_of_max_ttl_is_released() {
    for (held_up, fencing, carried) in [
        (MAX_TTL / 2 - LATE, Fencing::On, true),
        (MAX_TTL / 2, Fencing::On, false),
        (MAX_TTL / 2, Fencing::Off, true),
    ] {
        let bench = bench(3);
        bench.delay(Duration::from_millis(1), Duration::from_millis(1));
        let (clock, client) = suspendable(&bench);
        let attempt = acquiring(client.lock("r").ttl(MAX_TTL).wait(Wait::Never).fencing(fencing));
        bench.settle().await;
        // As when the machine was suspended, with the votes on their way.
        clock.jump_forward(held_up);
        let got = attempt.await.unwrap();
        assert_eq!(got.is_ok(), carried, "after {held_up:?} with fencing {fencing:?}: {got:?}");
        drop(got);
        bench.pass(2 * LATE).await;
        assert_eq!(bench.keys(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handoff_delayed_by_half_of_max_ttl_is_repeated() {
    let bench = bench(3);
    bench.delay(Duration::from_millis(1), Duration::from_millis(1));
    let (clock, client) = suspendable(&bench);
    let lock = client.lock("r").ttl(MAX_TTL).wait(Wait::Forever);
    let first = lock.acquire().await.unwrap();
    let next = tokio::spawn(async move { hold_and_release(&lock).await });
    bench.settle().await;
    let releasing = tokio::spawn(first.release());
    while bench.nodes[0].requests().transfer == 0 {
        bench.pass(Duration::from_micros(100)).await;
    }
    clock.jump_forward(MAX_TTL / 2);
    next.await.unwrap();
    releasing.await.unwrap().unwrap();
    assert_eq!(bench.nodes[0].requests().acquire, 2, "the number that was drawn came too late");
}

#[tokio::test(start_paused = true)]
async fn the_number_of_a_node_in_quarantine_does_not_count() {
    let bench = bench(5);
    bench.nodes[0].restart_empty();
    let ahead = put_ahead(&bench, 0, MAX_TTL);
    let fence = hold_and_release(&bench.lock()).await;
    assert!(fence.get() < ahead && written_back(&bench) == 0, "the others agree on {fence}");
}

/// A custom node without fencing.
fn unnumbered(node: MemoryNode) -> WrappedNode {
    WrappedNode::new(node).on_request(|request, responder, inner| {
        let responder =
            responder.map(|answer| answer.map(|answer| Response::new(answer.vote, answer.identity)));
        inner.ask(request, responder);
    })
}

#[tokio::test(start_paused = true)]
async fn nodes_that_draw_no_numbers_grant_no_lock_with_fencing() {
    let bench = bench(3);
    let client = client_of(&bench, bench.nodes.iter().cloned().map(unnumbered));
    let error = lock_of(&client).acquire().await.expect_err("there is no number to hand out");
    assert!(matches!(error, AcquireError::Misconfigured { .. }), "{error:?}");
    assert!(error.to_string().contains("turn fencing off for this lock"), "the cure is named: {error}");
    bench.settle().await;
    assert!(lock_of(&client).fencing(Fencing::Off).try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn without_fencing_the_nodes_store_only_the_lock() {
    let bench = bench(5);
    let lease = bench.lock().fencing(Fencing::Off).acquire().await.unwrap();
    assert_eq!(lease.fencing_token(), None);
    assert_eq!(bench.nodes[0].keys(), ["r"]);
    let other = client(&bench);
    assert!(lock_of(&other).fencing(Fencing::Off).try_acquire().await.unwrap().is_none());
    assert!(lock_of(&other).try_acquire().await.unwrap().is_none(), "the two kinds exclude each other");
    bench.pass(3 * TTL).await;
    lease.check().expect("it renews itself");
    lease.release().await.unwrap();
    assert_eq!(bench.keys(), 0);
}

/// Clocks that are wrong, as long as no node forgets.
mod without_trusting_clocks {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_years_behind_still_draws_larger_numbers() {
        let bench = bench(5);
        let before = hold_and_release(&bench.lock()).await;
        let behind = with_calendar(&bench, |clock| clock.calendar_back(Duration::from_secs(86_400 * 400)));
        let after = hold_and_release(&lock_of(&behind)).await;
        assert_eq!(after.get(), before.get() + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn f7_a_clock_years_ahead_raises_no_counter_beyond_the_time() {
        let bench = bench(5);
        let ahead = with_calendar(&bench, |clock| clock.calendar_forward(Duration::from_secs(86_400 * 400)));
        let fence = hold_and_release(&lock_of(&ahead)).await;
        assert_eq!(u128::from(fence.get()), bench.clock.wall().as_micros() + 1);
    }
}

/// Nodes that lose their counters, and the quarantine after it.
mod after_data_loss {
    use super::*;

    /// Two clients with these calendars: the first acquires, all nodes forget, the second acquires as soon as they may
    /// vote.
    async fn numbers(first: impl FnOnce(&SkewedClock), next: impl FnOnce(&SkewedClock)) -> [FencingToken; 2] {
        let bench = bench(5);
        let (first, next) = (with_calendar(&bench, first), with_calendar(&bench, next));
        let first = hold_and_release(&lock_of(&first)).await;
        for node in &bench.nodes {
            node.restart_empty();
        }
        bench.pass(QUARANTINE).await;
        [first, hold_and_release(&lock_of(&next)).await]
    }

    #[tokio::test(start_paused = true)]
    async fn clocks_that_agree_within_half_of_max_ttl_keep_the_order() {
        let [first, second] = numbers(|clock| clock.calendar_forward(MAX_TTL / 2), |_| ()).await;
        assert!(second > first, "{second} comes after {first}");
    }

    #[tokio::test(start_paused = true)]
    async fn clocks_further_apart_than_the_quarantine_do_not() {
        let [first, second] = numbers(|_| (), |clock| clock.calendar_back(2 * MAX_TTL)).await;
        assert!(second < first, "the bound is needed: {second} comes after {first}");
    }
}

/// The larger number of a node that was reached after the verdict does not count.
#[tokio::test(start_paused = true)]
async fn the_number_of_a_holder_is_reported_also_where_a_late_node_has_drawn_a_larger_one() {
    let bench = bench(5);
    let ahead = put_ahead(&bench, 4, MAX_TTL);
    bench.nodes[4].delay(Duration::from_millis(5), Duration::ZERO);
    let lease = bench.lock().acquire().await.unwrap();
    bench.pass(Duration::from_millis(20)).await;
    assert_eq!(bench.keys(), 5, "the late one has it too");
    bench.nodes[4].delay(Duration::ZERO, Duration::ZERO);
    let report = bench.lock().inspect().await.unwrap();
    let drawn = report.votes()[4].fencing_token.unwrap().get();
    assert!(drawn > ahead && lease.fencing_token().get() < ahead, "{drawn} after {ahead}");
    assert_eq!(report.holder().unwrap().fencing_token, Some(lease.fencing_token()));
}

#[tokio::test(start_paused = true)]
async fn a_lock_without_fencing_is_not_reported_with_the_number_of_an_earlier_holder() {
    let bench = bench(3);
    hold_and_release(&bench.lock()).await;
    let lease = bench.lock().fencing(Fencing::Off).acquire().await.unwrap();
    bench.settle().await;
    let holder = bench.lock().inspect().await.unwrap().holder().unwrap();
    assert_eq!((&holder.token, holder.fencing_token), (lease.token(), None));
}

#[tokio::test(start_paused = true)]
async fn names_used_once_leave_nothing_but_the_counters_of_slots() {
    const SLOTS: usize = 50;
    let bench = bench(3);
    for number in 0..20 * SLOTS {
        let lock =
            bench.coordinator.lock(format!("{{{}}}/{number}", number % SLOTS)).ttl(TTL).wait(Wait::Never);
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    bench.clock.sleep_until(bench.clock.now() + Duration::from_secs(60)).await;
    for node in &bench.nodes {
        assert_eq!(node.keys().len(), SLOTS, "{:?}", node.keys());
    }
}

/// Counters that another program has written to: while a quorum has others, no resource sees such a number, and no other node
/// carries it.
#[tokio::test(start_paused = true)]
async fn f11_a_number_that_no_clock_explains_is_no_vote() {
    let bench = bench(5);
    let century = Duration::from_secs(100 * 365 * 24 * 3600);
    let lock = lock_of(&bench.coordinator);
    for node in 0..2 {
        put_ahead(&bench, node, century);
    }
    let now = u64::try_from((bench.clock.wall() + century / 2).as_micros()).unwrap();
    assert!(hold_and_release(&lock).await.get() < now);
    for node in &bench.nodes[2..] {
        assert!(node.fencing_token("r").unwrap().get() < now, "nothing is written back");
    }
    put_ahead(&bench, 2, century);
    let refused = lock.acquire().await.unwrap_err();
    assert!(refused.to_string().contains("more than ten years ahead of the clock"), "{refused}");
    let held = || bench.nodes.iter().filter(|node| node.holder("r").is_some()).count();
    while held() > 0 {
        bench.pass(Duration::from_millis(1)).await;
    }
}
