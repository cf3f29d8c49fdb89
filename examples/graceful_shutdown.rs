//! A worker that stops its work on SIGTERM, releases its lock, and exits, so that the next worker need
//! not wait for the TTL.
//!
//! ```sh
//! cargo run --example graceful_shutdown      # then Ctrl-C
//! ```

use std::error::Error;
use std::time::Duration;

use quorlock::{Coordinator, Lease, Lock, RestartGuard};
use quorlock_testkit::Servers;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    quorlock_testkit::serve_if_asked();
    let servers = Servers::start(5).await?;
    println!("Lock servers: {servers}");
    let (ours, others) = (coordinator(&servers)?, coordinator(&servers)?);

    // Installed before the work begins: until then, a signal would end the process immediately.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let lease = lock(&ours).acquire().await?;
    let waiting = tokio::spawn(async move { lock(&others).acquire().await });

    println!(
        "Worker {} has the lock, and another worker waits. Send SIGTERM, or press Ctrl-C.",
        std::process::id()
    );
    tokio::select! {
        lost = lease.lost() => println!("The lock is lost, so the work stops: {lost}."),
        steps = work(&lease) => println!("The work failed: {steps:?}."),
        _ = terminate.recv() => println!("SIGTERM: the work stopped between two steps."),
        _ = interrupt.recv() => println!("SIGINT: the work stopped between two steps."),
    }

    // An error means that the lock was lost before: the last step may not have been exclusive.
    lease.release().await?;
    // A dropped lease is released in the background; `close` waits until that is done.
    ours.close(Duration::from_secs(2)).await;
    println!("The lock is released.");

    let next = waiting.await??;
    println!("The other worker holds it, without waiting for the TTL of 30 s.");
    next.release().await?;
    Ok(())
}

fn coordinator(servers: &Servers) -> Result<Coordinator, Box<dyn Error>> {
    // Safe only for servers that have just started for the first time.
    Ok(Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off).build()?)
}

fn lock(coordinator: &Coordinator) -> Lock {
    coordinator.lock("queue/mail").ttl(Duration::from_secs(30))
}

/// A signal drops this future at its current await, so a step must not be left half done there.
async fn work(lease: &Lease) -> Result<(), Box<dyn Error>> {
    let mut step = tokio::time::interval(Duration::from_millis(20));
    loop {
        step.tick().await;
        lease.check()?; // right before the side effect
    }
}
