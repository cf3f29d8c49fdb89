//! A program without async: its threads increment a counter in a file under a lock.
//!
//! ```sh
//! cargo run --features blocking --example blocking
//! ```
//!
//! Needs nothing else: lock servers are found or built in.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use quorlock::blocking::Coordinator;
use quorlock::{Builder, RestartGuard};
use quorlock_testkit::Servers;

const THREADS: usize = 4;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    quorlock_testkit::serve_if_asked();
    // Only the built-in servers of this example need a runtime; a program with its own servers needs
    // none.
    let runtime = tokio::runtime::Runtime::new()?;
    let servers = runtime.block_on(Servers::start(5))?;
    println!("Five servers: {}", servers.kind());

    // Safe only for servers that have just started for the first time.
    let builder = Builder::default().nodes(servers.urls()).restart_guard(RestartGuard::Off);
    let coordinator = builder.ttl(Duration::from_secs(5)).build_blocking()?;

    let folder = tempfile::tempdir()?;
    let file = folder.path().join("counter");
    fs::write(&file, "0")?;
    thread::scope(|scope| {
        let start = || scope.spawn(|| count(&coordinator, &file));
        let threads: Vec<_> = (0..THREADS).map(|_| start()).collect();
        for (number, thread) in (1..).zip(threads) {
            match thread.join() {
                Ok(Ok(())) => println!("Thread {number} has counted to {ROUNDS}."),
                Ok(Err(reason)) => println!("Thread {number} has failed: {reason}"),
                Err(_) => println!("A thread has panicked."),
            }
        }
    });
    println!("The counter is at {}.", fs::read_to_string(&file)?);
    coordinator.close(Duration::from_secs(1));
    Ok(())
}

/// Reads, then writes: without a lock, another thread could write in between.
fn count(coordinator: &Coordinator, file: &Path) -> Result<(), String> {
    let lock = coordinator.lock("counter");
    for _ in 0..ROUNDS {
        let counted = lock.with(|lease| {
            let counter: usize = fs::read_to_string(file)?.parse()?;
            lease.check()?; // right before the side effect
            fs::write(file, (counter + 1).to_string())?;
            Ok::<_, Box<dyn Error>>(())
        });
        counted.map_err(|error| error.to_string())?;
    }
    Ok(())
}
