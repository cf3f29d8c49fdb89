//! The three workloads, for locks with a Rust client.

use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinSet;

use crate::order::{Findings, Order, Ready, Work};

/// A lock service as one program sees it. It lives as long as the program, so that its guards may
/// borrow from it.
pub(crate) trait Peer: Send + Sync + 'static {
    type Held: Send;

    /// Waits until `task` holds the lock.
    fn acquire(&'static self, task: usize, name: &str) -> impl Future<Output = Result<Self::Held>> + Send;

    fn release(&'static self, held: Self::Held) -> impl Future<Output = Result<()>> + Send;
}

/// Obeys the orders on the standard input until it ends.
pub(crate) async fn drive(name: &str, peer: impl Peer) -> Result<()> {
    let peer: &'static _ = Box::leak(Box::new(peer));
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    say(&serde_json::to_string(&Ready { version: format!("{name} {}", version(name)) })?)?;
    while let Some(line) = orders.next_line().await? {
        let order: Order = serde_json::from_str(&line)?;
        let findings = match order.work {
            Work::Cycles => cycles(peer, order).await,
            Work::Contend | Work::Together => contend(peer, order).await,
        };
        say(&serde_json::to_string(&findings)?)?;
    }
    Ok(())
}

/// The version of a crate, as this program was built; the newest, since older ones are dependencies of others.
fn version(name: &str) -> &'static str {
    let packages = include_str!("../Cargo.lock").split("[[package]]").map(str::trim_start);
    let versions = packages.filter_map(|package| {
        package.strip_prefix(&format!("name = \"{name}\"\nversion = \""))?.split('"').next()
    });
    versions.last().unwrap_or("of unknown version")
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

async fn cycles<P: Peer>(peer: &'static P, order: Order) -> Findings {
    let start = Instant::now();
    let end = start + Duration::from_millis(order.millis);
    let mut tasks = JoinSet::new();
    for task in 0..order.tasks {
        let name = order.name.clone();
        tasks.spawn(async move {
            let (mut times, mut failures) = (Vec::new(), 0);
            for number in 0_u64.. {
                let began = Instant::now();
                if began >= end {
                    break;
                }
                match cycle(peer, task, &format!("{name}/{task}/{number}")).await {
                    Ok(()) => times.push(micros(began.elapsed())),
                    Err(_) => failures += 1,
                }
            }
            (times, failures)
        });
    }
    let (mut times, mut failures) = (Vec::new(), 0);
    while let Some(Ok((its, failed))) = tasks.join_next().await {
        times.extend(its);
        failures += failed;
    }
    times.sort_unstable();
    let (count, p50) = (times.len() as u64, times.get(times.len() / 2).copied().unwrap_or_default());
    Findings { count, all: count, failures, micros: micros(start.elapsed()), p50, ..Findings::default() }
}

async fn cycle<P: Peer>(peer: &'static P, task: usize, name: &str) -> Result<()> {
    let held = peer.acquire(task, name).await?;
    peer.release(held).await
}

/// State shared by all contenders for the one lock.
#[derive(Default)]
struct Field {
    held: AtomicBool,
    overlaps: AtomicU64,
    failures: AtomicU64,
}

async fn contend<P: Peer>(peer: &'static P, order: Order) -> Findings {
    let field = Arc::new(Field::default());
    let start = Instant::now();
    // For a contender that wants the lock once, time is up after the first hold.
    let end = (order.work == Work::Contend).then(|| start + Duration::from_millis(order.millis));
    let mut tasks = JoinSet::new();
    for task in 0..order.tasks {
        let (field, name) = (field.clone(), order.name.clone());
        let stay = Duration::from_millis(order.hold_millis);
        tasks.spawn(async move {
            let (mut within, mut all) = (Vec::new(), 0);
            loop {
                let Ok(held) = peer.acquire(task, &name).await else {
                    field.failures.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                all += 1;
                if end.is_some_and(|end| Instant::now() >= end) {
                    let _ = peer.release(held).await;
                    return (within, all);
                }
                within.push(wall_clock());
                let overlaps = field.held.swap(true, Ordering::AcqRel);
                field.overlaps.fetch_add(overlaps.into(), Ordering::Relaxed);
                // The runtime's timer would make up to 2 ms of 1 ms.
                let _ = tokio::task::spawn_blocking(move || std::thread::sleep(stay)).await;
                field.held.store(false, Ordering::Release);
                if peer.release(held).await.is_err() {
                    field.failures.fetch_add(1, Ordering::Relaxed);
                }
                if end.is_none_or(|end| Instant::now() >= end) {
                    return (within, all);
                }
            }
        });
    }
    let (mut grants, mut all) = (Vec::new(), 0);
    while let Some(Ok((its, of_all))) = tasks.join_next().await {
        grants.push(its);
        all += of_all;
    }
    Findings {
        count: grants.iter().map(|its: &Vec<u64>| its.len() as u64).sum(),
        all,
        failures: field.failures.load(Ordering::Relaxed),
        overlaps: field.overlaps.load(Ordering::Relaxed),
        micros: end.map_or_else(|| micros(start.elapsed()), |_| order.millis * 1000),
        grants,
        ..Findings::default()
    }
}

/// Microseconds since the beginning of 1970, on the clock that all processes share.
fn wall_clock() -> u64 {
    micros(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
