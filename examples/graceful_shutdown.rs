//! A worker that is told to end stops its work, gives its lock back, and goes: whoever waits need
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

    // Before the work begins: until then, a signal ends the process on the spot.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let lease = lock(&ours).acquire().await?;
    let waiting = tokio::spawn(async move { lock(&others).acquire().await });

    println!(
        "Worker {} has the lock, and another one waits. Send SIGTERM, or press Ctrl-C.",
        std::process::id()
    );
    tokio::select! {
        lost = lease.lost() => println!("The lock is gone, so nothing may be done any more: {lost}."),
        steps = work(&lease) => println!("The work has failed: {steps:?}."),
        _ = terminate.recv() => println!("SIGTERM: the work has stopped between two steps."),
        _ = interrupt.recv() => println!("SIGINT: the work has stopped between two steps."),
    }

    // An error would say that the lock was lost before: then the last step may not have been alone.
    lease.release().await?;
    // Dropping a lease gives it back in the background; this waits until all of that is done.
    ours.close(Duration::from_secs(2)).await;
    println!("The lock is given back.");

    let next = waiting.await??;
    println!("The other one has it, and did not have to wait for the TTL of 30 s.");
    next.release().await?;
    Ok(())
}

fn coordinator(servers: &Servers) -> Result<Coordinator, Box<dyn Error>> {
    // These servers were started just now, and for the first time: they have forgotten nothing.
    Ok(Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off).build()?)
}

fn lock(coordinator: &Coordinator) -> Lock {
    coordinator.lock("queue/mail").ttl(Duration::from_secs(30))
}

/// Each step is dropped where it waits when a signal comes, so nothing here may be half done there.
async fn work(lease: &Lease) -> Result<(), Box<dyn Error>> {
    let mut step = tokio::time::interval(Duration::from_millis(20));
    loop {
        step.tick().await;
        lease.check()?; // right before the side effect
    }
}
