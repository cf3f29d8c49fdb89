//! Waiting: it ends with the lock or with an error, and every waiter gets a turn.

use std::time::Duration;

use quorlock::{AcquireError, Lock, Wait};
use quorlock_testkit::MemoryNode;

use crate::common::{Bench, TTL, acquiring, another, bench};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_free_lock_is_acquired_though_the_nodes_stalled() {
    let bench = bench(5);
    bench.nodes.iter().for_each(MemoryNode::hang);
    let waiting = acquiring(bench.lock().wait(Wait::Forever));
    bench.pass(100 * MS).await;
    bench.nodes.iter().for_each(MemoryNode::resume);
    let before = bench.clock.now();
    drop(waiting.await.unwrap().unwrap());
    let took = bench.clock.now().since(before);
    assert!(took <= 110 * MS, "no node sends a hint, so it must retry on its own: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn no_task_is_stranded_on_a_free_lock() {
    for tasks in [2, 3, 16, 64] {
        let bench = bench(5);
        for (index, node) in (0..).zip(&bench.nodes) {
            node.delay(index * MS / 2, index * MS / 3);
        }
        let clients = [
            bench.coordinator.clone(),
            another(&bench.clock, &bench.nodes, |builder| builder),
            another(&bench.clock, &bench.nodes, |builder| builder),
        ];
        let before = bench.clock.now();
        let running: Vec<_> = (0..tasks)
            .map(|task: usize| {
                let lock = clients[task % 3].lock("r").ttl(TTL).wait(Wait::Forever);
                tokio::spawn(async move {
                    for _ in 0..10 {
                        lock.acquire().await.unwrap().release().await.unwrap();
                    }
                })
            })
            .collect();
        for task in running {
            task.await.unwrap();
        }
        // A handoff takes a few milliseconds. A waiter that is woken only by its timer waits for a
        // second.
        let each = bench.clock.now().since(before) / (u32::try_from(tasks).unwrap() * 10);
        assert!(each <= 30 * MS, "{each:?} for each of the grants to {tasks} tasks");
    }
}

#[tokio::test(start_paused = true)]
async fn no_task_starves_among_greedy_ones() {
    let bench = bench(5);
    bench.delay(MS / 2, MS / 2);
    let end = bench.clock.now() + Duration::from_secs(20);
    let greedy: Vec<_> = (0..16)
        .map(|_| {
            let (lock, clock) = (bench.lock().wait(Wait::Forever), bench.clock.clone());
            tokio::spawn(async move {
                let mut turns = 0;
                while clock.now() < end {
                    let lease = lock.acquire().await.unwrap();
                    turns += 1;
                    clock.sleep_until(clock.now() + MS).await;
                    lease.release().await.unwrap();
                }
                turns
            })
        })
        .collect();
    let mut turns = Vec::new();
    for task in greedy {
        turns.push(task.await.unwrap());
    }
    let (fewest, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
    assert!(*fewest >= 100 && most - fewest <= 2, "{turns:?} turns each");
}

/// The duration of a wait that fails.
async fn patience(bench: &Bench, lock: &Lock) -> Duration {
    let before = bench.clock.now();
    lock.acquire().await.unwrap_err();
    bench.clock.now().since(before)
}

#[tokio::test(start_paused = true)]
async fn a_lock_waits_as_long_the_second_time_as_the_first() {
    let bench = bench(5);
    let other = another(&bench.clock, &bench.nodes, |builder| builder);
    let _held = bench.lock().acquire().await.unwrap();
    let lock = other.lock("r").ttl(TTL).wait(Wait::UpTo(Duration::from_secs(3)));
    for attempt in 1..=4 {
        let waited = patience(&bench, &lock).await;
        assert!(waited >= Duration::from_secs(3), "attempt {attempt} gave up after {waited:?}");
        assert!(waited <= Duration::from_millis(3_060), "attempt {attempt} waited {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_ends_the_wait_with_a_reason() {
    let bench = bench(3);
    bench.nodes.iter().for_each(MemoryNode::disconnect);
    let lock = bench.coordinator.lock("r");
    let before = bench.clock.now();
    let error = lock.acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("node-1, node-2, node-3: unreachable"), "{error}");
    let waited = bench.clock.now().since(before);
    assert!(waited <= Duration::from_millis(35_060), "waited longer than the default: {waited:?}");
}

#[tokio::test(start_paused = true)]
async fn all_waiters_get_a_turn_soon_after_a_long_hold() {
    let bench = bench(5);
    bench.delay(MS, MS);
    let held = bench.lock().wait(Wait::Forever).acquire().await.unwrap();
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let client = another(&bench.clock, &bench.nodes, |builder| builder);
            let (lock, clock) = (client.lock("r").ttl(TTL).wait(Wait::Forever), bench.clock.clone());
            tokio::spawn(async move {
                let lease = lock.acquire().await.unwrap();
                clock.sleep_until(clock.now() + MS).await;
                lease.release().await.unwrap();
            })
        })
        .collect();
    bench.pass(Duration::from_secs(60)).await;
    let before = bench.clock.now();
    held.release().await.unwrap();
    for task in waiting {
        task.await.unwrap();
    }
    let took = bench.clock.now().since(before);
    assert!(took <= 400 * MS, "{took:?} for ten turns of some 10 ms");
}

#[tokio::test(start_paused = true)]
async fn a_zero_wait_asks_once() {
    let bench = bench(3);
    bench.delay(MS, MS);
    let lock = bench.lock().wait(Wait::UpTo(Duration::ZERO));
    let lease = lock.acquire().await.expect("a free lock is acquired without waiting");
    let error = lock.acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::Contended { .. }), "{error}");
    lease.release().await.unwrap();
}
