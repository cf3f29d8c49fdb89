//! Functions that each take the same lock, and call each other.
//!
//! ```sh
//! cargo run --example reentrant
//! ```

use std::error::Error;

use quorlock::{Coordinator, Lock, Owner, RestartGuard};
use quorlock_testkit::Servers;

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    quorlock_testkit::serve_if_asked();
    let servers = Servers::start(5).await?;
    println!("Lock servers: {servers}");
    // These servers were started just now, and for the first time: they have forgotten nothing.
    let builder = Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off);
    let coordinator = builder.build()?;

    // Whatever runs within this scope is one owner. Tasks that it spawns are outside.
    Owner::scope(async {
        println!("Deposit 5 alone:");
        deposit(&coordinator, 5).await?;
        println!("Transfer 7, which deposits as well:");
        transfer(&coordinator, 7).await
    })
    .await?;

    let free = books(&coordinator).owner(&Owner::new()).try_acquire().await?;
    println!("Afterwards the lock is free: {}.", free.is_some());
    assert!(free.is_some(), "the last one out gives it back");
    Ok(())
}

fn books(coordinator: &Coordinator) -> Lock {
    coordinator.lock("books").reentrant()
}

async fn transfer(coordinator: &Coordinator, amount: u32) -> Outcome<()> {
    let lease = books(coordinator).acquire().await?;
    println!("  transfer has the lock, fencing token {}", lease.fencing_token().expect("fencing is on"));
    deposit(coordinator, amount).await?; // would wait for ever for a lock that is not reentrant

    // The inner lease is gone, and the outer one still holds.
    lease.check()?;
    let other = books(coordinator).owner(&Owner::new()).try_acquire().await?;
    assert!(other.is_none(), "another owner is kept out");
    println!("  transfer still has it, and another owner is refused");
    Ok(lease.release().await?)
}

async fn deposit(coordinator: &Coordinator, amount: u32) -> Outcome<()> {
    let lease = books(coordinator).acquire().await?; // asks no server if the owner has it already
    println!(
        "  deposit has the lock, fencing token {}: {amount} more",
        lease.fencing_token().expect("fencing is on")
    );
    lease.check()?; // right before the side effect
    Ok(lease.release().await?)
}
