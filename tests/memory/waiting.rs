//! Waiting: notified instead of polling, in order, at constant cost, and never stranded.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use futures::future::join_all;

use crate::common::{
    Bench, MS, TTL, Turns, acquiring, another, asked, bench, client, client_of, forever, passing,
};
use quorlock::protocol::COOLDOWN;
use quorlock::{
    AcquireError, Coordinator, Lease, Lock, Renewal, Wait,
    node::{Node as _, Request},
};
use quorlock_testkit::{MemoryNode, SeededEntropy, WrappedNode, memory_nodes};

/// Runs this many tasks, each of which holds the lock once for a millisecond. Returns the order in
/// which they held it, by the number of their arrival.
async fn queue_up(bench: &Bench, lock: &Lock, tasks: usize) -> Vec<usize> {
    let mut turns = Turns::default();
    (0..tasks).for_each(|_| turns.join(bench, lock.clone(), MS));
    turns.order().await
}

#[tokio::test(start_paused = true)]
async fn waiters_of_one_process_are_served_in_the_order_they_came() {
    let bench = bench(5);
    let order = queue_up(&bench, &forever(&bench.coordinator), 200).await;
    assert_eq!(order, (0..200).collect::<Vec<_>>());
    bench.pass(10 * MS).await;
    assert_eq!(bench.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn requests_for_each_grant_do_not_grow_with_the_number_of_waiters() {
    let mut per_grant = Vec::new();
    for tasks in [8, 32, 128] {
        let bench = bench(5);
        queue_up(&bench, &forever(&bench.coordinator), tasks).await;
        bench.pass(10 * MS).await;
        per_grant.push(asked(&bench.nodes) / tasks);
    }
    assert!(per_grant.iter().all(|asked| *asked <= 8), "{per_grant:?} requests for each grant");
    assert!(per_grant[2] <= per_grant[0], "{per_grant:?}");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_waiters_ask_as_seldom_as_one() {
    let bench = bench(5);
    let holder = client(&bench);
    // Renewed manually, so that only the waiters send requests.
    let held = holder.lock("r").ttl(TTL).renewal(Renewal::Manual).acquire().await.unwrap();
    let before = asked(&bench.nodes);
    let waiting: Vec<_> = (0..1_000).map(|_| passing(forever(&bench.coordinator))).collect();
    bench.pass(Duration::from_secs(8)).await;
    let rounds = asked(&bench.nodes) - before;
    // Every other second another node is asked for the holder.
    let most = 5 + 1 + (8 * 2 + 8 / 2);
    assert!(rounds <= most, "one round, then two heartbeats a second at the most: {rounds} requests in 8 s");
    held.release().await.unwrap();
    for task in waiting {
        task.await.unwrap().unwrap();
    }
}

/// A node that records for each acquisition whether the client knows of contention.
fn noting(node: MemoryNode, noted: Arc<Mutex<Vec<bool>>>) -> WrappedNode {
    WrappedNode::new(node).on_request(move |request, responder, inner| {
        if let Request::Acquire { fence_hint: Some(fence_hint), .. } = &*request {
            noted.lock().unwrap().push(fence_hint.contended);
        }
        inner.ask(request, responder);
    })
}

/// A client that does not know of contention acquires without a script, which raises the counters even
/// if it is refused: the next holder then has to write its number back, in a second round.
#[tokio::test(start_paused = true)]
async fn the_next_contest_starts_with_known_contention() {
    let bench = bench(5);
    let noted: Arc<Mutex<Vec<bool>>> = Arc::default();
    let client = client_of(&bench, bench.nodes.iter().cloned().map(|node| noting(node, noted.clone())));
    let noted = || std::mem::take(&mut *noted.lock().unwrap());
    let ask = async || client.lock("r").ttl(TTL).try_acquire().await.unwrap();
    // It was refused a moment ago.
    let others = bench.lock().acquire().await.unwrap();
    assert!(ask().await.is_none());
    assert_eq!(noted(), [false; 5]);
    others.release().await.unwrap();
    let mut held = ask().await.unwrap();
    assert_eq!(noted(), [true; 5]);
    // Others waited while it held the lock, a moment ago or longer.
    for (ago, knows) in [(Duration::from_secs(1), true), (Duration::from_secs(4), false)] {
        bench.pass(Duration::from_secs(4)).await;
        let other = crate::common::client(&bench);
        let waiting = tokio::spawn(async move { forever(&other).acquire().await.unwrap().release().await });
        bench.pass(100 * MS).await;
        held.release().await.unwrap();
        waiting.await.unwrap().unwrap();
        bench.pass(ago).await;
        noted();
        held = ask().await.unwrap();
        assert_eq!(noted(), [knows; 5], "{ago:?} ago");
    }
}

/// In its turn it has no competition.
#[tokio::test(start_paused = true)]
async fn a_waiter_asks_in_its_turn_as_for_a_free_lock() {
    let bench = bench(5);
    let noted: Arc<Mutex<Vec<bool>>> = Arc::default();
    let client = client_of(&bench, bench.nodes.iter().cloned().map(|node| noting(node, noted.clone())));
    let held = bench.lock().acquire().await.unwrap();
    // It is offered nothing, since it does not renew.
    let lock = client.lock("r").ttl(TTL).wait(Wait::Forever).renewal(Renewal::Manual);
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap().release().await });
    bench.pass(100 * MS).await;
    noted.lock().unwrap().clear();
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(*noted.lock().unwrap(), [false; 5]);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_cancelled_waiters_leave_no_key_place_or_task() {
    for seed in 0..5 {
        let bench = bench(5);
        let entropy = SeededEntropy::new(seed);
        let mut waiting = Vec::new();
        for _ in 0..1_000 {
            let (lock, clock) = (forever(&bench.coordinator), bench.clock.clone());
            let patience = Duration::from_micros(quorlock::runtime::Entropy::next_u64(&entropy) % 300_000);
            waiting.push(tokio::spawn(async move {
                let end = clock.now() + patience;
                tokio::select! {
                    biased;
                    lease = lock.acquire() => {
                        clock.sleep_until((clock.now() + MS).min(end)).await;
                        drop(lease);
                    }
                    () = clock.sleep_until(end) => {}
                }
            }));
        }
        for task in waiting {
            task.await.unwrap();
        }
        bench.pass(Duration::from_secs(1)).await;
        assert_eq!(bench.keys(), 0, "seed {seed}");
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        // A memory node has one task for its timers.
        assert!(tasks <= bench.nodes.len(), "{tasks} tasks are left, seed {seed}");
        assert!(format!("{:?}", bench.coordinator).contains("queues: 0"), "{:?}", bench.coordinator);
        assert!(bench.lock().try_acquire().await.unwrap().is_some(), "and the lock is free");
    }
}

#[tokio::test(start_paused = true)]
async fn try_acquire_sends_no_request_if_this_process_holds() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    bench.settle().await;
    let before = asked(&bench.nodes);
    assert!(bench.lock().try_acquire().await.unwrap().is_none());
    assert_eq!(asked(&bench.nodes), before);
    lease.release().await.unwrap();
    assert!(bench.lock().try_acquire().await.unwrap().is_some(), "and acquires immediately after a release");
}

#[tokio::test(start_paused = true)]
async fn try_acquire_does_not_queue_behind_a_local_waiter() {
    let bench = bench(5);
    let holder = client(&bench);
    let held = forever(&holder).acquire().await.unwrap();
    let waiting = acquiring(forever(&bench.coordinator));
    bench.pass(Duration::from_secs(1)).await;
    let lock = bench.lock();
    tokio::select! {
        biased;
        lease = lock.try_acquire() => assert!(lease.unwrap().is_none(), "another client holds it"),
        () = bench.pass(TTL) => panic!("it waits"),
    }
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_learns_the_holder_and_its_position() {
    let bench = bench(5);
    let holder = another(&bench.clock, &bench.nodes, |builder| builder.label("the import"));
    let _held = forever(&holder).acquire().await.unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let lock = bench.coordinator.lock("r").ttl(TTL).wait(Wait::UpTo(Duration::from_secs(1))).on_wait({
        let heard = heard.clone();
        move |waiting| {
            let holder = waiting.holder.as_ref().map(|holder| holder.token.to_string());
            heard.lock().unwrap().push((waiting.ahead, holder.unwrap_or_default()));
        }
    });
    // The answers arrive when both wait.
    bench.delay(Duration::from_millis(1), Duration::ZERO);
    let (first, second) = tokio::join!(lock.acquire(), lock.acquire());
    assert!(matches!(first, Err(AcquireError::Contended { .. })), "{first:?}");
    assert!(second.unwrap_err().to_string().contains("the import"), "the second sent no request itself");
    let heard = heard.lock().unwrap();
    assert!(heard.iter().any(|(ahead, holder)| *ahead == 0 && holder.contains("the import")), "{heard:?}");
    assert!(heard.iter().any(|(ahead, holder)| *ahead == 1 && holder.contains("the import")), "{heard:?}");
}

/// The nodes have nothing to say of it: the waiter asks them only when the lease has ended.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_a_holder_of_its_process_learns_that_it_waits_for_it() {
    let bench = bench(5);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = || {
        let heard = heard.clone();
        move |waiting: &quorlock::lock::Waiting| {
            let holder = waiting.holder.as_ref().map(|holder| holder.token.clone());
            heard.lock().unwrap().push((waiting.ahead, holder));
        }
    };
    let semaphore = bench.coordinator.semaphore("s", 1).ttl(TTL).wait(Wait::UpTo(MS));
    let (lock, permit) = (bench.lock().wait(Wait::UpTo(MS)), semaphore.clone().on_wait(listener()));
    let (lease, held) = (lock.acquire().await.unwrap(), semaphore.acquire().await.unwrap());
    let lock = lock.on_wait(listener());
    let (first, second) = tokio::join!(lock.acquire(), lock.acquire());
    assert!(first.is_err() && second.is_err() && permit.acquire().await.is_err());
    let token = |lease: &Lease| Some(lease.token().clone());
    let expected = [(0, token(&lease)), (1, token(&lease)), (0, token(&held))];
    assert_eq!(*heard.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_panicking_listener_strands_no_task() {
    let bench = bench(5);
    let holder = client(&bench);
    let held = forever(&holder).acquire().await.unwrap();
    let lock = forever(&bench.coordinator).on_wait(|_| panic!("the listener panics"));
    let (first, second) = (passing(lock.clone()), passing(lock));
    bench.pass(100 * MS).await;
    held.release().await.unwrap();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn many_simultaneous_processes_all_get_the_lock_soon() {
    for seed in 0..10 {
        let bench = bench(5);
        bench.delay(MS, MS);
        let clock = bench.clock.clone();
        let inside: Arc<AtomicUsize> = Arc::default();
        let tasks: Vec<_> = (0..10)
            .map(|process| {
                let entropy = SeededEntropy::new(seed * 100 + process);
                let client = another(&clock, &bench.nodes, |builder| builder.entropy(entropy));
                let (clock, inside) = (clock.clone(), inside.clone());
                tokio::spawn(async move {
                    for _ in 0..5 {
                        let lease = forever(&client).acquire().await.unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                        clock.sleep_until(clock.now() + MS).await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        lease.release().await.unwrap();
                    }
                })
            })
            .collect();
        let before = clock.now();
        for task in tasks {
            task.await.unwrap();
        }
        let took = clock.now().since(before);
        // Fifty grants of at least 7 ms: the hold, the release, the hints and two rounds.
        assert!(took <= 1_500 * MS, "seed {seed}: {took:?} for fifty grants");
    }
}

/// Each must get its answer before either releases, so a caller that waits for the other would block.
#[test]
fn two_threads_that_try_together_do_not_wait_for_each_other() {
    const DEADLINE: Duration = Duration::from_secs(20);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let coordinator = Coordinator::builder().custom_nodes(memory_nodes(3)).build().unwrap();
    let start = Barrier::new(2);
    let race = |to_other: Sender<bool>, from_other: Receiver<bool>| {
        for round in 0..2000 {
            let lock = coordinator.lock(format!("r{round}"));
            start.wait();
            let lease = runtime.block_on(lock.try_acquire()).unwrap();
            to_other.send(lease.is_some()).unwrap();
            let theirs =
                from_other.recv_timeout(DEADLINE).expect("the other must get an answer, held or not");
            assert!(!(theirs && lease.is_some()), "round {round}: both have it");
            if let Some(lease) = lease {
                runtime.block_on(lease.release()).unwrap();
            }
        }
    };
    let (to_one, from_two) = channel();
    let (to_two, from_one) = channel();
    thread::scope(|scope| {
        let race = &race;
        scope.spawn(move || race(to_two, from_two));
        race(to_one, from_one);
    });
}

/// What a wait of 1 ms gives, with a round trip of 20 ms.
async fn after_a_millisecond(lock: &Lock) -> Result<Lease, AcquireError> {
    lock.clone().wait(Wait::UpTo(MS)).acquire().await
}

#[tokio::test(start_paused = true)]
async fn a_wait_shorter_than_a_round_asks_once_and_is_no_outage() {
    let bench = bench(5);
    bench.delay(10 * MS, 10 * MS);
    let lock = bench.coordinator.lock("r").ttl(TTL);
    let lease = after_a_millisecond(&lock).await.unwrap_or_else(|error| panic!("it is free: {error}"));
    let here = after_a_millisecond(&lock).await.unwrap_err();
    assert!(matches!(here, AcquireError::Contended { .. }), "this process holds it: {here}");
    lease.release().await.unwrap();
    let permit = bench.coordinator.semaphore("s", 2).ttl(TTL).wait(Wait::UpTo(MS)).acquire().await;
    assert!(permit.is_ok(), "all permits are free: {permit:?}");

    for node in &bench.nodes[..3] {
        node.hang();
    }
    let error = after_a_millisecond(&bench.coordinator.lock("other").ttl(TTL)).await.unwrap_err();
    assert!(matches!(error, AcquireError::Unavailable { .. }), "it is unknown who holds it: {error}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_released_as_a_wait_ends_is_acquired() {
    let (bench, wait) = (bench(3), Wait::UpTo(100 * MS));
    bench.delay(10 * MS, 10 * MS);
    let of = |client: &Coordinator| {
        let (one, both) = (client.lock("r").ttl(TTL), client.lock_all(["a", "b"]).ttl(TTL));
        (one.wait(wait), both.wait(wait), client.semaphore("s", 1).ttl(TTL).wait(wait))
    };
    let (one, both, semaphore) = of(&client(&bench));
    let held = tokio::join!(one.acquire(), both.acquire(), semaphore.acquire());
    let (one, both, semaphore) = of(&bench.coordinator);
    let (one, both) = (acquiring(one), acquiring(both));
    let permit = tokio::spawn(async move { semaphore.acquire().await });
    // The waiters hear of it 4 ms before the end of their waits, and have no answer by then.
    bench.pass(76 * MS).await;
    drop(held);
    let (one, both, permit) = (one.await.unwrap(), both.await.unwrap(), permit.await.unwrap());
    assert!(one.is_ok() && both.is_ok() && permit.is_ok(), "all are free: {one:?}, {both:?}, {permit:?}");
}

#[tokio::test(start_paused = true)]
async fn of_many_short_waits_for_one_lock_none_finds_an_outage() {
    let bench = bench(5);
    bench.delay(10 * MS, 10 * MS);
    let others: Vec<_> = (0..8).map(|_| client(&bench)).collect();
    let tries = others.iter().map(async |client| {
        let mut acquired = 0;
        for _ in 0..20 {
            match after_a_millisecond(&client.lock("r").ttl(TTL)).await {
                Ok(lease) => {
                    acquired += 1;
                    lease.release().await.unwrap();
                }
                Err(AcquireError::Contended { .. }) => {}
                Err(error) => panic!("all nodes answer: {error}"),
            }
        }
        acquired
    });
    let acquired: usize = join_all(tries).await.into_iter().sum();
    assert!(acquired > 0, "one client gets it");
}

#[tokio::test(start_paused = true)]
async fn a_wait_shorter_than_a_round_names_the_holder() {
    let bench = bench(5);
    bench.delay(10 * MS, 10 * MS);
    let holder = client(&bench);
    let _held = forever(&holder).acquire().await.unwrap();
    let elsewhere = after_a_millisecond(&bench.coordinator.lock("r").ttl(TTL)).await.unwrap_err();
    assert!(matches!(elsewhere, AcquireError::Contended { .. }), "another process holds it: {elsewhere}");

    // Known without a request.
    for node in &bench.nodes {
        node.hang();
    }
    let here = after_a_millisecond(&holder.lock("r").ttl(TTL)).await.unwrap_err();
    assert!(matches!(here, AcquireError::Contended { .. }), "this process holds it: {here}");
}

/// So that those go first who were notified together.
#[tokio::test(start_paused = true)]
async fn a_process_that_has_released_a_wanted_lock_pauses_and_not_once_that_is_long_ago() {
    for (later, pauses) in [(MS, true), (COOLDOWN + MS, false)] {
        let bench = bench(5);
        let held = bench.lock().acquire().await.unwrap();
        let waiting = bench.waiting(forever(&client(&bench)).shared()).await;
        held.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        bench.pass(later).await;
        let begun = bench.clock.now();
        drop(bench.lock().acquire().await.unwrap());
        let took = bench.clock.now().since(begun);
        assert_eq!(took >= COOLDOWN, pauses, "{took:?}, {later:?} after its release");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_refused_for_another_of_its_process_hears_of_that() {
    let bench = bench(5);
    let held = bench.lock().acquire().await.unwrap();
    let waiting = bench.waiting(forever(&client(&bench)).shared()).await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    let first = bench.waiting(bench.lock()).await;
    let refused = bench.lock().acquire().await.unwrap_err().to_string();
    assert!(refused.starts_with("another caller of this process came first for `r`: 0 of 5"), "{refused}");
    drop(first.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn after_contention_a_lone_client_waits_for_no_turn() {
    let bench = bench(5);
    let other = client(&bench);
    let lock = forever(&other);
    let held = bench.lock().acquire().await.unwrap();
    let waiting = bench.waiting(lock.clone()).await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    let begun = bench.clock.now();
    for _ in 0..10 {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    let took = bench.clock.now().since(begun);
    assert!(took < Duration::from_millis(10), "ten acquisitions of a free lock took {took:?}");
}
