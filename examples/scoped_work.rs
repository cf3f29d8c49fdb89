//! Work that ends with its lock: `with` stops it before another client can acquire the lock.
//!
//! ```sh
//! cargo run --example scoped_work
//! ```

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use quorlock::{Coordinator, RestartGuard, WithError};
use quorlock_testkit::{Server, Servers, eventually};

/// Short, to keep the example short.
const TTL: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(20);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    quorlock_testkit::serve_if_asked();
    let servers = Servers::start(5).await?;
    println!("Lock servers: {servers}");
    // Safe only for servers that have just started for the first time.
    let builder = Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off);
    let lock = builder.ttl(TTL).max_ttl(TTL).build()?.lock("orders/42");

    let total = lock.with(async |lease| {
        lease.check()?; // right before the side effect
        Ok::<_, WithError>(40 + 2)
    });
    println!("The first job ran to its end under the lock and returned {}.", total.await?);

    let steps = AtomicU32::new(0);
    let work = lock.with(async |lease| {
        let mut beat = tokio::time::interval(STEP);
        loop {
            beat.tick().await;
            lease.check()?;
            if steps.fetch_add(1, Ordering::Relaxed) == u32::MAX {
                return Ok::<(), WithError>(());
            }
        }
    });
    let (ended, broken) = tokio::join!(work, break_servers(&servers, &steps));
    broken?;

    let done = steps.load(Ordering::Relaxed);
    match ended {
        Err(WithError::Lost(lost)) => println!("The job was stopped after step {done}: {lost}."),
        other => return Err(format!("the job should have been stopped: {other:?}").into()),
    }
    Ok(())
}

/// Two of five servers may die without effect; without the third there is no quorum.
async fn break_servers(servers: &Servers, steps: &AtomicU32) -> Result<(), Box<dyn Error>> {
    let reach = async |step: u32| {
        let reached = async || steps.load(Ordering::Relaxed) >= step;
        eventually("the next steps of the job", Duration::from_secs(20), reached).await
    };
    reach(1).await?;
    servers.iter().take(2).for_each(Server::kill);
    println!("The second job runs. Two of the five servers are killed.");

    // More steps than fit into the TTL without a renewal.
    let enough = u32::try_from(2 * TTL.as_millis() / STEP.as_millis())?;
    reach(enough).await?;
    println!("After two TTLs it still runs: the other three have renewed the lock.");

    servers.iter().skip(2).take(1).for_each(Server::kill);
    println!("A third server is killed: two of five are no quorum, and the lock cannot be renewed.");
    Ok(())
}
