//! A first lock: one holder at a time, and the next one gets it after the release.
//!
//! ```sh
//! cargo run --example first_lock
//! ```

use std::error::Error;
use std::time::Duration;

use quorlock::{Coordinator, RestartGuard};
use quorlock_testkit::Servers;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    quorlock_testkit::serve_if_asked();
    let servers = Servers::start(5).await?;
    println!("Lock servers: {servers}");

    let coordinator = Coordinator::builder()
        .nodes(servers.urls()) // of yours: ["redis://10.0.0.1", "redis://10.1.0.1", "redis://10.2.0.1"]
        .restart_guard(RestartGuard::Off) // only because these servers have just started: leave it out
        .build()?;
    let lock = coordinator.lock("orders/42").ttl(Duration::from_secs(10));

    let lease = lock.acquire().await?; // waits while another client holds it
    let first = lease.fencing_token();
    println!("I have the lock, with fencing token {first}; it is renewed for as long as I keep the lease.");

    let refused = lock.try_acquire().await?; // does not wait
    assert!(refused.is_none(), "two holders");
    println!("Another client asks for it, and does not get it.");
    if let Some(holder) = lock.inspect().await?.holder() {
        println!("It is held by {} at {} of 5 servers.", holder.describe(), holder.nodes);
    }

    lease.check()?; // right before the side effect
    println!("I do the work that only one client may do.");
    lease.release().await?; // an error if the lock was lost before

    let next = lock.try_acquire().await?.ok_or("the lock is free, but was not acquired")?;
    assert!(next.fencing_token() > first, "tokens increase with each holder");
    println!("I release it, and the next one has it, with a larger token: {}.", next.fencing_token());
    next.release().await?;
    Ok(())
}
