//! Counts the allocations, and their bytes, of one acquire and release, next to a round written by hand
//! over the client crate. A separate program, because counting costs time. `cargo bench --bench
//! allocations`; `CYCLES`, `TASKS` and `SUBJECT` (its number, from 0) in the environment select what is
//! counted, for example for a profiler.
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
use tools::{five_servers, setting};

mod limit;
mod tools;

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let servers = five_servers().await;
    let multiplexed = Arc::new(Multiplexed::connect(&servers.urls()).await);
    let coordinator = Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off);
    let coordinator = coordinator.build().unwrap();
    println!("{:<22}{:>7}{:>20}{:>14}", "", "tasks", "allocations/cycle", "bytes/cycle");
    let (cycles, only) = (setting("CYCLES", 12_800), setting("SUBJECT", 3));
    let numbers = match setting("TASKS", 0) {
        0 => vec![1, 64],
        tasks => vec![tasks],
    };
    for tasks in numbers {
        let by_hand = multiplexed.clone();
        if only == 0 || only >= 3 {
            count("client crate", tasks, cycles, move |task| {
                let (by_hand, key) = (by_hand.clone(), format!("crate{task}"));
                async move {
                    for _ in 0..cycles / tasks {
                        by_hand.cycle(&key).await;
                    }
                }
            })
            .await;
        }
        let ours = [(1, "quorlock, plain", Fencing::Off), (2, "quorlock, fenced", Fencing::On)];
        for (_, name, fencing) in ours.into_iter().filter(|(subject, ..)| only == *subject || only >= 3) {
            count(name, tasks, cycles, |task| {
                let lock = coordinator.lock(format!("{name}{task}")).fencing(fencing);
                async move {
                    for _ in 0..cycles / tasks {
                        lock.acquire().await.unwrap().release().await.unwrap();
                    }
                }
            })
            .await;
        }
    }
}

async fn count<F>(name: &str, tasks: usize, cycles: usize, work: impl Fn(usize) -> F)
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
            let each = |count: usize| count as f64 / cycles as f64;
            let allocations = each(change.allocations + change.reallocations);
            println!("{name:<22}{tasks:>7}{allocations:>20.1}{:>14.0}", each(change.bytes_allocated));
        }
    }
}
