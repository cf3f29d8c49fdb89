//! What a sick minority costs: acquire and release on five real servers, healthy, with one and
//! two of them hung (SIGSTOP), dead, and slower by 20 ms.
//!
//! The conditions take turns, many times, so that a machine whose speed drifts does not favour one
//! of them. Prints medians, tails and the ratio to healthy. `cargo bench --bench sick_nodes`
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a benchmark fails by panicking"
)]

use std::time::Duration;

use hdrhistogram::Histogram;
use quorlock::{Clock, Coordinator, RestartGuard, SystemClock};
use quorlock_testkit::{Proxy, Servers, Way, eventually};

const TURNS: usize = 12;
const CYCLES: usize = 250;
const DEADLINE: Duration = Duration::from_secs(30);

struct Condition {
    name: &'static str,
    hung: usize,
    dead: usize,
    /// Answers come 20 ms late.
    slow: usize,
}

const CONDITIONS: [Condition; 7] = [
    Condition { name: "healthy", hung: 0, dead: 0, slow: 0 },
    Condition { name: "1 of 5 hung", hung: 1, dead: 0, slow: 0 },
    Condition { name: "2 of 5 hung", hung: 2, dead: 0, slow: 0 },
    Condition { name: "1 of 5 dead", hung: 0, dead: 1, slow: 0 },
    Condition { name: "2 of 5 dead", hung: 0, dead: 2, slow: 0 },
    Condition { name: "1 of 5 slow", hung: 0, dead: 0, slow: 1 },
    Condition { name: "2 of 5 slow", hung: 0, dead: 0, slow: 2 },
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
    // One client for each number of servers that it reaches through slow proxies.
    let mut proxies = Vec::new();
    let mut coordinators = Vec::new();
    for slow in 0..3 {
        let mut urls = servers.urls();
        for (url, server) in urls.iter_mut().zip(servers.iter()).take(slow) {
            let proxy = Proxy::start(server.address()).await.unwrap();
            proxy.delay(Way::ToClient, Duration::from_millis(20));
            *url = proxy.url();
            proxies.push(proxy);
        }
        let builder = Coordinator::builder().nodes(urls).restart_guard(RestartGuard::Off);
        coordinators.push(builder.build().unwrap());
    }
    let mut figures = CONDITIONS.map(|_| Figures {
        acquire: Histogram::new_with_bounds(1, 60_000_000, 3).unwrap(),
        release: Histogram::new_with_bounds(1, 60_000_000, 3).unwrap(),
    });
    for _ in 0..TURNS {
        for (condition, figures) in CONDITIONS.iter().zip(&mut figures) {
            let coordinator = coordinators.get(condition.slow).unwrap();
            all_well(coordinator).await;
            for server in servers.iter().take(condition.hung) {
                server.freeze().unwrap();
            }
            for server in servers.iter().take(condition.dead) {
                server.kill();
            }
            measure(coordinator, figures).await;
            for server in servers.iter() {
                if server.pid().is_some() {
                    server.thaw().unwrap();
                } else {
                    server.restart_empty().await.unwrap();
                }
            }
        }
    }
    println!(
        "{:<14}{:>32}{:>32}{:>10}",
        "", "acquire p50 / p99 / max (µs)", "release p50 / p99 / max (µs)", "ratio"
    );
    let cycle =
        |figures: &Figures| figures.acquire.value_at_quantile(0.5) + figures.release.value_at_quantile(0.5);
    let healthy = figures.first().map_or(1, cycle);
    for (Condition { name, .. }, figures) in CONDITIONS.iter().zip(&figures) {
        #[expect(clippy::cast_precision_loss, reason = "microseconds of a cycle are small numbers")]
        let ratio = cycle(figures) as f64 / healthy as f64;
        println!("{name:<14}{:>32}{:>32}{ratio:>10.2}", line(&figures.acquire), line(&figures.release));
    }
}

/// Waits until every server is connected and answers.
async fn all_well(coordinator: &Coordinator) {
    let lock = coordinator.lock("health");
    eventually("five healthy servers", DEADLINE, async || {
        lock.inspect().await.unwrap().papers().iter().all(|paper| matches!(paper.said, quorlock::Said::Free))
    })
    .await
    .unwrap();
}

async fn measure(coordinator: &Coordinator, figures: &mut Figures) {
    let clock = SystemClock::default();
    for cycle in 0..CYCLES {
        let lock = coordinator.lock(format!("r{cycle}"));
        let start = clock.now();
        let lease = lock.try_acquire().await.unwrap().expect("nobody else wants it");
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
