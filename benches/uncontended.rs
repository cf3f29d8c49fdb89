//! Measures an uncontended lock: acquire and release on five real servers, by 1 to 256 tasks, compared
//! with the baselines: the same two commands over the same client crate, and over plain sockets (see
//! `limit`).
//!
//! The subjects take turns, many times, so that a machine whose speed drifts favours none of them.
//! Prints medians, tails, the processor time of this process and the commands per cycle, and the ratios
//! to the baselines. `cargo bench --bench uncontended`; `TURNS`, `TASKS`, `THREADS` and `SUBJECT` (its
//! number, from 0) in the environment select what is measured, for example for a profiler.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    unreachable_pub,
    missing_docs,
    reason = "a benchmark fails by panicking, and its counts are small numbers"
)]

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use quorlock::lock::Single;
use quorlock::protocol::Moment;
use quorlock::{
    Coordinator, Fencing, Lock, RestartGuard,
    runtime::{Clock, SystemClock},
};

use limit::{Multiplexed, Raw};
use tools::{commands, five_servers, histogram, median, micros, processor_time, setting};

mod limit;
mod tools;

const WINDOW: Duration = Duration::from_millis(250);

/// The subjects, in the order of the table.
const SUBJECTS: [&str; 4] = ["raw sockets", "client crate", "quorlock, plain", "quorlock, fenced"];
const RAW: usize = 0;
const CRATE: usize = 1;
const PLAIN: usize = 2;
const FENCED: usize = 3;

fn main() {
    let threads = setting("THREADS", 2);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    // Spawned, so that all tasks run on the workers.
    let runtime = runtime.unwrap();
    runtime.block_on(async { tokio::spawn(measure()).await.unwrap() });
}

/// All subjects that can acquire and release.
struct Subjects {
    raw: Raw,
    multiplexed: Multiplexed,
    coordinator: Coordinator,
}

/// A subject as seen by one task.
enum Contender {
    Raw(limit::Encoded),
    Multiplexed(String),
    Quorlock(Lock<Single, Fencing>),
}

#[derive(Default)]
struct Figures {
    times: Option<Histogram<u64>>,
    rates: Vec<f64>,
    processor: Vec<f64>,
    commands: Vec<f64>,
}

async fn measure() {
    let servers = five_servers().await;
    let multiplexed = Multiplexed::connect(&servers.urls()).await;
    let raw = Raw::connect(servers.iter().map(quorlock_testkit::Server::address)).await;
    let coordinator = Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off);
    let coordinator = coordinator.build().unwrap();
    let subjects = Arc::new(Subjects { raw, multiplexed, coordinator });
    let turns = setting("TURNS", 8);
    let only = setting("SUBJECT", 4);
    let tasks = match setting("TASKS", 0) {
        0 => vec![1, 16, 64, 256],
        tasks => vec![tasks],
    };
    for tasks in tasks {
        let mut figures: [Figures; 4] = Default::default();
        for turn in 0..turns {
            for (subject, figures) in figures.iter_mut().enumerate() {
                if only < 4 && only != subject {
                    continue;
                }
                let before = (commands(&servers, subject != FENCED).await, processor_time());
                let times = run(&subjects, subject, tasks).await;
                let after = (processor_time(), commands(&servers, subject != FENCED).await);
                // The first turn makes connections and fills the allocator's pools.
                if turn > 0 {
                    let cycles = times.len() as f64;
                    figures.rates.push(cycles / WINDOW.as_secs_f64());
                    figures.processor.push(after.0.saturating_sub(before.1).as_secs_f64() * 1e6 / cycles);
                    figures.commands.push((after.1 - before.0) as f64 / cycles);
                    figures.times.get_or_insert_with(histogram).add(times).unwrap();
                }
            }
        }
        report(tasks, figures);
    }
}

/// Runs one subject for a while, and returns how long its cycles took.
async fn run(subjects: &Arc<Subjects>, subject: usize, tasks: usize) -> Histogram<u64> {
    let clock = SystemClock::default();
    let end = clock.now() + WINDOW;
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let subjects = subjects.clone();
            tokio::spawn(async move {
                let contender = contender(&subjects, subject, task);
                let mut times = Vec::<u64>::with_capacity(4096);
                let mut start = clock.now();
                while start < end {
                    cycle(&subjects, &contender).await;
                    let now: Moment = clock.now();
                    times.push(micros(now.since(start)));
                    start = now;
                }
                times
            })
        })
        .collect();
    let mut times = histogram();
    for task in tasks {
        for time in task.await.unwrap() {
            times.saturating_record(time);
        }
    }
    times
}

fn contender(subjects: &Subjects, subject: usize, task: usize) -> Contender {
    match subject {
        RAW => Contender::Raw(subjects.raw.encode(&format!("raw{task}"))),
        CRATE => Contender::Multiplexed(format!("crate{task}")),
        PLAIN => Contender::Quorlock(subjects.coordinator.lock(format!("q{task}")).fencing(Fencing::Off)),
        _ => Contender::Quorlock(subjects.coordinator.lock(format!("f{task}")).fencing(Fencing::On)),
    }
}

async fn cycle(subjects: &Subjects, contender: &Contender) {
    match contender {
        Contender::Raw(encoded) => subjects.raw.cycle(encoded).await,
        Contender::Multiplexed(key) => subjects.multiplexed.cycle(key).await,
        Contender::Quorlock(lock) => lock.acquire().await.unwrap().release().await.unwrap(),
    }
}

fn report(tasks: usize, figures: [Figures; 4]) {
    println!(
        "\n{:<22}{:>10}{:>18}{:>14}{:>12}",
        format!("{tasks} tasks"),
        "cycles/s",
        "p50 / p99 (µs)",
        "CPU µs/cycle",
        "commands"
    );
    let medians = figures.map(|Figures { times, rates, processor, commands }| {
        let times = times.unwrap_or_else(histogram);
        let quantiles = [0.5, 0.99].map(|quantile| times.value_at_quantile(quantile) as f64);
        (median(rates), quantiles, median(processor), median(commands))
    });
    for (name, (rate, [p50, p99], processor, commands)) in SUBJECTS.iter().zip(&medians) {
        let time = format!("{p50:.0} / {p99:.0}");
        println!("{name:<22}{rate:>10.0}{time:>18}{processor:>14.1}{commands:>12.1}");
    }
    let (rate, time, processor) =
        (|s: usize| medians[s].0, |s: usize| medians[s].1[0], |s: usize| medians[s].2);
    println!(
        "plain: p50 {:.2} and CPU {:.2} of the client crate's, throughput {:.2} of raw; fenced to plain: p50 {:.2}, throughput {:.2}, CPU {:.2}",
        time(PLAIN) / time(CRATE),
        processor(PLAIN) / processor(CRATE),
        rate(PLAIN) / rate(RAW),
        time(FENCED) / time(PLAIN),
        rate(FENCED) / rate(PLAIN),
        processor(FENCED) / processor(PLAIN),
    );
}
