//! The three workloads, for locks with a Rust client.

use std::future::Future;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use hdrhistogram::Histogram;
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
pub(crate) async fn drive(version: String, peer: impl Peer) -> Result<()> {
    let peer: &'static _ = Box::leak(Box::new(peer));
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    say(&serde_json::to_string(&Ready { version })?)?;
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
            let (mut times, mut failures) = (histogram(), 0);
            for number in 0_u64.. {
                let began = Instant::now();
                if began >= end {
                    break;
                }
                match cycle(peer, task, &format!("{name}/{task}/{number}")).await {
                    Ok(()) => times.saturating_record(micros(began.elapsed())),
                    Err(_) => failures += 1,
                }
            }
            (times, failures)
        });
    }
    let (mut times, mut failures) = (histogram(), 0);
    while let Some(Ok((its, failed))) = tasks.join_next().await {
        times += its;
        failures += failed;
    }
    let count = times.len();
    let [p50, p99] = [0.5, 0.99].map(|quantile| times.value_at_quantile(quantile));
    let micros = micros(start.elapsed());
    Findings { count, all: count, failures, micros, p50, p99, ..Findings::default() }
}

async fn cycle<P: Peer>(peer: &'static P, task: usize, name: &str) -> Result<()> {
    let held = peer.acquire(task, name).await?;
    peer.release(held).await
}

/// State shared by all contenders for the one lock.
#[derive(Default)]
struct Field {
    /// When the last hold ended.
    ended: Mutex<Option<Instant>>,
    handoffs: Mutex<Vec<u64>>,
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
                field.enter();
                // The runtime's timer would make up to 2 ms of 1 ms.
                let _ = tokio::task::spawn_blocking(move || std::thread::sleep(stay)).await;
                field.leave();
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
    let mut handoffs = histogram();
    for micros in field.handoffs.lock().unwrap().drain(..) {
        handoffs.saturating_record(micros);
    }
    Findings {
        count: grants.iter().map(|its: &Vec<u64>| its.len() as u64).sum(),
        all,
        failures: field.failures.load(Ordering::Relaxed),
        overlaps: field.overlaps.load(Ordering::Relaxed),
        micros: end.map_or_else(|| micros(start.elapsed()), |_| order.millis * 1000),
        p50: handoffs.value_at_quantile(0.5),
        p99: handoffs.value_at_quantile(0.99),
        grants,
    }
}

impl Field {
    fn enter(&self) {
        if self.held.swap(true, Ordering::AcqRel) {
            self.overlaps.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(ended) = self.ended.lock().unwrap().take() {
            self.handoffs.lock().unwrap().push(micros(ended.elapsed()));
        }
    }

    fn leave(&self) {
        *self.ended.lock().unwrap() = Some(Instant::now());
        self.held.store(false, Ordering::Release);
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are in order")
}

/// Microseconds since the beginning of 1970, on the clock that all processes share.
fn wall_clock() -> u64 {
    micros(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
