//! Money moves between accounts, each transfer under the locks of both, whatever their order.
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

/// Somewhere else: while an account is read or written, others get on with theirs.
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
    // Each waits for what another one may have, in a ring, and back.
    for (from, to) in [("ann", "ben"), ("ben", "cid"), ("cid", "ann"), ("ben", "ann")] {
        // These servers were started just now, and for the first time: they have forgotten nothing.
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
    println!("Together they have {total}, as before.");
    Ok(())
}

/// Moves 1 again and again.
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
