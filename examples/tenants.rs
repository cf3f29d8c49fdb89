//! Many locks: workers share a hundred tenants, and each tenant has one worker.
//!
//! ```sh
//! cargo run --example tenants
//! ```

use std::error::Error;
use std::time::Duration;

use futures::future::try_join_all;
use quorlock::{Coordinator, Lease, RestartGuard};
use quorlock_testkit::Servers;

const TENANTS: usize = 100;
/// Short, to keep the example short.
const TTL: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    quorlock_testkit::serve_if_asked();
    let servers = Servers::start(5).await?;
    println!("Lock servers: {servers}");
    // In practice each belongs to a separate program.
    let worker = |name: &str| {
        // Safe only for servers that have just started for the first time.
        let builder = Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off);
        builder.label(name).ttl(TTL).max_ttl(TTL).build()
    };
    let (first, second) = (worker("first")?, worker("second")?);

    let mut mine = take(&first).await?;
    println!("The first worker has {} of {TENANTS} tenants.", mine.len());
    println!("The second has {}.", take(&second).await?.len());

    // Renewals of many leases are batched; one task can serve thousands of them.
    let mut days = tokio::time::interval(TTL * 2);
    days.tick().await;
    days.tick().await;
    let held = mine.iter().filter(|lease| lease.check().is_ok()).count();
    println!("Two TTLs later the first still holds {held}: all are renewed in the background.");
    assert_eq!(held, TENANTS, "no lease may be lost");

    // An overloaded worker releases some tenants; the others look for free ones from time to time.
    let half = mine.split_off(TENANTS / 2);
    let gone: Vec<String> = half.iter().map(|lease| lease.resource().to_string()).collect();
    try_join_all(half.into_iter().map(Lease::release)).await?;
    let theirs = take(&second).await?;
    println!("The first releases {}, and the second has {}.", gone.len(), theirs.len());
    assert!(theirs.iter().all(|lease| gone.contains(&lease.resource().to_string())), "and no others");

    // A worker that shuts down releases all its leases. After a crash, its tenants are free when their
    // TTL ends.
    drop(mine);
    first.close(Duration::from_secs(5)).await;
    let more = take(&second).await?;
    println!("The first has ended, and the second has all {}.", theirs.len() + more.len());
    assert_eq!(theirs.len() + more.len(), TENANTS, "every tenant must have a worker");
    Ok(())
}

/// Acquires every tenant that is free.
async fn take(coordinator: &Coordinator) -> Result<Vec<Lease>, Box<dyn Error>> {
    let locks = (0..TENANTS).map(|tenant| coordinator.lock(format!("tenants/{tenant}")));
    let asked = locks.map(|lock| async move { lock.try_acquire().await });
    Ok(try_join_all(asked).await?.into_iter().flatten().collect())
}
