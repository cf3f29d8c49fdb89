//! Functions that each acquire the same lock, and call each other.
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
    // Safe only for servers that have just started for the first time.
    let builder = Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off);
    let coordinator = builder.build()?;

    // Everything within this scope has the same owner, except tasks that it spawns.
    Owner::scope(async {
        println!("Deposit 5 alone:");
        deposit(&coordinator, 5).await?;
        println!("Transfer 7, which also deposits:");
        transfer(&coordinator, 7).await
    })
    .await?;

    let free = books(&coordinator).owner(&Owner::new()).try_acquire().await?;
    println!("Afterwards the lock is free: {}.", free.is_some());
    assert!(free.is_some(), "the last release frees the lock");
    Ok(())
}

fn books(coordinator: &Coordinator) -> Lock {
    coordinator.lock("books").reentrant()
}

async fn transfer(coordinator: &Coordinator, amount: u32) -> Outcome<()> {
    let lease = books(coordinator).acquire().await?;
    println!("  transfer has the lock, fencing token {}", lease.fencing_token());
    deposit(coordinator, amount).await?; // would wait forever if the lock were not reentrant

    // The inner lease has ended, and the outer one still holds.
    lease.check()?;
    let other = books(coordinator).owner(&Owner::new()).try_acquire().await?;
    assert!(other.is_none(), "another owner must be refused");
    println!("  transfer still holds it, and another owner is refused");
    Ok(lease.release().await?)
}

async fn deposit(coordinator: &Coordinator, amount: u32) -> Outcome<()> {
    let lease = books(coordinator).acquire().await?; // sends no request if the owner holds it already
    println!("  deposit has the lock, fencing token {}: {amount} more", lease.fencing_token());
    lease.check()?; // right before the side effect
    Ok(lease.release().await?)
}
