//! Nodes: a sick minority never delays a call.

use quorlock::node::NodeErrorKind;
use quorlock_testkit::MemoryNode;

use crate::common::{MS, TTL, bench, bench_by_default};

#[tokio::test(start_paused = true)]
async fn a_sick_minority_delays_no_call() {
    let troubles: [fn(&MemoryNode); 5] = [
        MemoryNode::hang,
        MemoryNode::disconnect,
        MemoryNode::connecting,
        |node| node.lose_replies(true),
        |node| node.fail(NodeErrorKind::OutOfSpace, "OOM command not allowed when used memory > 'maxmemory'"),
    ];
    for (number, failure) in troubles.into_iter().enumerate() {
        for sick in 1..=2 {
            let bench = bench(5);
            drop(bench.lock().acquire().await.unwrap());
            bench.settle().await;
            bench.nodes[..sick].iter().for_each(failure);
            for _ in 0..20 {
                let before = bench.clock.now();
                let lease = bench.lock().acquire().await.unwrap();
                lease.renew().await.unwrap();
                lease.release().await.unwrap();
                assert_eq!(bench.clock.now(), before, "{sick} of 5 with trouble number {number}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_ttl_works_although_a_node_hangs() {
    let bench = bench_by_default(3, |builder| builder);
    bench.nodes[1].hang();
    let lease = bench.lock().ttl(400 * MS).acquire().await.unwrap();
    for _ in 0..50 {
        bench.pass(100 * MS).await;
        assert_eq!(lease.check(), Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn calls_to_a_hung_node_leave_no_task() {
    let bench = bench(5);
    drop(bench.lock().acquire().await.unwrap());
    bench.pass(2 * TTL).await;
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = alive();
    bench.nodes[0].hang();
    for _ in 0..60 {
        bench.lock().acquire().await.unwrap().release().await.unwrap();
    }
    // The keys that the node did not confirm have expired.
    bench.pass(TTL + TTL / 50).await;
    assert!(alive() <= before, "{} tasks, and {before} before", alive());
}
