//! Counts the allocations, and their bytes, of one acquire and release. A separate program, because counting costs time.
//! `cargo bench --bench allocations`
#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    missing_docs,
    reason = "a benchmark fails by panicking, and its counts are small numbers"
)]

use std::alloc::System;

use quorlock::{Coordinator, Fencing, RestartGuard};
use quorlock_testkit::Servers;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CYCLES: usize = 12_800;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let servers = Servers::start(5).await.unwrap();
    assert!(servers.kind().is_real(), "a simulated server is part of this process");
    let coordinator = Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off);
    let coordinator = coordinator.build().unwrap();
    println!("{:<22}{:>7}{:>20}{:>14}", "", "tasks", "allocations/cycle", "bytes/cycle");
    for tasks in [1, 64] {
        for (name, fencing) in [("no fencing", Fencing::Off), ("fencing", Fencing::On)] {
            count(name, tasks, |task| {
                let lock = coordinator.lock(format!("{name}{task}")).fencing(fencing);
                async move {
                    for _ in 0..CYCLES / tasks {
                        lock.acquire().await.unwrap().release().await.unwrap();
                    }
                }
            })
            .await;
        }
    }
}

async fn count<F>(name: &str, tasks: usize, work: impl Fn(usize) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    // The first run makes connections, the second one is counted.
    for warm in [true, false] {
        let region = Region::new(COUNTING);
        let running: Vec<_> = (0..tasks).map(|task| tokio::spawn(work(task))).collect();
        for task in running {
            task.await.unwrap();
        }
        let change = region.change();
        if !warm {
            let each = |count: usize| count as f64 / CYCLES as f64;
            let allocations = each(change.allocations + change.reallocations);
            println!("{name:<22}{tasks:>7}{allocations:>20.1}{:>14.0}", each(change.bytes_allocated));
        }
    }
}
