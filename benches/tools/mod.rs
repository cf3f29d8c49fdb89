//! Tools of all benches.
#![allow(dead_code, reason = "no bench needs all of it")]

use std::time::Duration;

use hdrhistogram::Histogram;
use quorlock_testkit::Servers;
use rustix::time::{ClockId, clock_gettime};

/// Five real servers: figures of simulated ones would not be meaningful.
pub async fn five_servers() -> Servers {
    // A plain client knows no password.
    let servers = Servers::setup().without_password().start(5).await.unwrap();
    println!("five servers: {}", servers.kind());
    assert!(servers.kind().is_real(), "figures come from real servers only: install redis-server");
    servers
}

/// The processor time of this process, without the servers.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).unwrap()
}

pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
