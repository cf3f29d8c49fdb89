//! Measures the cost of a fencing token, on five real servers.
//!
//! First, acquiring with and without fencing, in turns, so that a machine whose speed drifts favours
//! neither: on loopback, where all servers and the client share the processors, and through proxies
//! that add one millisecond in each direction, like a network. Then, the share of acquisitions in which
//! the nodes had drawn different numbers, so that a second round had to write one back: with clients
//! that contend for one lock, and whose clocks agree or do not. `cargo bench --bench fencing`
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "a benchmark fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use quorlock::lock::Single;
use quorlock::{
    Coordinator, Fencing, Lock, RestartGuard, Wait,
    node::{Node, Request},
    protocol::Moment,
    redis::{Address, RedisNode},
    runtime::{Clock, Sleep, SystemClock},
};
use quorlock_testkit::{Proxy, Servers, Way, WrappedNode};

const TURNS: usize = 40;
const GRANTS: usize = 1_600;
const CLIENTS: usize = 8;

#[tokio::main]
async fn main() {
    let servers = Servers::start(5).await.unwrap();
    println!("five servers: {}", servers.kind());
    assert!(servers.kind().is_real(), "figures come from real servers only: install redis-server");
    println!("\non loopback");
    cost(&client(servers.urls()), 250).await;
    println!("\nover a network, 1 ms each way");
    let mut proxies = Vec::new();
    for server in servers.iter() {
        let proxy = Proxy::before(server).await.unwrap();
        proxy.delay(Way::Both, Duration::from_millis(1));
        proxies.push(proxy);
    }
    cost(&client(proxies.iter().map(Proxy::url).collect()), 25).await;
    println!("\n{CLIENTS} clients contend for one lock, {GRANTS} grants");
    for skew in [Duration::ZERO, Duration::from_millis(10), Duration::from_secs(1)] {
        second_rounds(&servers, skew).await;
    }
}

/// Latencies of one way to acquire.
struct Figures {
    acquire: Histogram<u64>,
    release: Histogram<u64>,
}

async fn cost(coordinator: &Coordinator, cycles: usize) {
    let ways = [("plain SET NX PX", Fencing::Off), ("with fencing", Fencing::On)];
    let mut figures = ways.map(|_| Figures { acquire: histogram(), release: histogram() });
    for turn in 0..TURNS {
        for ((_, fencing), figures) in ways.iter().zip(&mut figures) {
            for cycle in 0..cycles {
                let lock = coordinator.lock(format!("r{cycle}")).fencing(*fencing);
                // The first turn makes connections and creates the counters.
                measure(&lock, (turn > 0).then_some(&mut *figures)).await;
            }
        }
    }
    println!("{:<18}{:>28}{:>28}", "", "acquire p50 / p99 (µs)", "release p50 / p99 (µs)");
    for ((name, _), figures) in ways.iter().zip(&figures) {
        println!("{name:<18}{:>28}{:>28}", line(&figures.acquire), line(&figures.release));
    }
    let [plain, fenced] = figures;
    let ratio = |part: fn(&Figures) -> u64| ratio(part(&fenced), part(&plain));
    println!(
        "ratio: acquire {:.2}, acquire and release {:.2}",
        ratio(|figures| figures.acquire.value_at_quantile(0.5)),
        ratio(|figures| figures.acquire.value_at_quantile(0.5) + figures.release.value_at_quantile(0.5)),
    );
}

async fn measure(lock: &Lock<Single, Fencing>, figures: Option<&mut Figures>) {
    let clock = SystemClock::default();
    let start = clock.now();
    let lease = lock.try_acquire().await.unwrap().expect("the lock is uncontended");
    let acquired = clock.now();
    lease.release().await.unwrap();
    let released = clock.now();
    if let Some(figures) = figures {
        figures.acquire.saturating_record(micros(acquired.since(start)));
        figures.release.saturating_record(micros(released.since(acquired)));
    }
}

/// Clients whose calendars are up to `skew` apart.
async fn second_rounds(servers: &Servers, skew: Duration) {
    let written_back = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let part = u32::try_from(number).unwrap();
            let ahead = skew * part / u32::try_from(CLIENTS - 1).unwrap();
            let nodes = servers
                .urls()
                .into_iter()
                .map(|url| counting(RedisNode::new(Address::parse(&url).unwrap()), written_back.clone()));
            let client = Coordinator::builder().custom_nodes(nodes).clock(Ahead { ahead });
            let client = client.restart_guard(RestartGuard::Off).build().unwrap();
            let lock = client.lock(format!("skew {skew:?}")).wait(Wait::Forever);
            tokio::spawn(async move {
                for _ in 0..GRANTS / CLIENTS {
                    lock.acquire().await.unwrap().release().await.unwrap();
                }
                client.close(Duration::from_secs(1)).await;
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    // A second round asks all five nodes.
    let rounds = written_back.load(Ordering::Relaxed).div_ceil(5);
    println!(
        "clocks up to {skew:>5?} apart: {:.2} % needed a second round",
        100.0 * ratio(rounds as u64, GRANTS as u64)
    );
}

fn client(urls: Vec<String>) -> Coordinator {
    Coordinator::builder().nodes(urls).restart_guard(RestartGuard::Off).build().unwrap()
}

/// A clock whose calendar is ahead.
#[derive(Debug)]
struct Ahead {
    ahead: Duration,
}

impl Clock for Ahead {
    fn now(&self) -> Moment {
        SystemClock::default().now()
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        SystemClock::default().sleep_until(moment)
    }

    fn wall(&self) -> Duration {
        SystemClock::default().wall() + self.ahead
    }
}

/// Counts how often a number is written back.
fn counting(node: RedisNode, written_back: Arc<AtomicUsize>) -> WrappedNode {
    WrappedNode::new(node).on_request(move |request, responder, inner| {
        if matches!(*request, Request::WriteBack { .. }) {
            written_back.fetch_add(1, Ordering::Relaxed);
        }
        inner.ask(request, responder);
    })
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).unwrap()
}

fn line(histogram: &Histogram<u64>) -> String {
    let [p50, p99] = [0.5, 0.99].map(|quantile| histogram.value_at_quantile(quantile));
    format!("{p50} / {p99}")
}

#[expect(clippy::cast_precision_loss, reason = "figures of a benchmark are small numbers")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
