//! Transfers between accounts, each under the locks of both, in any order.
//!
//! ```sh
//! cargo run --example transfer
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use quorlock::{Coordinator, RestartGuard, Wait};
use quorlock_testkit::Servers;
use tokio::task::JoinSet;

/// Stands for a remote store: while one account is read or written, other tasks run.
#[derive(Clone, Default)]
struct Bank(Arc<Mutex<BTreeMap<&'static str, i64>>>);

impl Bank {
    async fn read(&self, account: &'static str) -> i64 {
        tokio::task::yield_now().await;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(account).copied().unwrap_or(100)
    }

    async fn write(&self, account: &'static str, amount: i64) {
        tokio::task::yield_now().await;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(account, amount);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    quorlock_testkit::serve_if_asked();
    let servers = Servers::start(3).await?;
    println!("Lock servers: {servers}");
    let bank = Bank::default();
    let mut tellers = JoinSet::new();
    // Transfers in a ring, and back: each may wait for locks that another one holds.
    for (from, to) in [("ann", "ben"), ("ben", "cid"), ("cid", "ann"), ("ben", "ann")] {
        // Safe only for servers that have just started for the first time.
        let teller = Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off).build()?;
        tellers.spawn(transfer(teller, bank.clone(), from, to));
    }
    while let Some(done) = tellers.join_next().await {
        done??;
    }
    let mut total = 0;
    for account in ["ann", "ben", "cid"] {
        let amount = bank.read(account).await;
        println!("{account} has {amount}.");
        total += amount;
    }
    println!("In total they have {total}, as before.");
    Ok(())
}

/// Moves 1 at a time, ten times.
async fn transfer(
    teller: Coordinator,
    bank: Bank,
    from: &'static str,
    to: &'static str,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let both = teller.lock_all([from, to].map(|account| format!("accounts/{account}"))).wait(Wait::Forever);
    for _ in 0..10 {
        let lease = both.acquire().await?;
        let (mine, yours) = (bank.read(from).await, bank.read(to).await);
        lease.check()?; // right before the side effect
        bank.write(from, mine - 1).await;
        bank.write(to, yours + 1).await;
        lease.release().await?;
    }
    println!("Ten times 1 from {from} to {to}.");
    Ok(())
}
