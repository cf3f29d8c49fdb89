//! How often a cycle of acquire and release allocates, and how many bytes, beside the round written
//! by hand over the client crate. A program of its own, because counting costs time.
//! `cargo bench --bench allocations`
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    unreachable_pub,
    dead_code,
    missing_docs,
    reason = "a benchmark fails by panicking, and its counts are small numbers"
)]

use std::alloc::System;
use std::sync::Arc;

use quorlock::{Coordinator, Fencing, RestartGuard};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use limit::Multiplexed;
use tools::five_servers;

mod limit;
mod tools;

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CYCLES: usize = 12_800;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let servers = five_servers().await;
    let multiplexed = Arc::new(Multiplexed::connect(&servers.urls()).await);
    let coordinator = Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off);
    let coordinator = coordinator.build().unwrap();
    println!("{:<22}{:>7}{:>20}{:>14}", "", "tasks", "allocations/cycle", "bytes/cycle");
    for tasks in [1, 64] {
        let by_hand = multiplexed.clone();
        count("client crate", tasks, move |task| {
            let (by_hand, key) = (by_hand.clone(), format!("crate{task}"));
            async move {
                for _ in 0..CYCLES / tasks {
                    by_hand.cycle(&key).await;
                }
            }
        })
        .await;
        for (name, fencing) in [("quorlock, plain", Fencing::Off), ("quorlock, fenced", Fencing::On)] {
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
    // Once to make connections, and once to count.
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
