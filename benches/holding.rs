//! Measures the cost of holding locks and of waiting for one: ten thousand leases of 30 s, held and
//! renewed, and ten thousand tasks that wait for one lock, in this process, on five real servers.
//!
//! Prints resident memory and CPU share, compared with a plain table of names and tokens. `cargo bench
//! --bench holding`; `COUNT` in the environment sets the number of leases and tasks, and `ROUND_TRIP`
//! adds that many milliseconds to each round trip.
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

use std::time::Duration;

use quorlock::lock::Single;
use quorlock::{
    Coordinator, Fencing, RestartGuard, Wait,
    runtime::{Clock, SystemClock},
};

use quorlock_testkit::{Proxy, Servers, Way};
use tools::{commands, processor_time, resident, setting};

mod tools;

const COUNT: usize = 10_000;
/// Long enough for two renewals of each lease.
const WATCHED: Duration = Duration::from_secs(20);
/// Between two handoffs.
const WAITED: Duration = Duration::from_secs(10);

/// Each case runs in its own process: memory that an earlier case has returned to the allocator would
/// be reused unnoticed.
const SUBJECTS: [&str; 4] =
    ["leases, plain", "leases, fenced", "leases, fenced, watched", "tasks that wait for one lock"];

fn main() {
    if let Ok(subject) = std::env::var("SUBJECT") {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return runtime.unwrap().block_on(measure(&subject));
    }
    println!("{:<36}{:>14}{:>18}{:>20}", "", "bytes each", "share of a core", "commands/s");
    let before = resident();
    let count = setting("COUNT", COUNT);
    let table: Vec<(String, String)> =
        (0..count).map(|name| (format!("held/{name}"), format!("{:032x} db-7:4121", name * 7))).collect();
    println!("{:<36}{:>14}", "a plain table of names and tokens", each(resident() - before, count));
    drop(table);
    for subject in SUBJECTS {
        let mut process = std::process::Command::new(std::env::current_exe().unwrap());
        assert!(process.env("SUBJECT", subject).status().unwrap().success(), "{subject}");
    }
}

async fn measure(subject: &str) {
    let servers = Servers::start(5).await.unwrap();
    assert!(servers.kind().is_real(), "figures come from real servers only: install redis-server");
    let (mut urls, mut proxies) = (servers.urls(), Vec::new());
    let round_trip = Duration::from_millis(setting("ROUND_TRIP", 0) as u64);
    if !round_trip.is_zero() {
        for server in servers.iter() {
            let proxy = Proxy::before(server).await.unwrap();
            proxy.delay(Way::Both, round_trip / 2);
            proxies.push(proxy);
        }
        urls = proxies.iter().map(Proxy::url).collect();
    }
    let builder = Coordinator::builder().nodes(urls).restart_guard(RestartGuard::Off);
    let coordinator = builder.ttl(Duration::from_secs(30)).build().unwrap();
    let fencing = if subject.ends_with("plain") { Fencing::Off } else { Fencing::On };
    // Connections, buffers and the allocator's pools exist in any case.
    let warm = acquire(&coordinator, "warm", 512, fencing).await;
    for released in futures::future::join_all(warm.into_iter().map(quorlock::Lease::release)).await {
        released.unwrap();
    }
    if subject.starts_with("leases") {
        hold(&servers, &coordinator, subject, fencing).await;
    } else {
        wait(&servers, &coordinator, subject).await;
    }
    coordinator.close(Duration::from_secs(1)).await;
}

async fn hold(servers: &Servers, coordinator: &Coordinator, subject: &str, fencing: Fencing) {
    let (clock, count) = (SystemClock::default(), setting("COUNT", COUNT));
    let before = resident();
    let leases = acquire(coordinator, subject, count, fencing).await;
    let watches = if subject.ends_with("watched") { &leases[..] } else { &[] };
    let watching: Vec<_> = watches
        .iter()
        .map(|lease| {
            let watch = lease.watch();
            tokio::spawn(async move { watch.lost().await })
        })
        .collect();
    // Renew each once, so that memory needed by renewals is counted.
    clock.sleep_until(clock.now() + Duration::from_secs(12)).await;
    let memory = resident().saturating_sub(before);
    let (processor, asked) = (processor_time(), commands(servers, false).await);
    clock.sleep_until(clock.now() + WATCHED).await;
    let (processor, asked) =
        (processor_time().saturating_sub(processor), commands(servers, false).await - asked);
    report(subject, each(memory, count), processor, WATCHED, asked);
    assert!(watching.iter().all(|watching| !watching.is_finished()), "a lease was lost");
    for lease in leases {
        lease.check().expect("no lease is lost on a machine with two cores");
    }
}

async fn wait(servers: &Servers, coordinator: &Coordinator, subject: &str) {
    let (clock, count) = (SystemClock::default(), setting("COUNT", COUNT));
    let lock = coordinator.lock("wanted").wait(Wait::Forever);
    let lease = lock.acquire().await.unwrap();
    let before = resident();
    let waiters: Vec<_> = (0..count)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await.map(drop) })
        })
        .collect();
    clock.sleep_until(clock.now() + Duration::from_secs(1)).await;
    let memory = resident().saturating_sub(before);
    let (processor, asked) = (processor_time(), commands(servers, false).await);
    clock.sleep_until(clock.now() + WAITED).await;
    let (processor, asked) =
        (processor_time().saturating_sub(processor), commands(servers, false).await - asked);
    report(subject, each(memory, count), processor, WAITED, asked);
    for waiter in &waiters {
        waiter.abort();
    }
    drop(lease);
}

async fn acquire(
    coordinator: &Coordinator,
    name: &str,
    count: usize,
    fencing: Fencing,
) -> Vec<quorlock::Lease<Single, Fencing>> {
    let mut leases = Vec::with_capacity(count);
    let mut next = 0;
    while next < count {
        // Fewer than the limit of requests in flight to a nearby node.
        let some = (next..count.min(next + 500)).map(|number| {
            let lock = coordinator.lock(format!("{name}/{number}")).fencing(fencing);
            async move { lock.acquire().await.unwrap() }
        });
        leases.extend(futures::future::join_all(some).await);
        next = leases.len();
    }
    leases
}

fn each(bytes: u64, count: usize) -> u64 {
    bytes / count as u64
}

fn report(name: &str, bytes: u64, processor: Duration, watched: Duration, asked: u64) {
    let share = 100.0 * processor.as_secs_f64() / watched.as_secs_f64();
    let rate = asked as f64 / watched.as_secs_f64();
    println!("{name:<36}{bytes:>14}{:>18}{rate:>20.0}", format!("{share:.2} %"));
}
