//! Many locks at once: workers share out a hundred tenants, and each tenant has one worker.
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
/// Short, so that the story is.
const TTL: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    quorlock_testkit::serve_if_asked();
    let servers = Servers::start(5).await?;
    println!("Lock servers: {servers}");
    // Each as a program of its own would have it.
    let worker = |name: &str| {
        // These servers were started just now, and for the first time: they have forgotten nothing.
        let builder = Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off);
        builder.label(name).ttl(TTL).max_ttl(TTL).build()
    };
    let (first, second) = (worker("first")?, worker("second")?);

    let mut mine = take(&first).await?;
    println!("The first worker has {} of {TENANTS} tenants.", mine.len());
    println!("The second has {}.", take(&second).await?.len());

    // Renewals of many leases travel together, and one task could serve thousands of them.
    let mut days = tokio::time::interval(TTL * 2);
    days.tick().await;
    days.tick().await;
    let held = mine.iter().filter(|lease| lease.check().is_ok()).count();
    println!("Two TTLs later the first still holds {held}: all are renewed in the background.");
    assert_eq!(held, TENANTS, "whoever holds many must not lose one");

    // Whoever has too much to do gives some back, and the others look for free ones now and then.
    let half = mine.split_off(TENANTS / 2);
    let gone: Vec<String> = half.iter().map(|lease| lease.resource().to_string()).collect();
    try_join_all(half.into_iter().map(Lease::release)).await?;
    let theirs = take(&second).await?;
    println!("The first gives {} back, and the second has {}.", gone.len(), theirs.len());
    assert!(theirs.iter().all(|lease| gone.contains(&lease.resource().to_string())), "and no others");

    // Whoever ends gives everything back. A worker that crashes does not: its tenants are free when
    // their TTL ends.
    drop(mine);
    first.close(Duration::from_secs(5)).await;
    let more = take(&second).await?;
    println!("The first has ended, and the second has all {}.", theirs.len() + more.len());
    assert_eq!(theirs.len() + more.len(), TENANTS, "no tenant is left behind");
    Ok(())
}

/// Every tenant that nobody has.
async fn take(coordinator: &Coordinator) -> Result<Vec<Lease>, Box<dyn Error>> {
    let locks = (0..TENANTS).map(|tenant| coordinator.lock(format!("tenants/{tenant}")));
    let asked = locks.map(|lock| async move { lock.try_acquire().await });
    Ok(try_join_all(asked).await?.into_iter().flatten().collect())
}
