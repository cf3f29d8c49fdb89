//! Readers and callers of several locks beside a busy queue: they have a place there as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Bench, LIMIT, MS, TTL, acquiring, asked, bench, client, forever};
use crate::queue::dead;
use quorlock::node::{Expiry, Hint, HintListener, Holding, Identity, Node as _, Queued, Request, Response};
use quorlock::protocol::{Moment, Token, preferred_node, turn, turn_key};
use quorlock::runtime::Mutex;
use quorlock::{AcquireError, Coordinator, Wait};
use quorlock_testkit::{SeededEntropy, WrappedNode};

/// Longer than any test's waiter should need.
const PATIENCE: Wait = Wait::UpTo(Duration::from_secs(60));

/// Who waits beside the queue.
#[derive(Clone, Copy, Debug)]
enum Caller {
    Writer,
    Reader,
    Several,
}

/// Lets `writers` hold each of two locks for `hold`, one after the other, without a pause, and returns how long each call
/// of the caller waited for the first lock, or for both.
async fn waits(caller: Caller, writers: usize, hold: Duration, calls: usize) -> Vec<Duration> {
    let bench = bench(5);
    bench.delay(MS / 2, MS / 2);
    let inside = Arc::new(Mutex::new([0, 0]));
    let mut tasks = Vec::new();
    for number in 0..2 * writers {
        let (client, clock, inside) = (client(&bench), bench.clock.clone(), inside.clone());
        tasks.push(tokio::spawn(async move {
            let lock = client.lock(["a", "b"][number % 2]).ttl(TTL).wait(Wait::Forever);
            // Not in step with each other.
            clock.sleep_until(clock.now() + hold * u32::try_from(number).unwrap() / 7).await;
            for turn in 0.. {
                let hold = hold * (70 + (turn * 53 + u32::try_from(number).unwrap() * 37) % 61) / 100;
                let lease = lock.acquire().await.unwrap();
                inside.lock()[number % 2] += 1;
                assert_eq!(inside.lock()[number % 2], 1, "two holders");
                clock.sleep_until(clock.now() + hold).await;
                inside.lock()[number % 2] -= 1;
                lease.release().await.unwrap();
            }
        }));
    }
    bench.pass(hold * 5).await;
    let (client, mut waits) = (client(&bench), Vec::new());
    for _ in 0..calls {
        let before = bench.clock.now();
        let lock = client.lock("a").ttl(TTL).wait(Wait::Forever);
        if matches!(caller, Caller::Several) {
            let lease = client.lock_all(["a", "b"]).ttl(TTL).wait(Wait::Forever).acquire().await.unwrap();
            assert_eq!(*inside.lock(), [0, 0], "two holders");
            waits.push(bench.clock.now().since(before));
            lease.release().await.unwrap();
        } else {
            let lock = if matches!(caller, Caller::Reader) { lock.shared() } else { lock };
            let lease = lock.acquire().await.unwrap();
            waits.push(bench.clock.now().since(before));
            lease.release().await.unwrap();
        }
        bench.pass(hold / 3).await;
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    waits.sort_unstable();
    waits
}

#[tokio::test(start_paused = true)]
async fn w9_readers_and_callers_of_several_wait_no_longer_than_writers() {
    for (writers, hold) in [(4, 1000 * MS), (8, 20 * MS)] {
        // One more for the clients that have just come, as holds differ by a third, and for what is not free.
        let longest = hold * u32::try_from(writers + 1).unwrap() + 50 * MS;
        for caller in [Caller::Writer, Caller::Reader, Caller::Several] {
            let waits = waits(caller, writers, hold, 20).await;
            assert!(waits[19] <= longest, "{writers} writers, {hold:?}, {caller:?}: {waits:?}");
        }
    }
}

/// While one of several locks is held for long, the other one is kept free for a part of the time only.
#[tokio::test(start_paused = true)]
async fn w9_a_lock_that_is_kept_free_costs_its_waiters_three_tenths_at_most() {
    let mut holds = [0, 0];
    for (holds, wanted) in holds.iter_mut().zip([&["a"][..], &["a", "b"][..]]) {
        let bench = bench(5);
        let _long = client(&bench).lock("b").ttl(TTL).acquire().await.unwrap();
        let held = Arc::new(Mutex::new(0));
        let mut tasks = Vec::new();
        for _ in 0..4 {
            let (client, clock, held) = (client(&bench), bench.clock.clone(), held.clone());
            tasks.push(tokio::spawn(async move {
                loop {
                    let lease = client.lock("a").ttl(TTL).wait(Wait::Forever).acquire().await.unwrap();
                    clock.sleep_until(clock.now() + 100 * MS).await;
                    *held.lock() += 1;
                    lease.release().await.unwrap();
                }
            }));
        }
        let client = client(&bench);
        tasks.push(tokio::spawn(async move {
            if let ["a", "b"] = wanted {
                drop(client.lock_all(["a", "b"]).ttl(TTL).wait(Wait::Forever).acquire().await);
            }
        }));
        bench.pass(Duration::from_secs(120)).await;
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        *holds = *held.lock();
    }
    let [alone, beside] = holds;
    assert!(beside * 10 >= alone * 7 && beside < alone, "{beside} holds in place of {alone}");
}

/// Those that accept no offer wait for their turn as well: what they would store on a few nodes would be in the way of
/// the waiter before them.
#[tokio::test(start_paused = true)]
async fn w9_a_reader_and_a_caller_of_several_take_no_lock_in_the_turn_of_another() {
    for is_reader in [true, false] {
        let bench = bench(5);
        let first = forever(&client(&bench)).acquire().await.unwrap();
        dead(&bench, 0).await;
        let caller = client(&bench);
        let next = tokio::spawn(async move {
            if is_reader {
                forever(&caller).shared().acquire().await.map(drop)
            } else {
                caller.lock_all(["r", "s"]).ttl(TTL).wait(Wait::Forever).acquire().await.map(drop)
            }
        });
        bench.pass(MS * 10).await;
        let before = bench.clock.now();
        first.release().await.unwrap();
        next.await.unwrap().unwrap();
        let held_up = bench.clock.now().since(before);
        let turn = turn(Duration::ZERO);
        assert!(held_up >= turn && held_up <= turn * 4, "after {held_up:?}; reader: {is_reader}");
    }
}

/// Readers do not exclude each other.
#[tokio::test(start_paused = true)]
async fn w9_a_reader_joins_others_in_the_turn_of_another() {
    let bench = bench(5);
    let first = forever(&client(&bench)).acquire().await.unwrap();
    dead(&bench, 0).await;
    let next = acquiring(forever(&client(&bench)).shared());
    bench.pass(MS * 10).await;
    first.release().await.unwrap();
    let before = bench.clock.now();
    let other = forever(&client(&bench)).shared().acquire().await.unwrap();
    drop(next.await.unwrap().unwrap());
    assert!(bench.clock.now().since(before) <= MS);
    drop(other);
}

/// Holders that pass permits on within their process notify the waiters of another one more often than these may ask. The
/// turn that ends a row of handoffs is theirs all the same.
#[tokio::test(start_paused = true)]
async fn w10_a_waiter_that_may_not_ask_yet_takes_its_turn_when_it_comes() {
    let hold = 20 * MS;
    let one = |client: Coordinator| client.semaphore("s", 1).ttl(TTL).wait(PATIENCE);
    // Both wait in the queue of one node, or at the places of several locks.
    for several in [false, true] {
        let bench = bench(5);
        bench.delay(MS / 2, MS / 2);
        let (lock, permits) = (forever(&client(&bench)), one(client(&bench)));
        let mut tasks = Vec::new();
        for _ in 0..3 {
            let (lock, permits, clock) = (lock.clone(), permits.clone(), bench.clock.clone());
            tasks.push(tokio::spawn(async move {
                loop {
                    if several {
                        let lease = lock.acquire().await.unwrap();
                        clock.sleep_until(clock.now() + hold).await;
                        lease.release().await.unwrap();
                    } else {
                        let permit = permits.acquire().await.unwrap();
                        clock.sleep_until(clock.now() + hold).await;
                        permit.release().await.unwrap();
                    }
                }
            }));
        }
        bench.pass(hold * 5).await;
        let all = client(&bench).lock_all(["r", "s"]).ttl(TTL).wait(PATIENCE);
        let permits = one(client(&bench));
        for _ in 0..8 {
            let asked = bench.clock.now();
            if several {
                drop(all.acquire().await.unwrap());
            } else {
                drop(permits.acquire().await.unwrap());
            }
            let waited = bench.clock.now().since(asked);
            assert!(waited < hold * 100, "{waited:?}; several: {several}");
            bench.pass(hold * 3 / 2).await;
        }
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// What a node says of each place, whatever is true.
#[derive(Clone, Copy, Debug)]
enum Lie {
    Behind(u32),
    BehindNewHolder,
    /// Nothing, but it announces turn after turn.
    Turns,
}

/// A client of the same nodes, of which the one with the queue lies, and says each time that the lock has changed.
fn client_of_a_liar(bench: &Bench, lie: Lie) -> Coordinator {
    let home = preferred_node("r", bench.nodes.len());
    let nodes = bench.nodes.iter().enumerate().map(|(index, node)| {
        let (number, heard_by) =
            (AtomicU64::new(0), Arc::new(Mutex::new(Vec::<Arc<dyn HintListener>>::new())));
        let (listeners, clock) = (heard_by.clone(), bench.clock.clone());
        let wrapped = WrappedNode::new(node.clone()).on_listen(move |listener, inner| {
            listeners.lock().push(listener.clone());
            inner.listen(listener);
        });
        wrapped.on_request(move |request, responder, inner| {
            if index != home || !matches!(*request, Request::Enqueue { .. }) {
                return inner.ask(request, responder);
            }
            let queued = match lie {
                Lie::Behind(ahead) => Queued::new(ahead, None),
                Lie::BehindNewHolder => {
                    let token = Token::new(u128::from(number.fetch_add(1, Ordering::Relaxed)) + 1, "");
                    Queued::new(0, Some(Holding::new(token, Expiry::In(TTL))))
                }
                Lie::Turns => {
                    let Request::Enqueue { key, waiter, .. } = &*request else { unreachable!() };
                    let (turn_key, heard_by, clock) =
                        (turn_key(key, *waiter), heard_by.clone(), clock.clone());
                    tokio::spawn(async move {
                        for _ in 0..5 {
                            clock.sleep_until(clock.now() + MS).await;
                            let heard_by = heard_by.lock().clone();
                            for by in &heard_by {
                                by.on_hint(Hint::Invalidated(turn_key.as_bytes()));
                            }
                        }
                    });
                    return inner.ask(request, responder);
                }
            };
            let identity = Arc::new(Identity::new("liar", Moment::ORIGIN, TTL * 9));
            responder.send(Ok(Response::new(queued.into(), identity)));
            let heard_by = heard_by.lock().clone();
            for listener in heard_by {
                listener.on_hint(Hint::Invalidated(request.key().as_bytes()));
            }
        })
    });
    let builder = Coordinator::builder()
        .custom_nodes(nodes.collect::<Vec<_>>())
        .clock(bench.clock.clone())
        .entropy(SeededEntropy::new(77))
        .node_timeout(LIMIT)
        .ttl(TTL);
    builder.build().unwrap()
}

async fn acquired_by(caller: Caller, client: Coordinator) -> Result<(), AcquireError> {
    let (one, both) = (forever(&client), client.lock_all(["r", "s"]).ttl(TTL).wait(Wait::Forever));
    match caller {
        Caller::Writer => one.acquire().await.map(drop),
        Caller::Reader => one.shared().acquire().await.map(drop),
        Caller::Several => both.acquire().await.map(drop),
    }
}

#[tokio::test(start_paused = true)]
async fn w10_a_node_that_announces_turn_after_turn_is_followed_at_the_pace_of_turns() {
    for caller in [Caller::Writer, Caller::Reader, Caller::Several] {
        let bench = bench(3);
        bench.delay(MS / 2, MS / 2);
        let _held = forever(&client(&bench)).acquire().await.unwrap();
        let next = tokio::spawn(acquired_by(caller, client_of_a_liar(&bench, Lie::Turns)));
        bench.pass(TTL).await;
        // Sixteen in a row and ten a second of each pace, to three nodes, which are asked to forget it as well.
        let requests = asked(&bench.nodes);
        assert!(requests < 2 * (16 + 100) * 3 * 2, "{caller:?}: {requests} requests in 10 s");
        next.abort();
    }
}

/// The others report the lock as free: a waiter asks one of them, and then all.
#[tokio::test(start_paused = true)]
async fn w4_w9_a_node_that_lies_about_places_keeps_no_waiter_from_a_free_lock() {
    for lie in
        [Lie::Behind(7), Lie::Behind(0), Lie::Behind(1), Lie::Behind(8), Lie::BehindNewHolder, Lie::Turns]
    {
        for caller in [Caller::Writer, Caller::Reader, Caller::Several] {
            let bench = bench(3);
            let first = forever(&client(&bench)).acquire().await.unwrap();
            let waiter = client_of_a_liar(&bench, lie);
            let next = tokio::spawn(acquired_by(caller, waiter));
            bench.pass(Duration::from_secs(7)).await;
            assert!(!next.is_finished(), "two holders");
            first.release().await.unwrap();
            bench.pass(Duration::from_secs(12)).await;
            assert!(next.is_finished(), "{lie:?}, {caller:?}: the lock has been free for 12 s");
            next.await.unwrap().unwrap();
        }
    }
}
