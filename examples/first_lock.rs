//! A first lock: whoever holds it is the only one, and the next gets it when it is given back.
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
        .restart_guard(RestartGuard::Off) // only for servers that were started just now: leave this out
        .build()?;
    let lock = coordinator.lock("orders/42").ttl(Duration::from_secs(10));

    let lease = lock.acquire().await?; // waits if others have it
    let first = lease.fencing_token().expect("fencing is on");
    println!("I have the lock, with fencing token {first}; it is renewed for as long as I keep the lease.");

    let refused = lock.try_acquire().await?; // does not wait
    assert!(refused.is_none(), "two would have it at once");
    println!("Somebody else asks for it, and does not get it.");
    if let Some(holder) = lock.inspect().await?.holder() {
        println!("It is held by {} at {} of 5 servers.", holder.describe(), holder.nodes);
    }

    lease.check()?; // right before the side effect
    println!("I do what must not be done twice at once.");
    lease.release().await?; // an error if it had been lost meanwhile

    let next = lock.try_acquire().await?.ok_or("it is free, and nobody gets it")?;
    assert!(next.fencing_token() > Some(first), "tokens grow from holder to holder");
    println!(
        "I give it back, and the next one has it, with a larger token: {}.",
        next.fencing_token().expect("fencing is on")
    );
    next.release().await?;
    Ok(())
}
