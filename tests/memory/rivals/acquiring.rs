//! Acquiring: a returned lease is held, and a failed attempt leaves no key.

use std::time::Duration;

use quorlock::{AcquireError, Wait, node::Expiry, runtime::Clock as _};

use crate::common::{LATE, MS, TTL, acquiring, bench};

const FOREIGN: &str = "another client";

#[tokio::test(start_paused = true)]
async fn every_mix_of_free_held_and_dead_nodes_settles_and_leaves_no_key() {
    for count in 1..=7 {
        for held in 0..=count {
            for dead in 0..=count - held {
                let bench = bench(count);
                for node in &bench.nodes[..held] {
                    node.set_data("r", FOREIGN, Expiry::In(TTL));
                }
                for node in &bench.nodes[count - dead..] {
                    node.disconnect();
                }
                let (free, quorum) = (count - held - dead, count / 2 + 1);
                let before = bench.clock.now();
                let outcome = bench.lock().try_acquire().await;
                // If no client can have the lock, a retry is useful.
                let split = held > 0 && free < quorum && held + dead < quorum;
                let patience = if split { 200 * MS } else { Duration::ZERO };
                let took = bench.clock.now().since(before);
                assert!(took <= patience, "{held} of {count} held, {dead} dead: {took:?}");
                let as_it_should = match &outcome {
                    Ok(Some(_)) => free >= quorum,
                    Ok(None) => free < quorum && free + held >= quorum,
                    Err(error) => free + held < quorum && matches!(error, AcquireError::Unavailable { .. }),
                };
                assert!(as_it_should, "{held} of {count} held, {dead} dead: {outcome:?}");
                if free < quorum {
                    bench.pass(LATE).await;
                    assert_eq!(bench.keys(), held, "a key is left: {held} of {count} held, {dead} dead");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn refused_attempts_leave_no_key() {
    let bench = bench(5);
    for node in &bench.nodes[..3] {
        node.set_data("r", FOREIGN, Expiry::In(TTL));
    }
    // Their grants arrive long after the attempt was decided.
    for node in &bench.nodes[3..] {
        node.delay(10 * MS, 10 * MS);
    }
    for _ in 0..300 {
        assert!(bench.lock().try_acquire().await.unwrap().is_none());
    }
    bench.pass(LATE).await;
    assert!(bench.nodes[3].requests().acquire >= 300, "they were asked");
    assert!(bench.nodes[3..].iter().all(|node| node.holder("r").is_none()), "and have no key");
    assert!(bench.nodes[..3].iter().all(|node| node.holder("r").is_some()), "the holder keeps its keys");
}

#[tokio::test(start_paused = true)]
async fn a_stale_key_on_a_minority_blocks_no_waiter() {
    for (count, stale) in (0..3).map(|first| (3, vec![first])).chain([(5, vec![0, 1]), (5, vec![2, 4])]) {
        for hints in [true, false] {
            let bench = bench(count);
            for (index, node) in bench.nodes.iter().enumerate() {
                node.hints(hints);
                let left_behind = stale.contains(&index);
                let (value, life) = if left_behind { ("left behind", 60 * TTL) } else { (FOREIGN, TTL) };
                node.set_data("r", value, Expiry::In(life));
            }
            let waiting = acquiring(bench.lock().wait(Wait::Forever));
            bench.pass(Duration::from_secs(1)).await;
            let before = bench.clock.now();
            for (index, node) in bench.nodes.iter().enumerate() {
                if !stale.contains(&index) {
                    node.remove("r");
                }
            }
            drop(waiting.await.unwrap().unwrap());
            let waited = bench.clock.now().since(before);
            assert!(waited <= Duration::from_secs(1), "{stale:?} of {count} are stale: waited {waited:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn own_keys_of_an_earlier_attempt_block_no_client() {
    for held in 0..3 {
        let bench = bench(3);
        bench.nodes[held].set_data("r", FOREIGN, Expiry::In(60 * TTL));
        let soon_free = &bench.nodes[(held + 1) % 3];
        soon_free.set_data("r", FOREIGN, Expiry::In(60 * TTL));
        // The third node is free, and grants the failing attempts.
        let waiting = acquiring(bench.lock().wait(Wait::UpTo(TTL)));
        bench.pass(300 * MS).await;
        soon_free.remove("r");
        let lease = waiting.await.unwrap();
        assert!(lease.is_ok(), "node {held} stays held: {lease:?}");
    }
}
