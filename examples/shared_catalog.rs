//! Any number of readers, or one writer, which then downgrades to a reader.
//!
//! ```sh
//! cargo run --example shared_catalog
//! ```

use std::error::Error;
use std::time::Duration;

use quorlock::{Coordinator, Lease, Lock, RestartGuard};
use quorlock_testkit::Servers;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    quorlock_testkit::serve_if_asked();
    let servers = Servers::start(3).await?;
    println!("Lock servers: {servers}");
    let catalog = |name: &str| {
        // Safe only for servers that have just started for the first time.
        let coordinator =
            Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off).build()?;
        Ok::<Lock, Box<dyn Error>>(coordinator.lock("catalog").label(name).ttl(Duration::from_secs(5)))
    };

    let (ann, ben) = (catalog("ann")?.shared().acquire().await?, catalog("ben")?.shared().acquire().await?);
    println!("The lock is held by {}.", holders(&catalog("who")?).await?);

    // She waits for the two readers, and from now on new readers wait behind her.
    let cid = catalog("cid")?;
    let waiting = tokio::spawn(async move { cid.acquire().await });
    let dan = catalog("dan")?.shared();
    while let Some(early) = dan.try_acquire().await? {
        early.release().await?;
    }
    println!("Dan does not get in: a writer waits.");
    ann.release().await?;
    ben.release().await?;

    let writer: Lease = waiting.await??;
    println!("Ann and Ben have released it, and Cid writes, alone.");
    assert!(dan.try_acquire().await?.is_none(), "she holds it exclusively");
    let reader = writer.downgrade().await?;
    let dan = dan.acquire().await?;
    println!("Cid reads what she wrote, and so does Dan.");
    assert!(catalog("eve")?.try_acquire().await?.is_none(), "no writer gets in meanwhile");
    assert!(dan.fencing_token() > reader.fencing_token(), "Dan reads after Cid's write");
    dan.release().await?;
    reader.release().await?;
    Ok(())
}

async fn holders(lock: &Lock) -> Result<String, Box<dyn Error>> {
    let holder = lock.inspect().await?.holder().ok_or("the lock is free")?;
    let names =
        holder.readers.iter().filter_map(|token| token.context()?.rsplit(' ').next().map(String::from));
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names.join(" and "))
}
