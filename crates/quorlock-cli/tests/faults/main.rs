//! `quorlock run` under random faults: no command runs without its lock, and no lock is left without
//! its command.
//!
//! Several `quorlock run` contend for few locks on five real servers. Servers are killed, restarted empty and stopped;
//! the runners are cut off from all servers and get every signal, including SIGKILL, SIGSTOP and SIGCONT, and so do
//! their guardians. Their commands trap signals, spawn, daemonise, linger and kill themselves. The command is this
//! program, which records every few milliseconds that it runs.
//!
//! ```sh
//! cargo test -p quorlock-cli --test faults                                 # 12 s
//! QUORLOCK_FAULTS_SECONDS=600 cargo test -p quorlock-cli --test faults -- --nocapture
//! QUORLOCK_FAULTS_SEED=7 …                                                 # the same faults
//! ```

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "what does not go as expected fails the test"
)]

mod command;
mod judge;
mod record;
mod runners;
mod servers;
mod starvation;

use std::time::Duration;

use quorlock::runtime::{Entropy as _, SystemEntropy};
use quorlock_testkit::{Kind, SeededRng, until};

use crate::record::{Part, Record, now};
use crate::runners::Runners;
use crate::servers::Masters;
use crate::starvation::Starvation;

/// Long against the margin with which a command is killed, short against the run.
const TTL: Duration = Duration::from_secs(1);
const LOCKS: u64 = 3;
const RUNNERS: usize = 6;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    quorlock_testkit::serve_if_asked();
    if command::is_asked_for() {
        return command::run();
    }
    // Without a harness the filter by test name must be handled here.
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    if wanted.is_some_and(|name| !"faults".contains(&name)) || std::env::args().any(|word| word == "--list") {
        return;
    }
    no_command_runs_without_its_lock_and_no_lock_is_left_without_its_command().await;
}

async fn no_command_runs_without_its_lock_and_no_lock_is_left_without_its_command() {
    let setting = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let lasts = Duration::from_secs(setting("QUORLOCK_FAULTS_SECONDS").unwrap_or(12));
    let seed = setting("QUORLOCK_FAULTS_SEED").unwrap_or_else(|| SystemEntropy::default().next_u64());
    println!("faults for {lasts:?}, QUORLOCK_FAULTS_SEED={seed}");
    let rng = SeededRng::new(seed, "faults");

    let mut masters = Masters::start().await;
    if !matches!(masters.kind(), Kind::Program { .. }) {
        println!(
            "skipped: no valkey-server or redis-server is here; install one, or name it in QUORLOCK_SERVER"
        );
        return;
    }
    let starvation = Starvation::watch();
    let record = Record::new();
    let mut runners = Runners::new(&masters, &record).await;
    let end = now() + lasts;
    let mut next_fault = now();
    while now() < end {
        runners.tend(&rng);
        if now() >= next_fault {
            match rng.below(6) {
                0 => masters.hurt(&rng).await,
                1 | 2 => runners.cut(&rng),
                _ => runners.hurt(&rng),
            }
            next_fault = now() + Duration::from_millis(10 + rng.number(0, 119));
            runners.check(&masters.tokens().await);
        }
        record::pause(Duration::from_millis(2)).await;
    }

    masters.heal().await;
    runners.end().await;
    let entries = record.read();
    let figures = judge::judge(&entries, &runners.history(), &starvation.gaps());
    println!("{figures}; {}; {masters}", runners.fates());
    assert!(
        figures.commands as u64 > lasts.as_secs() / 2,
        "too few commands ran to prove anything: {figures}"
    );
    // Nothing runs, and nothing is held: releases that were lost have expired with their TTL.
    for entry in entries.iter().filter(|entry| entry.part == Part::Group) {
        assert!(record::is_gone(entry.pid), "process {} runs on without a runner", entry.pid);
    }
    // Daemons have an end of their own.
    until("the end of all daemons", async || entries.iter().all(|entry| record::is_gone(entry.pid))).await;
    until("the end of every lock", async || masters.locks().await.is_empty()).await;
}
