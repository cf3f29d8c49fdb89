//! Offers: from holder to holder in one trip, and never to two.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Acquiring, Bench, MS, TTL, VALIDITY, acquiring, another, asked, bench, client, forever};
use futures::FutureExt as _;
use futures::future::join_all;
use quorlock::protocol::{
    Claim, FenceHint, NextWaiter, Token, WaiterId, offer_life, preferred_node, take_up_after, turn_key,
};
use quorlock::{
    Coordinator, Lease,
    node::{Expiry, Request, ask},
    runtime::Clock,
};
use quorlock_testkit::{MemoryNode, SkewedClock};

pub(crate) fn offers(bench: &Bench) -> usize {
    bench.nodes.iter().map(|node| node.requests().offer).sum()
}

/// Nodes from which waiters accept offers: a millisecond there and one back.
fn far() -> Bench {
    let bench = bench(5);
    bench.delay(MS, MS);
    bench
}

/// One release in eight is open, and takes two trips.
#[tokio::test(start_paused = true)]
async fn o1_the_next_waiter_gets_the_lock_one_trip_later() {
    let bench = bench(5);
    bench.delay(5 * MS, 5 * MS);
    let clock = bench.clock.clone();
    let mut held = forever(&client(&bench)).acquire().await.unwrap();
    let (sender, mut next) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..40 {
        let (sender, client) = (sender.clone(), client(&bench));
        tokio::spawn(async move { sender.send(forever(&client).acquire().await.unwrap()).ok() });
        bench.pass(5 * MS).await;
    }
    bench.pass(800 * MS).await;
    let (mut trips, mut number) = (Vec::new(), held.fencing_token());
    for _ in 0..40 {
        let before = clock.now();
        let (released, taken) = tokio::join!(held.release(), next.recv());
        released.unwrap();
        held = taken.unwrap();
        trips.push(clock.now().since(before).as_millis() / 10);
        assert!(held.fencing_token() > number, "{:?} after {number:?}", held.fencing_token());
        number = held.fencing_token();
    }
    let short = trips.iter().filter(|trips| **trips == 1).count();
    assert!(short >= 28 && trips.iter().all(|trips| *trips <= 2), "{trips:?}");
    let before = asked(&bench.nodes);
    assert!(offers(&bench) >= 28 * 5, "{} offers of {before} requests", offers(&bench));
}

/// The fault of the node with the queue.
type Fault = fn(&MemoryNode);

/// Runs clients that ask again immediately after a release. After a third of the grants the `fault`
/// occurs. Returns the times between a release and the next grant, in milliseconds, and the number of
/// requests per grant.
async fn closed_loop(processes: u32, trip: Duration, fault: Fault) -> (Vec<u128>, usize) {
    let bench = bench(5);
    bench.delay(trip / 2, trip / 2);
    let (sender, mut next) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..processes {
        let (sender, client, clock) = (sender.clone(), client(&bench), bench.clock.clone());
        tokio::spawn(async move {
            let lock = forever(&client);
            for _ in 0..20 {
                let lease = lock.acquire().await.unwrap();
                let began = clock.now();
                clock.sleep_until(began + MS).await;
                sender.send((began, clock.now(), number)).unwrap();
                lease.release().await.unwrap();
            }
        });
    }
    drop(sender);
    let mut grants = Vec::new();
    while let Some(grant) = next.recv().await {
        grants.push(grant);
        if grants.len() == processes as usize * 7 {
            fault(&bench.nodes[preferred_node("r", 5)]);
        }
    }
    grants.sort();
    assert!(grants.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two holders");
    let asked = asked(&bench.nodes) / grants.len();
    (grants.windows(2).map(|pair| pair[1].0.since(pair[0].1).as_millis()).collect(), asked)
}

#[tokio::test(start_paused = true)]
async fn contending_processes_get_the_lock_one_trip_apart() {
    for processes in [2, 8, 32] {
        let (gaps, asked) = closed_loop(processes, 20 * MS, |_| {}).await;
        let single = gaps.iter().filter(|gap| **gap <= 22).count();
        let longest = gaps.iter().max().copied().unwrap_or_default();
        // With two clients, the one that released asks again only once the other holds the lock: the
        // next holder is not known.
        let is_good =
            if processes == 2 { longest <= 42 } else { single >= gaps.len() * 3 / 4 && longest <= 82 };
        assert!(is_good && asked <= 11, "{processes}: {asked} requests, {gaps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn contending_processes_get_it_one_trip_apart_without_the_queue_node() {
    let far: Fault = |node| node.delay(60 * MS, 60 * MS);
    for (what, fault, longest) in
        [("gone", MemoryNode::disconnect as Fault, 250), ("hung", MemoryNode::hang, 250), ("far", far, 250)]
    {
        for processes in [2, 8] {
            let (gaps, _) = closed_loop(processes, 20 * MS, fault).await;
            let mut after = gaps[gaps.len() / 3..].to_vec();
            after.sort_unstable();
            let (median, worst) = (after[after.len() / 2], after[after.len() - 1]);
            // Two processes take two trips, as with that node: they release before the next holder is
            // known.
            let most = if processes == 2 { 42 } else { 22 };
            assert!(median <= most && worst <= longest, "{what}, {processes}: {median}, {worst}: {gaps:?}");
        }
    }
}

/// On the first node, the release finds its own token and offers it; on the others it is gone.
fn take_from(bench: &Bench, nodes: std::ops::Range<usize>) {
    for node in &bench.nodes[nodes] {
        node.remove("r");
        node.set_data("r", "another program's token", Expiry::In(TTL));
    }
}

/// A waiter that has enqueued, and that the holder knows of.
async fn waiter(bench: &Bench) -> Acquiring {
    waiter_of(bench, &client(bench)).await
}

/// The same, for a process that stays alive when it stops waiting.
async fn waiter_of(bench: &Bench, client: &Coordinator) -> Acquiring {
    let waiting = acquiring(forever(client));
    bench.pass(Duration::from_secs(1)).await;
    waiting
}

/// Releases until there was an offer: one release in eight is open.
async fn until_offered(bench: &Bench) -> Lease {
    let held = forever(&client(bench)).acquire().await.unwrap();
    until_offered_after(bench, held).await
}

async fn until_offered_after(bench: &Bench, mut held: Lease) -> Lease {
    loop {
        let (waiting, before) = (waiter(bench).await, offers(bench));
        held.release().await.unwrap();
        held = waiting.await.unwrap().unwrap();
        if offers(bench) > before {
            return held;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn o3_o7_an_offered_lease_counts_from_the_request_and_is_renewed() {
    let bench = bench(5);
    bench.delay(10 * MS, 10 * MS);
    let lease = until_offered(&bench).await;
    // The token was new at most an eighth of its life and a heartbeat ago, and the way took one and a half round trips.
    let life = offer_life(TTL, 3 * TTL);
    let (short, long) = (life / 4, life - 30 * MS);
    let left = lease.remaining();
    assert!((short..long).contains(&left), "{left:?} are left of {life:?}");
    bench.pass(take_up_after(left) + 25 * MS).await;
    assert!(lease.remaining() > VALIDITY - 30 * MS, "{:?} are left after a renewal", lease.remaining());
    bench.pass(3 * TTL).await;
    assert_eq!(lease.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn o1_o2_an_offer_of_a_minority_is_released() {
    let bench = far();
    let held = until_offered(&bench).await;
    let waiting = waiter(&bench).await;
    take_from(&bench, 2..5);
    let released = held.release().await;
    bench.pass(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished(), "{released:?}");
    assert!(bench.nodes[..2].iter().all(|node| node.holder("r").is_none()), "it was released");
    for node in &bench.nodes {
        node.remove("r");
    }
    drop(waiting.await.unwrap().unwrap());
}

/// Two addresses of one process.
#[tokio::test(start_paused = true)]
async fn o2_a_process_at_two_addresses_has_one_vote() {
    let bench = far();
    let held = until_offered(&bench).await;
    let waiting = waiter(&bench).await;
    take_from(&bench, 3..5);
    for node in &bench.nodes[..2] {
        node.identify_as("the same");
    }
    drop(held.release().await);
    bench.pass(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished(), "three votes of two processes are none of three");
}

#[tokio::test(start_paused = true)]
async fn o4_a_lease_has_ended_when_an_offer_of_it_is_sent() {
    let bench = bench(5);
    bench.delay(10 * MS, 10 * MS);
    let mut held = until_offered(&bench).await;
    loop {
        let (waiting, before, watch) = (waiter(&bench).await, offers(&bench), held.watch());
        let releasing = tokio::spawn(held.release());
        // The nodes have read the requests, and their answers are on the way.
        bench.pass(12 * MS).await;
        assert!(!releasing.is_finished());
        if offers(&bench) > before {
            assert!(watch.check().is_err(), "it is offered, and goes on");
            return;
        }
        held = waiting.await.unwrap().unwrap();
    }
}

/// Messages held back for a while: an offer that arrives with less than a tenth of its life left is given back.
#[tokio::test(start_paused = true)]
async fn o5_an_offer_that_arrives_too_late_for_a_renewal_is_given_back() {
    let (mut late, mut accepted) = (0, 0);
    let life = offer_life(TTL, 3 * TTL);
    for held_back in (10..24).map(|twentieths| life * twentieths / 20) {
        let bench = far();
        let held = until_offered(&bench).await;
        let (waiting, before) = (waiter(&bench).await, offers(&bench));
        let (cancelled, renewed) = (bench.nodes[0].requests().cancel, bench.nodes[0].requests().renew);
        bench.nodes.iter().for_each(|node| node.lose_replies(true));
        drop(held.release().now_or_never());
        bench.pass(held_back).await;
        assert!(!waiting.is_finished());
        let offered = offers(&bench) > before;
        bench.nodes.iter().for_each(MemoryNode::resume);
        drop(waiting.await.unwrap().unwrap());
        let requests = bench.nodes[0].requests();
        late += usize::from(offered && requests.cancel > cancelled && requests.renew == renewed);
        accepted += usize::from(offered && requests.renew > renewed);
    }
    assert!(late > 0 && accepted > 0, "{late} late, {accepted} accepted");
}

/// The waiter's calendar is behind, and the nodes have forgotten their counters.
#[tokio::test(start_paused = true)]
async fn o10_the_number_of_an_offer_is_above_that_of_its_releaser() {
    let bench = far();
    let clock = Arc::new(SkewedClock::new(bench.clock.clone(), 1.0));
    clock.calendar_back(Duration::from_secs(9));
    let behind: Arc<dyn Clock> = clock;
    let mut held = until_offered(&bench).await;
    loop {
        let waiting = waiter_of(&bench, &another(&behind, &bench.nodes, |builder| builder)).await;
        let (number, before) = (held.fencing_token(), offers(&bench));
        for node in &bench.nodes {
            node.remove(&quorlock::protocol::fence_counter("", "r"));
        }
        held.release().await.unwrap();
        held = waiting.await.unwrap().unwrap();
        if offers(&bench) > before {
            assert!(held.fencing_token() > number, "{:?} after {number:?}", held.fencing_token());
            return;
        }
        held = until_offered_after(&bench, held).await;
    }
}

/// Its process stays alive, or none is left that could receive the offer.
#[tokio::test(start_paused = true)]
async fn o6_an_offer_to_a_waiter_that_left_is_released() {
    for with_its_process in [false, true] {
        let bench = bench(5);
        bench.delay(20 * MS, 20 * MS);
        loop {
            let (held, process) = (until_offered(&bench).await, client(&bench));
            let waiting = waiter_of(&bench, &process).await;
            let before = offers(&bench);
            let ends = async {
                waiting.abort();
                if with_its_process {
                    process.close(TTL).await;
                }
            };
            let (_, ()) = tokio::join!(held.release(), ends);
            bench.pass(200 * MS).await;
            assert_eq!(bench.keys(), 0, "the offer would stay for the TTL");
            if offers(&bench) > before {
                break;
            }
        }
    }
}

/// A waiter whose turn has come asks all nodes; the lock may have gone to another, which offers it
/// meanwhile.
#[tokio::test(start_paused = true)]
async fn an_offer_in_the_turn_of_its_waiter_is_accepted() {
    let bench = bench(5);
    let holder = Arc::new(Claim::new("r".into(), Token::new(7, "db-7:41")));
    let each = async |request: Request| {
        join_all(bench.nodes.iter().map(|node| ask(node, request.clone()))).await.into_iter().for_each(
            |answer| {
                answer.unwrap();
            },
        );
    };
    each(Request::Acquire { claim: holder.clone(), ttl: TTL, fence_hint: None }).await;
    bench.delay(10 * MS, 10 * MS);
    let waiting = waiter(&bench).await;
    let home = &bench.nodes[preferred_node("r", 5)];
    let next = home.accepting("r").pop().unwrap();
    // It asks all nodes, which refuse, and pauses until its turn is over: 85 ms in total.
    home.remove(&turn_key("r", next.waiter));
    bench.pass(45 * MS).await;
    let fence_hint = Some(FenceHint::at(bench.clock.wall(), None, TTL));
    let next = Arc::new(NextWaiter { waiter: WaiterId::new(1), ..next });
    let before = bench.clock.now();
    each(Request::Offer { claim: holder, next, queued: false, fence_hint }).await;
    drop(waiting.await.unwrap().unwrap());
    let took = bench.clock.now().since(before);
    assert!(took <= 25 * MS, "{took:?} for a trip of 20 ms");
}

/// A waiter has seen another program's token, which the holders learn through the node with the queue.
#[tokio::test(start_paused = true)]
async fn o9_a_release_is_open_once_another_program_was_seen() {
    let bench = far();
    for node in &bench.nodes {
        node.set_data("r", "another program's token", Expiry::In(TTL));
    }
    let (seen, unseen) = (client(&bench), client(&bench));
    let waiting = waiter_of(&bench, &seen).await;
    for node in &bench.nodes {
        node.remove("r");
    }
    let mut held = waiting.await.unwrap().unwrap();
    let rounds = async |mut held: Lease| {
        let before = offers(&bench);
        for round in 0..12 {
            let waiting = acquiring(forever(if round % 2 == 0 { &unseen } else { &seen }));
            bench.pass(60 * MS).await;
            held.release().await.unwrap();
            held = waiting.await.unwrap().unwrap();
        }
        (held, offers(&bench) - before)
    };
    let (there, offers) = rounds(held).await;
    assert_eq!(offers, 0, "the lock was not free for the program");
    held = there;
    bench.pass(Duration::from_secs(4)).await;
    let (_, offers) = rounds(held).await;
    assert!(offers > 6 * 5, "after it left, only {offers} offers were made");
}

/// The queue's node would take it for dead and skip it at each turn, or too few messages would arrive.
#[tokio::test(start_paused = true)]
async fn o8_a_waiter_accepts_no_offer_while_messages_do_not_arrive() {
    for (closed, from_the_start) in [(1, true), (1, false), (3, false)] {
        let bench = far();
        let held = forever(&client(&bench)).acquire().await.unwrap();
        let home = preferred_node("r", 5);
        let connected = if from_the_start { None } else { Some(client(&bench)) };
        // The home node, or three others: their inboxes close, or never open.
        let first = if closed == 1 { home } else { home + 1 };
        (first..first + closed).for_each(|node| bench.nodes[node % 5].hints(false));
        let client = connected.unwrap_or_else(|| client(&bench));
        let waiting = waiter_of(&bench, &client).await;
        assert_eq!(bench.nodes[home].accepting("r"), [], "{closed}, {from_the_start}");
        held.release().await.unwrap();
        drop(waiting.await.unwrap().unwrap());
    }
}

/// Its turn costs fewer commands, and a trip is short.
#[tokio::test(start_paused = true)]
async fn o8_a_near_waiter_accepts_no_offer() {
    for (trip, accepted) in [(Duration::ZERO, 0), (MS, 1)] {
        let bench = bench(5);
        bench.delay(trip, trip);
        let _held = forever(&client(&bench)).acquire().await.unwrap();
        let waiting = waiter(&bench).await;
        let accepting = bench.nodes[preferred_node("r", 5)].accepting("r");
        assert_eq!(accepting.len(), accepted, "{trip:?} there and back");
        waiting.abort();
    }
}
