//! Waiting: it ends with the lock or with an error, and every waiter gets a turn.

use quorlock::Wait;
use quorlock_testkit::MemoryNode;

use crate::common::{MS, TTL, acquiring, another, bench};

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
