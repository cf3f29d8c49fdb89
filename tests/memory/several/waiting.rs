//! Waiting for several resources: each blocking resource wakes the waiter, and no set starves.

use super::*;
use crate::common::{Turns, passing, unnotified};

/// A waiter holds nothing, so waiters cannot deadlock.
#[tokio::test(start_paused = true)]
async fn m5_overlapping_sets_all_get_a_turn_and_never_two_together() {
    const TURNS: usize = 12;
    let bench = bench(5);
    bench.delay(MS, MS);
    let sets: [&[&str]; 8] =
        [&["a", "b"], &["b", "a"], &["b", "c"], &["c", "a"], &["c", "b", "a"], &["a"], &["b"], &["c", "d"]];
    let inside = Arc::new(Mutex::new(BTreeSet::<&str>::new()));
    let clients = sets.into_iter().map(|names| {
        let (lock, clock) = (client(&bench).lock_all(names).wait(Wait::Forever), bench.clock.clone());
        let inside = inside.clone();
        tokio::spawn(async move {
            for _ in 0..TURNS {
                let lease = lock.acquire().await.unwrap();
                for name in names {
                    assert!(inside.lock().unwrap().insert(name), "two hold {name}");
                }
                clock.sleep_until(clock.now() + MS * 5).await;
                lease.check().unwrap();
                for name in names {
                    inside.lock().unwrap().remove(name);
                }
                lease.release().await.unwrap();
            }
        })
    });
    let before = bench.clock.now();
    for client in join_all(clients.collect::<Vec<_>>()).await {
        client.unwrap();
    }
    let took = bench.clock.now().since(before);
    // Held one after the other they would take half a second, and no heartbeat had to help.
    assert!(took < SECOND * 12, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_notified_only_of_the_resource_that_blocks() {
    let bench = bench(5);
    let other = client(&bench);
    let held = other.lock("b").acquire().await.unwrap();
    let waiting = passing(bench.both().wait(Wait::Forever));
    bench.pass(SECOND / 10).await;
    let before = bench.asked();
    let mut taken = 0;
    for _ in 0..50 {
        let lease = other.lock("a").acquire().await.unwrap();
        taken += 5;
        lease.release().await.unwrap();
        bench.pass(MS * 10).await;
    }
    let asked = bench.asked() - before - taken;
    // Its places in both queues are confirmed each second.
    assert!(asked <= 6, "other clients of `a` do not matter: {asked}");
    let released = bench.clock.now();
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert!(bench.clock.now().since(released) < SECOND / 10, "told, and not at the next heartbeat");
}

/// Where those are who contend for it alone: its winner meets no competition at the others.
#[tokio::test(start_paused = true)]
async fn a_contender_first_asks_the_node_of_the_blocking_resource() {
    for name in ["a", "b", "c", "d", "e"] {
        let bench = bench(5);
        let _held = client(&bench).lock(name).acquire().await.unwrap();
        let waiting = passing(bench.coordinator.lock_all(["a", "b", "c", "d", "e"]).wait(Wait::Forever));
        bench.pass(SECOND / 10).await;
        let before: Vec<_> = bench.nodes.iter().map(|node| node.requests().acquire).collect();
        bench.pass(SECOND * 4).await;
        let more = bench.nodes.iter().zip(before).map(|(node, before)| node.requests().acquire - before);
        let asked: Vec<_> = more.enumerate().filter(|(_, more)| *more > 0).map(|(node, _)| node).collect();
        let first = Claim::new(name.into(), Token::new(7, "")).preferred_node(5);
        assert_eq!(asked.first(), Some(&first), "{name} is in the way, and {asked:?} were asked");
        waiting.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_notified_of_each_blocking_resource() {
    let bench = bench(5);
    let other = client(&bench);
    let (a, b) = (other.lock("a").acquire().await.unwrap(), other.lock("b").acquire().await.unwrap());
    let waiting = passing(bench.both().wait(Wait::Forever));
    bench.pass(SECOND / 10).await;
    a.release().await.unwrap();
    bench.pass(SECOND / 10).await;
    assert_eq!(bench.locked(["a"]), [0], "who waits for `b` does not hold `a`");
    let released = bench.clock.now();
    b.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert!(bench.clock.now().since(released) < SECOND / 10);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_asks_again_when_the_blocking_keys_expire() {
    let bench = bench(5);
    for (index, node) in bench.nodes.iter().enumerate() {
        node.set_data(["a", "b"][index % 2], "another library's token", Expiry::In(SECOND * 6 / 10));
    }
    let client = unnotified(&bench);
    let before = bench.clock.now();
    drop(client.lock_all(["a", "b"]).wait(Wait::Forever).acquire().await.unwrap());
    let took = bench.clock.now().since(before);
    assert!(took >= SECOND * 6 / 10 && took < SECOND * 65 / 100, "they end at 600 ms: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn waiters_of_one_process_are_notified_without_the_servers() {
    let bench = bench(5);
    let client = unnotified(&bench);
    let sets: [&[&str]; 4] = [&["b"], &["a", "b"], &["b", "c"], &["b"]];
    for pair in sets.windows(2) {
        let [first, next] = [0, 1].map(|place| client.lock_all(pair[place]).wait(Wait::Forever));
        notifies(&bench, first, next).await;
    }
}

/// The second of these waits for the first, and gets the lock long before its heartbeat, which comes after a second.
async fn notifies<K: 'static, F: 'static>(bench: &Bench, first: Lock<K, F>, next: Lock<K, F>) {
    let held = first.acquire().await.unwrap();
    let waiting = passing(next);
    bench.pass(SECOND / 10).await;
    let released = bench.clock.now();
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    let took = bench.clock.now().since(released);
    assert!(took < SECOND / 10, "{first:?} took {took:?}");
    bench.settle().await;
}

/// The same for other kinds of lock, whose waiters have queues of their own as well.
#[tokio::test(start_paused = true)]
async fn readers_writers_and_semaphores_notify_each_other() {
    let bench = bench(5);
    let client = unnotified(&bench);
    let writer = client.lock("r").wait(Wait::Forever);
    notifies(&bench, writer.clone().shared(), writer.clone()).await;
    notifies(&bench, writer.clone(), writer.shared()).await;
    let held = client.semaphore("s", 1).acquire().await.unwrap();
    let other = client.semaphore("s", 1).wait(Wait::Forever);
    let waiting = tokio::spawn(async move { other.acquire().await.map(drop) });
    bench.pass(SECOND / 10).await;
    let released = bench.clock.now();
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert!(bench.clock.now().since(released) < SECOND / 10, "by another semaphore of the same name");
}

#[tokio::test(start_paused = true)]
async fn equal_requests_of_one_process_share_one_queue() {
    let bench = bench(5);
    let held = bench.both().acquire().await.unwrap();
    let asked = bench.asked();
    let mut turns = Turns::default();
    for number in 0..8 {
        let names = if number % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
        turns.join(&bench, bench.coordinator.lock_all(names).wait(Wait::Forever), Duration::ZERO);
        bench.settle().await;
    }
    assert_eq!(bench.asked(), asked, "no request is sent while it is held here");
    held.release().await.unwrap();
    assert_eq!(turns.order().await, (0..8).collect::<Vec<_>>(), "in the order they came");
}

/// Readers of one of them come and go so that there is always one.
#[tokio::test(start_paused = true)]
async fn readers_of_one_resource_do_not_starve_a_lock_of_several() {
    let bench = bench(5);
    for number in 0..4_u32 {
        let (lock, clock) = (client(&bench).lock("b").shared().wait(Wait::Forever), bench.clock.clone());
        tokio::spawn(async move {
            clock.sleep_until(clock.now() + MS * 25 * number).await;
            loop {
                let Ok(share) = lock.acquire().await else { continue };
                clock.sleep_until(clock.now() + MS * 100).await;
                drop(share);
            }
        });
    }
    bench.pass(SECOND).await;
    let lease = bench.both().wait(Wait::UpTo(SECOND * 10)).acquire().await.unwrap();
    lease.release().await.unwrap();
    bench.pass(SECOND).await;
    assert!(bench.nodes[0].holder("b").is_some(), "the readers come back");
}
