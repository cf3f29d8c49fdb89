//! The queue between processes: in order, one waiter woken per release, and dead waiters delay no
//! other.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Bench, MS, TTL, Turns, acquiring, another, asked, bench, client, forever, passing};
use quorlock::protocol::{Claim, Moment, WaiterId, intents_key, preferred_node, turn, want_mark};
use quorlock::{
    Coordinator, Renewal, Wait,
    node::{Capabilities, Capability, Expiry, Node as _, Request, Vote, ask},
    runtime::{Clock, Sleep},
};
use quorlock_testkit::MemoryNode;

/// Longer than any wait in these tests.
const LATE: Duration = Duration::from_secs(10);

/// A client's clock whose calendar follows the paused time, with an offset.
#[derive(Debug)]
struct Calendar(Arc<dyn Clock>, Duration);

impl Clock for Calendar {
    fn now(&self) -> Moment {
        self.0.now()
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        self.0.sleep_until(moment)
    }

    fn wall(&self) -> Duration {
        Duration::from_secs(1_700_000_000) + self.0.now().since(Moment::ORIGIN) + self.1
    }
}

/// The node with the queue.
fn home(bench: &Bench) -> &MemoryNode {
    &bench.nodes[preferred_node("r", bench.nodes.len())]
}

/// A dead waiter sends no more requests.
pub(crate) async fn dead(bench: &Bench, number: u64) {
    let (key, waiter) = ("r".into(), WaiterId::new(number));
    let [elapsed, patience, turn] = [3_600, 9, 1].map(Duration::from_secs);
    ask(home(bench), Request::enqueue(key, waiter, elapsed, patience, turn)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn w2_processes_are_served_in_order_despite_their_calendars() {
    let bench = bench(5);
    bench.delay(MS, MS);
    let first = forever(&client(&bench)).acquire().await.unwrap();
    let mut turns = Turns::default();
    for number in 0..8_u32 {
        let calendar = Calendar(bench.clock.clone(), Duration::from_secs(60) * (8 - number));
        let client = another(&bench.clock, &bench.nodes, |builder| builder.clock(calendar));
        turns.join(&bench, forever(&client), 3 * MS);
        bench.pass(20 * MS).await;
    }
    first.release().await.unwrap();
    assert_eq!(turns.order().await, (0..8).collect::<Vec<_>>());
}

/// Without a queue, all waiters would be notified of a release, and each would send requests.
#[tokio::test(start_paused = true)]
async fn w3_a_release_wakes_one_waiter_which_acquires_in_two_trips() {
    let bench = bench(5);
    bench.delay(5 * MS, 5 * MS);
    let clock = bench.clock.clone();
    let mut held = forever(&bench.coordinator).acquire().await.unwrap();
    let (sender, mut next) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..20 {
        let (sender, client) = (sender.clone(), client(&bench));
        tokio::spawn(async move { sender.send(forever(&client).acquire().await.unwrap()).ok() });
    }
    bench.pass(800 * MS).await;
    for waiting in (1..=20).rev() {
        let (before, asked) = (clock.now(), self::asked(&bench.nodes));
        held.release().await.unwrap();
        held = next.recv().await.unwrap();
        let (took, asked) = (clock.now().since(before), self::asked(&bench.nodes) - asked);
        assert!(took <= 22 * MS, "{took:?} for two round trips of 10 ms, with {waiting} waiting");
        assert!(asked <= 5 + 5 + 3, "{asked} requests, three heartbeats among them, with {waiting} waiting");
    }
}

/// A lease that is renewed by hand accepts no offer, so its waiter has a turn.
#[tokio::test(start_paused = true)]
async fn w5_a_waiter_that_gives_up_in_its_turn_passes_it_on() {
    let bench = bench(5);
    bench.delay(20 * MS, 20 * MS);
    let by_hand = |client: &Coordinator| forever(client).renewal(Renewal::Manual);
    let first = by_hand(&client(&bench)).acquire().await.unwrap();
    let (gives_up, stays) = (client(&bench), client(&bench));
    let [gives_up, stays] = [&gives_up, &stays].map(by_hand);
    let first_waiter = passing(gives_up);
    bench.pass(500 * MS).await;
    let staying = acquiring(stays);
    bench.pass(500 * MS).await;
    let released = tokio::spawn(first.release());
    // It has been notified, and has asked the nodes, which have not read that.
    bench.pass(50 * MS).await;
    first_waiter.abort();
    let before = bench.clock.now();
    drop(staying.await.unwrap().unwrap());
    let waited = bench.clock.now().since(before);
    assert!(waited < turn(40 * MS), "it waited {waited:?}, as if its turn had to end by itself");
    drop(released.await);
}

#[tokio::test(start_paused = true)]
async fn w5_a_dead_waiter_costs_the_others_one_turn() {
    // Those that are dead for long cost nothing.
    for (dead, since, most) in
        [(0, 10 * MS, 1), (1, 10 * MS, 101), (2, 10 * MS, 201), (3, 10 * MS, 301), (20, LATE, 1)]
    {
        let bench = bench(5);
        let first = forever(&client(&bench)).acquire().await.unwrap();
        for number in 0..dead {
            self::dead(&bench, number).await;
        }
        let next = acquiring(forever(&client(&bench)));
        bench.pass(since).await;
        let before = bench.clock.now();
        first.release().await.unwrap();
        drop(next.await.unwrap().unwrap());
        let held_up = bench.clock.now().since(before).as_millis();
        assert!(held_up <= most, "{dead} dead waiters cost {held_up} ms");
    }
}

/// A waiter whose place is lost with its node regains it.
#[tokio::test(start_paused = true)]
async fn w2_a_waiter_regains_its_lost_place() {
    let bench = bench(5);
    let first = forever(&client(&bench)).acquire().await.unwrap();
    let mut turns = Turns::default();
    for _ in 0..4 {
        turns.join(&bench, forever(&client(&bench)), Duration::ZERO);
        bench.pass(20 * MS).await;
        let (key, waiter) = ("r".into(), WaiterId::new(7));
        ask(home(&bench), Request::LeaveQueue { key, waiter }).await.unwrap();
    }
    bench.pass(Duration::from_secs(3)).await;
    first.release().await.unwrap();
    assert_eq!(turns.order().await, [0, 1, 2, 3]);
}

/// A lost attempt is undone where it was granted; its caller may still get its turn.
#[tokio::test(start_paused = true)]
async fn w8_undoing_an_attempt_wakes_no_waiter() {
    let bench = bench(5);
    for node in bench.nodes.iter().filter(|node| node.name() != home(&bench).name()) {
        node.set_data("r", "another library's token", Expiry::In(TTL));
    }
    let (key, waiter) = (Arc::<str>::from("r"), WaiterId::new(1));
    home(&bench).set_data("r", "a holder before", Expiry::In(MS));
    dead(&bench, 1).await;
    bench.pass(5 * MS).await;
    assert!(forever(&client(&bench)).try_acquire().await.unwrap().is_none());
    bench.settle().await;
    assert_eq!(home(&bench).holder("r"), None, "it was granted there, and undone");
    let vote = ask(home(&bench), Request::LeaveQueue { key, waiter }).await.unwrap().vote;
    assert_eq!(vote, Vote::Granted, "it is still in the queue");
}

/// The node has lost the lock; waiters must not store their tokens there, which would keep the holder
/// from restoring its own.
#[tokio::test(start_paused = true)]
async fn w4_waiters_take_no_vote_of_a_restarted_node_from_the_holder() {
    let bench = bench(5);
    let first = forever(&client(&bench)).acquire().await.unwrap();
    for _ in 0..8 {
        passing(forever(&client(&bench)));
    }
    bench.pass(Duration::from_secs(2)).await;
    home(&bench).restart_empty();
    let before = asked(&bench.nodes);
    bench.pass(TTL / 4).await;
    let seconds = usize::try_from((TTL / 4).as_secs().max(1)).unwrap();
    let asked = asked(&bench.nodes) - before;
    assert!(asked <= 8 * 6 * (seconds + 1), "{asked} requests of eight waiters in {seconds} s");
    let taken = home(&bench).holder("r").is_some_and(|token| token != *first.token());
    assert!(!taken, "a waiter has taken the key that the holder must restore");
    bench.pass(TTL).await;
    assert_eq!(first.check(), Ok(()));
    assert_eq!(home(&bench).holder("r").as_ref(), Some(first.token()), "the holder has it again");
}

/// It holds a leftover of a client that died before it had a quorum: the others are free.
#[tokio::test(start_paused = true)]
async fn w4_a_key_on_one_node_alone_delays_no_waiter() {
    let bench = bench(5);
    let first = forever(&client(&bench)).acquire().await.unwrap();
    let next = acquiring(forever(&client(&bench)));
    bench.pass(50 * MS).await;
    home(&bench).remove("r");
    home(&bench).set_data("r", "stray", Expiry::In(Duration::from_secs(600)));
    bench.pass(Duration::from_secs(1)).await;
    let before = bench.clock.now();
    first.release().await.unwrap();
    drop(next.await.unwrap().unwrap());
    let took = bench.clock.now().since(before);
    assert!(took <= Duration::from_secs(5), "two heartbeats, and this took {took:?}");
}

#[tokio::test(start_paused = true)]
async fn w6_waiters_queue_on_the_next_node_if_one_is_down() {
    let bench = bench(5);
    home(&bench).disconnect();
    let mut held = forever(&bench.coordinator).acquire().await.unwrap();
    let (sender, mut next) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..5 {
        let (sender, client) = (sender.clone(), client(&bench));
        tokio::spawn(async move { sender.send(forever(&client).acquire().await.unwrap()).ok() });
    }
    bench.pass(300 * MS).await;
    for _ in 0..5 {
        let before = bench.clock.now();
        held.release().await.unwrap();
        held = next.recv().await.unwrap();
        let took = bench.clock.now().since(before);
        assert!(took <= MS, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn w6_without_a_queue_each_release_wakes_all_waiters() {
    let bench = bench(5);
    for node in &bench.nodes {
        // Applies to all clients of the server.
        drop(node.clone().with_capabilities(Capabilities::all().without(Capability::Queue)));
    }
    let held = forever(&client(&bench)).acquire().await.unwrap();
    let waiting: Vec<_> = (0..5).map(|_| passing(forever(&client(&bench)))).collect();
    bench.pass(300 * MS).await;
    held.release().await.unwrap();
    for task in waiting {
        task.await.unwrap().unwrap();
    }
    assert_eq!(bench.nodes.iter().map(|node| node.requests().enqueue).sum::<usize>(), 0);
}

/// A client that is closed while it waits, and one that waits no longer.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_ends_with_an_error_leaves_the_queue() {
    for (wait, closes) in [(Wait::Forever, true), (Wait::UpTo(10 * MS), false)] {
        let bench = bench(5);
        let first = forever(&client(&bench)).acquire().await.unwrap();
        let waits = client(&bench);
        let waiting = acquiring(forever(&waits).wait(wait));
        bench.pass(10 * MS).await;
        if closes {
            waits.close(MS).await;
        }
        assert!(waiting.await.unwrap().is_err());
        bench.settle().await;
        let claim = Arc::new(Claim::new("r".into(), first.token().clone()));
        let released = ask(home(&bench), Request::Release { claim }).await.unwrap().vote;
        assert_ne!(released, Vote::Notified, "the queue is empty, {wait:?}");
    }
}

/// The process may end then. A cancelled waiter is counted by nobody, and keeps no reader out.
#[tokio::test(start_paused = true)]
async fn close_waits_until_a_cancelled_waiter_has_left_the_nodes() {
    let place = format!("{}:", want_mark("r"));
    for (held, wanted, trace) in [
        ("writer", "writer", &place),
        ("reader", "writer", &intents_key("r")),
        ("writer", "reader", &place),
        ("writer", "several", &place),
    ] {
        let bench = bench(5);
        let lock_of = |client: &Coordinator, who| {
            if who == "reader" { forever(client).shared() } else { forever(client) }
        };
        let _held = lock_of(&client(&bench), held).acquire().await.unwrap();
        bench.delay(10 * MS, 10 * MS);
        let client = client(&bench);
        let several = client.lock_all(["q", "r"]).ttl(TTL).wait(Wait::Forever);
        let one = lock_of(&client, wanted);
        let waiting = tokio::spawn(async move {
            if wanted == "several" {
                several.acquire().await.map(drop)
            } else {
                one.acquire().await.map(drop)
            }
        });
        let traces = || {
            let keys = bench.nodes.iter().flat_map(MemoryNode::keys);
            keys.filter(|key| key.starts_with(trace)).collect::<Vec<_>>()
        };
        bench.pass(Duration::from_secs(1)).await;
        assert!(!traces().is_empty(), "{wanted} waits for {held}");
        waiting.abort();
        drop(waiting.await);
        client.close(TTL).await;
        assert_eq!(traces(), [""; 0], "{wanted} waited for {held}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_learns_how_many_processes_wait_before_it() {
    let bench = bench(5);
    let _held = forever(&client(&bench)).acquire().await.unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    for number in 0..11 {
        let seen = seen.clone();
        passing(forever(&client(&bench)).on_wait(move |waiting| {
            let mut seen = seen.lock().unwrap();
            seen.retain(|(other, _)| *other != number);
            seen.push((number, waiting.processes));
        }));
        bench.pass(20 * MS).await;
    }
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    let places: Vec<_> = seen.iter().map(|(_, processes)| processes.unwrap()).collect();
    assert_eq!(places, [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8]);
}

/// Its node has seen the release, and another one has not yet: the waiter asks again as soon as that
/// one has.
#[tokio::test(start_paused = true)]
async fn w4_a_slow_node_delays_waiters_only_by_its_lag() {
    let bench = bench(5);
    for node in &bench.nodes {
        node.set_data("r", "another library's token", Expiry::In(TTL));
    }
    let next = acquiring(forever(&client(&bench)));
    bench.pass(100 * MS).await;
    home(&bench).remove("r");
    bench.pass(20 * MS).await;
    assert!(!next.is_finished(), "the other nodes hold it");
    let before = bench.clock.now();
    for node in &bench.nodes {
        node.remove("r");
    }
    drop(next.await.unwrap().unwrap());
    assert!(bench.clock.now().since(before) <= MS, "{:?}", bench.clock.now().since(before));
}

/// Otherwise it would be served beside the queue that all others are in, before or after its time.
#[tokio::test(start_paused = true)]
async fn w6_a_waiter_returns_to_the_queue_of_a_node_that_was_slow_once() {
    regains_its_place(|bench, node| node.name() == home(bench).name()).await;
}

#[tokio::test(start_paused = true)]
async fn w6_a_waiter_returns_to_the_queue_after_an_outage_of_all_nodes() {
    regains_its_place(|_, _| true).await;
}

/// The second of three waiters comes while these nodes are silent.
async fn regains_its_place(is_silent: impl Fn(&Bench, &MemoryNode) -> bool) {
    let bench = bench(5);
    let silent = || bench.nodes.iter().filter(|node| is_silent(&bench, node));
    let held = forever(&bench.coordinator).acquire().await.unwrap();
    let mut turns = Turns::default();
    for number in 0..3 {
        if number == 1 {
            silent().for_each(MemoryNode::hang);
        }
        turns.join(&bench, forever(&client(&bench)), Duration::ZERO);
        bench.pass(Duration::from_secs(2)).await;
        silent().for_each(MemoryNode::resume);
    }
    // Time for some heartbeats: one asks whether the node answers, and the next one finds that it does.
    bench.pass(LATE).await;
    let known = ask(home(&bench), Request::ListWaiters { key: "r".into() }).await.unwrap().vote;
    let Vote::Waiters(listing) = known else { panic!("{known:?}") };
    assert_eq!(listing.waiters.len(), 3, "all are in one queue: {listing:?}");
    held.release().await.unwrap();
    assert_eq!(turns.order().await, [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn waiters_are_listed_in_order_with_name_and_age() {
    let bench = bench(5);
    let held = forever(&bench.coordinator).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for label in ["the first", "the second"] {
        waiting.push(acquiring(forever(&client(&bench)).label(label)));
        bench.pass(Duration::from_secs(2)).await;
    }
    let seen = forever(&bench.coordinator).waiters().await.unwrap();
    let labels: Vec<_> =
        seen.waiters.iter().map(|waiter| waiter.context.split_once(' ').unwrap().1).collect();
    assert_eq!(labels, ["the first", "the second"]);
    assert!(!seen.has_more);
    let waited: Vec<_> = seen.waiters.iter().map(|waiter| waiter.waited.as_secs()).collect();
    assert_eq!(waited, [4, 2]);

    // The node with the queue is down: waiters enqueue on the next.
    home(&bench).hang();
    bench.pass(LATE).await;
    let seen = forever(&bench.coordinator).waiters().await.unwrap();
    assert_eq!(seen.waiters.len(), 2, "{seen:?}");
    bench.nodes.iter().for_each(MemoryNode::hang);
    let seen = forever(&bench.coordinator).waiters().await.unwrap();
    assert!(seen.waiters.is_empty() && seen.has_more, "the queue is unknown: {seen:?}");
    bench.nodes.iter().for_each(MemoryNode::resume);
    drop(held);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}
