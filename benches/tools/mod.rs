//! Tools of all benches.
#![allow(dead_code, reason = "no bench needs all of it")]

use std::time::Duration;

use hdrhistogram::Histogram;
use quorlock_testkit::Servers;
use rustix::time::{ClockId, clock_gettime};

/// Five real servers: figures of simulated ones would not be meaningful.
pub async fn five_servers() -> Servers {
    // The baselines know no password.
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

/// The resident memory of this process, in bytes.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// How many requests the servers received: scripts, transactions, and plain `SET`s outside of these.
pub async fn commands(servers: &Servers, plain: bool) -> u64 {
    let mut all = 0;
    for server in servers.iter() {
        let stats = server.command(&["INFO", "commandstats"]).await.unwrap().to_string();
        let names =
            ["cmdstat_eval:calls=", "cmdstat_evalsha:calls=", "cmdstat_exec:calls=", "cmdstat_set:calls="];
        for name in &names[..if plain { 4 } else { 3 }] {
            let calls = stats.lines().find_map(|line| line.strip_prefix(name));
            all += calls.and_then(|calls| calls.split(',').next()?.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    all
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

/// A number from the environment, to shorten or lengthen a run.
pub fn setting(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}
