//! Measures the cost of a sick minority: acquire and release on five real servers, healthy, with one
//! and two of them hung (SIGSTOP), dead, and slower by 20 ms.
//!
//! The conditions take turns, many times, so that a machine whose speed drifts does not favour one of
//! them. Prints medians, tails and the ratio to healthy; slow servers are compared with the same
//! servers behind the same proxies without a delay. Then the cycles per second of many tasks, and the
//! cost of two slow nodes compared with a hand-written round, with a new name for each lock. `cargo
//! bench --bench sick_nodes`, or `-- slow` for the last part alone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    unreachable_pub,
    dead_code,
    missing_docs,
    reason = "a benchmark fails by panicking"
)]

use std::time::Duration;

use hdrhistogram::Histogram;
use quorlock::{
    Coordinator, RestartGuard,
    runtime::{Clock, SystemClock},
};
use quorlock_testkit::{Proxy, Servers, Way, eventually};

use limit::Multiplexed;
use tools::median;

mod limit;
mod tools;

const TURNS: usize = 12;
const CYCLES: usize = 250;
/// How long many tasks are counted.
const WINDOW_MILLIS: usize = 250;
const DEADLINE: Duration = Duration::from_secs(30);
/// How often the two slow nodes are compared, in turns.
const SLOW_ROUNDS: usize = 15;

struct Condition {
    name: &'static str,
    hung: usize,
    dead: usize,
    /// Reached through proxies.
    behind: usize,
    /// Whether those proxies deliver answers 20 ms late.
    slow: bool,
}

const fn healthy(name: &'static str, behind: usize) -> Condition {
    Condition { name, hung: 0, dead: 0, behind, slow: false }
}

const CONDITIONS: [Condition; 9] = [
    healthy("healthy", 0),
    Condition { hung: 1, ..healthy("1 of 5 hung", 0) },
    Condition { hung: 2, ..healthy("2 of 5 hung", 0) },
    Condition { dead: 1, ..healthy("1 of 5 dead", 0) },
    Condition { dead: 2, ..healthy("2 of 5 dead", 0) },
    healthy("1 behind a proxy", 1),
    Condition { slow: true, ..healthy("1 of 5 slow", 1) },
    healthy("2 behind proxies", 2),
    Condition { slow: true, ..healthy("2 of 5 slow", 2) },
];

struct Figures {
    acquire: Histogram<u64>,
    release: Histogram<u64>,
}

#[tokio::main]
async fn main() {
    let servers = Servers::start(5).await.unwrap();
    println!("five servers: {}", servers.kind());
    assert!(servers.kind().is_real(), "figures come from real servers only: install redis-server");
    if std::env::args().any(|word| word == "slow") {
        return compare_by_hand(&servers).await;
    }
    // One client for each number of proxied servers.
    let mut clients = Vec::new();
    for behind in 0..3 {
        let mut urls = servers.urls();
        let mut proxies = Vec::new();
        for (url, server) in urls.iter_mut().zip(servers.iter()).take(behind) {
            let proxy = Proxy::before(server).await.unwrap();
            *url = proxy.url();
            proxies.push(proxy);
        }
        let builder = Coordinator::builder().nodes(urls).restart_guard(RestartGuard::Off);
        clients.push((builder.build().unwrap(), proxies));
    }
    let mut figures = CONDITIONS.map(|_| Figures {
        acquire: Histogram::new_with_bounds(1, 60_000_000, 3).unwrap(),
        release: Histogram::new_with_bounds(1, 60_000_000, 3).unwrap(),
    });
    for _ in 0..TURNS {
        for (condition, figures) in CONDITIONS.iter().zip(&mut figures) {
            let (coordinator, proxies) = clients.get(condition.behind).unwrap();
            all_well(coordinator).await;
            for proxy in proxies {
                proxy.delay(Way::ToClient, Duration::from_millis(if condition.slow { 20 } else { 0 }));
            }
            fall_ill(&servers, condition);
            measure(coordinator, figures).await;
            recover(&servers, condition).await;
        }
    }
    println!(
        "{:<18}{:>32}{:>32}{:>10}",
        "", "acquire p50 / p99 / max (µs)", "release p50 / p99 / max (µs)", "ratio"
    );
    let cycle =
        |figures: &Figures| figures.acquire.value_at_quantile(0.5) + figures.release.value_at_quantile(0.5);
    let mut well = 1;
    for (condition, figures) in CONDITIONS.iter().zip(&figures) {
        if condition.is_healthy() {
            well = cycle(figures);
        }
        #[expect(clippy::cast_precision_loss, reason = "microseconds of a cycle are small numbers")]
        let ratio = cycle(figures) as f64 / well as f64;
        let (acquire, release) = (line(&figures.acquire), line(&figures.release));
        println!("{:<18}{acquire:>32}{release:>32}{ratio:>10.2}", condition.name);
    }
    let (coordinator, _) = clients.first().unwrap();
    throughput(&servers, coordinator).await;
    compare_by_hand(&servers).await;
}

/// The cost of two nodes that answer 20 ms late, for quorlock and for a hand-written round over the
/// client crate.
async fn compare_by_hand(servers: &Servers) {
    let (mut urls, mut proxies) = (servers.urls(), Vec::new());
    for (url, server) in urls.iter_mut().zip(servers.iter()).take(2) {
        let proxy = Proxy::before(server).await.unwrap();
        *url = proxy.url();
        proxies.push(proxy);
    }
    let client = Coordinator::builder().nodes(&urls).restart_guard(RestartGuard::Off).build().unwrap();
    let by_hand = Multiplexed::connect(&urls).await;
    all_well(&client).await;
    let (clock, mut number) = (SystemClock::default(), 0);
    let mut ratios = [Vec::new(), Vec::new()];
    for round in 0..=SLOW_ROUNDS {
        // The medians of quorlock and of the hand-written round, healthy and slow.
        let mut medians = [[0.0; 2]; 2];
        for (slow, medians) in medians.iter_mut().enumerate() {
            for proxy in &proxies {
                proxy.delay(Way::ToClient, Duration::from_millis(20 * slow as u64));
            }
            for (subject, its) in medians.iter_mut().enumerate() {
                let mut cycles = Vec::with_capacity(CYCLES);
                for _ in 0..CYCLES {
                    number += 1;
                    let (name, began) = (format!("slow-{number}"), clock.now());
                    if subject == 0 {
                        client.lock(name).acquire().await.unwrap().release().await.unwrap();
                    } else {
                        by_hand.cycle(&name).await;
                    }
                    cycles.push(clock.now().since(began).as_micros() as f64);
                }
                *its = median(cycles);
            }
        }
        let [healthy, slow] = medians;
        // The first round makes connections.
        if round > 0 {
            for ((ratios, healthy), slow) in ratios.iter_mut().zip(healthy).zip(slow) {
                ratios.push(slow / healthy);
            }
        }
    }
    let [ours, by_hand] = ratios.map(median);
    println!("\n2 of 5 slower by 20 ms, medians of {SLOW_ROUNDS} ratios of medians to healthy:");
    println!("quorlock {ours:.2}, a round by hand {by_hand:.2}");
}

impl Condition {
    fn is_healthy(&self) -> bool {
        self.hung == 0 && self.dead == 0 && !self.slow
    }
}

fn fall_ill(servers: &Servers, condition: &Condition) {
    for server in servers.iter().take(condition.hung) {
        server.freeze().unwrap();
    }
    for server in servers.iter().take(condition.dead) {
        server.kill();
    }
}

async fn recover(servers: &Servers, condition: &Condition) {
    for server in servers.iter().take(condition.hung) {
        server.thaw().unwrap();
    }
    for server in servers.iter().take(condition.dead) {
        server.restart_empty().await.unwrap();
    }
}

/// Cycles per second of many tasks, each with its own locks.
async fn throughput(servers: &Servers, coordinator: &Coordinator) {
    let conditions: Vec<_> = CONDITIONS.iter().filter(|condition| condition.behind == 0).collect();
    print!("\n{:<18}", "cycles/s");
    for condition in &conditions {
        print!("{:>14}", condition.name);
    }
    println!();
    for tasks in [16, 64, 256] {
        let mut rates: Vec<Vec<usize>> = conditions.iter().map(|_| Vec::new()).collect();
        for _ in 0..5 {
            for (condition, rates) in conditions.iter().zip(&mut rates) {
                all_well(coordinator).await;
                fall_ill(servers, condition);
                rates.push(cycles(coordinator, tasks).await);
                recover(servers, condition).await;
            }
        }
        print!("{:<18}", format!("{tasks} tasks"));
        for rates in &mut rates {
            rates.sort_unstable();
            print!("{:>14}", rates.get(rates.len() / 2).unwrap() * 1000 / WINDOW_MILLIS);
        }
        println!();
    }
}

/// How many cycles `tasks` tasks complete in a while.
async fn cycles(coordinator: &Coordinator, tasks: usize) -> usize {
    let clock = SystemClock::default();
    let end = clock.now() + Duration::from_millis(WINDOW_MILLIS as u64);
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let lock = coordinator.lock(format!("task {task}"));
            tokio::spawn(async move {
                let mut cycles = 0;
                while clock.now() < end {
                    lock.acquire().await.unwrap().release().await.unwrap();
                    cycles += 1;
                }
                cycles
            })
        })
        .collect();
    let mut all = 0;
    for task in running {
        all += task.await.unwrap();
    }
    all
}

/// Waits until every server is connected and answers.
async fn all_well(coordinator: &Coordinator) {
    let lock = coordinator.lock("health");
    eventually("five healthy servers", DEADLINE, async || {
        lock.inspect()
            .await
            .unwrap()
            .votes()
            .iter()
            .all(|paper| matches!(paper.outcome, quorlock::votes::VoteOutcome::Free))
    })
    .await
    .unwrap();
}

async fn measure(coordinator: &Coordinator, figures: &mut Figures) {
    let clock = SystemClock::default();
    for cycle in 0..CYCLES {
        let lock = coordinator.lock(format!("r{cycle}"));
        let start = clock.now();
        let lease = lock.try_acquire().await.unwrap().expect("the lock is uncontended");
        let acquired = clock.now();
        lease.release().await.unwrap();
        let released = clock.now();
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        figures.acquire.saturating_record(micros(acquired.since(start)));
        figures.release.saturating_record(micros(released.since(acquired)));
    }
}

fn line(histogram: &Histogram<u64>) -> String {
    let [p50, p99] = [0.5, 0.99].map(|quantile| histogram.value_at_quantile(quantile));
    format!("{p50} / {p99} / {}", histogram.max())
}
