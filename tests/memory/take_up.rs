//! A lock that was offered is taken up, or goes to the next.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use quorlock::node::{Node, NodeError, Request, Responder, Response, SharedRequest, ask};
use quorlock::protocol::take_up_after;
use quorlock::runtime::BoxFuture;
use quorlock::{Builder, Lease};
use quorlock_testkit::{MemoryNode, SkewedClock};

use crate::common::{Bench, MS, VALIDITY, acquiring, another_by_default, bench, client, forever};
use crate::offer::offers;

/// A process that was stopped: nothing polls its future any more. Its connections stay open, so the nodes take it for one
/// that waits.
#[tokio::test(start_paused = true)]
async fn o7_a_first_waiter_that_is_stopped_before_the_release_holds_up_the_next_for_its_offer_alone() {
    let (mut offered, mut longest) = (0, Duration::ZERO);
    for before in (0..40).map(|step| step * 25 * MS) {
        let bench = bench(5);
        bench.delay(5 * MS, 5 * MS);
        let (holder, stops, follows) = (client(&bench), client(&bench), client(&bench));
        let held = forever(&holder).acquire().await.unwrap();
        let lock = forever(&stops);
        let mut stopped = pin!(lock.acquire());
        let stopping = bench.clock.sleep_until(bench.clock.now() + Duration::from_secs(2));
        drop(futures::future::select(stopped.as_mut(), stopping).await);
        // The second in the queue.
        let next = acquiring(forever(&follows));
        let stopping = bench.clock.sleep_until(bench.clock.now() + Duration::from_secs(1));
        drop(futures::future::select(stopped.as_mut(), stopping).await);
        bench.pass(before).await;
        let made = offers(&bench);
        let released = bench.clock.now();
        held.release().await.unwrap();
        drop(next.await.unwrap().unwrap());
        offered += usize::from(offers(&bench) > made);
        longest = longest.max(bench.clock.now().since(released));
    }
    assert!(offered > 5 && longest <= Duration::from_millis(1_500), "{longest:?}, {offered} offers");
}

type Arrived = (Responder, Result<Response, NodeError>);

/// A node whose answers to renewals stay unread until something reads them, as while a task blocks the only thread.
#[derive(Debug, Clone)]
struct Unread {
    node: MemoryNode,
    arrived: Arc<Mutex<Vec<Arrived>>>,
}

impl Node for Unread {
    quorlock::node::forward_node!(self => &self.node; name capabilities listen);

    fn ask(&self, request: SharedRequest, responder: Responder) {
        let renews = matches!(*request, Request::Renew { .. });
        match renews.then(|| ask(&self.node, (*request).clone()).now_or_never()).flatten() {
            Some(answer) => self.arrived.lock().unwrap().push((responder, answer)),
            None => self.node.ask(request, responder),
        }
    }

    fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        let arrived = std::mem::take(&mut *self.arrived.lock().unwrap());
        for (responder, answer) in arrived {
            responder.send(answer);
        }
        self.node.ready()
    }
}

/// Returns a lease from an offer, with the clock and the nodes of its client.
async fn offered(bench: &Bench) -> (Lease, Arc<SkewedClock>, Vec<Unread>) {
    let clock = Arc::new(SkewedClock::new(bench.clock.clone(), 1.0));
    let unread = |node: &MemoryNode| Unread { node: node.clone(), arrived: Arc::default() };
    let nodes: Vec<_> = bench.nodes.iter().map(unread).collect();
    let set = |builder: Builder| builder.custom_nodes(nodes.clone()).clock(clock.clone());
    let (holder, waiter) = (client(bench), another_by_default(&bench.clock, &[], set));
    // Far enough for offers; then answers are there before they are read.
    bench.delay(MS, MS);
    loop {
        let held = forever(&holder).acquire().await.unwrap();
        let waiting = acquiring(forever(&waiter));
        bench.pass(Duration::from_secs(1)).await;
        let made = offers(bench);
        held.release().await.unwrap();
        let lease = waiting.await.unwrap().unwrap();
        if offers(bench) > made {
            bench.delay(Duration::ZERO, Duration::ZERO);
            return (lease, clock, nodes);
        }
        lease.release().await.unwrap();
    }
}

/// How many renewals each node has answered, all the same.
fn unread_renewals(nodes: &[Unread]) -> usize {
    let counts: Vec<_> = nodes.iter().map(|node| node.arrived.lock().unwrap().len()).collect();
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    counts[0]
}

/// Passes the time until the lease is renewed.
async fn until_taken_up(bench: &Bench, lease: &Lease, nodes: &[Unread]) {
    bench.pass(take_up_after(lease.remaining()) + 5 * MS).await;
    assert_eq!(unread_renewals(nodes), 1);
}

fn read_answers(nodes: &[Unread]) {
    for node in nodes {
        drop(node.ready());
    }
}

#[tokio::test(start_paused = true)]
async fn o12_an_offer_is_taken_up_by_a_renewal_after_a_thirtieth_of_what_is_left() {
    let bench = bench(5);
    let (lease, clock, nodes) = offered(&bench).await;
    let left = lease.remaining();
    assert!(left < Duration::from_millis(1_200), "{left:?} are left of the offer");
    bench.pass(take_up_after(left) - 5 * MS).await;
    assert_eq!(unread_renewals(&nodes), 0, "most holders are done by then");
    bench.pass(10 * MS).await;
    assert_eq!(unread_renewals(&nodes), 1);
    read_answers(&nodes);
    // No task has run meanwhile.
    let left = lease.remaining();
    assert!(left > VALIDITY - 100 * MS, "{left:?} are left of a renewal");
    clock.jump_forward(Duration::from_secs(5));
    assert_eq!(lease.check(), Ok(()));
    bench.pass(50 * MS).await;
    assert_eq!(lease.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn o12_i9_answers_that_are_counted_after_the_end_of_an_offer_are_too_late() {
    let bench = bench(5);
    let (lease, clock, nodes) = offered(&bench).await;
    until_taken_up(&bench, &lease, &nodes).await;
    clock.jump_forward(Duration::from_secs(5));
    read_answers(&nodes);
    assert!(lease.check().is_err(), "another client may have held the lock meanwhile");
}

#[tokio::test(start_paused = true)]
async fn o12_i8_an_offer_that_a_minority_has_renewed_ends() {
    let bench = bench(5);
    let (lease, clock, nodes) = offered(&bench).await;
    until_taken_up(&bench, &lease, &nodes).await;
    for node in &nodes[..3] {
        node.arrived.lock().unwrap().clear();
    }
    read_answers(&nodes);
    assert!(lease.remaining() < Duration::from_millis(1_200));
    clock.jump_forward(Duration::from_secs(2));
    assert!(lease.check().is_err(), "two nodes have confirmed");
}

#[tokio::test(start_paused = true)]
async fn o12_a_lease_that_is_released_before_its_offer_is_taken_up_is_never_renewed() {
    let bench = bench(5);
    let (lease, _, nodes) = offered(&bench).await;
    bench.pass(8 * MS).await;
    lease.release().await.unwrap();
    bench.pass(Duration::from_secs(1)).await;
    assert_eq!((bench.keys(), unread_renewals(&nodes)), (0, 0));
}

/// The answers are still on their way.
#[tokio::test(start_paused = true)]
async fn o12_a_lease_that_is_released_before_it_is_confirmed_leaves_no_key() {
    let bench = bench(5);
    let (lease, _, nodes) = offered(&bench).await;
    until_taken_up(&bench, &lease, &nodes).await;
    lease.release().await.unwrap();
    bench.pass(Duration::from_secs(1)).await;
    assert_eq!(bench.keys(), 0);
    read_answers(&nodes);
    bench.pass(Duration::from_secs(1)).await;
    assert_eq!(bench.keys(), 0);
}
