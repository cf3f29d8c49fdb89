//! The lock services with a Rust client, one file each.

use std::time::Duration;

use ::quorlock::{Fencing, RestartGuard};
use anyhow::{Result, bail};

use crate::versions::of_crate;
use crate::work::drive;

mod by_hand;
pub(crate) mod postgres;
mod quorlock;
mod redlock;
mod rslock;
mod zookeeper;

use by_hand::Counting;

/// The TTL of all subjects that have one.
pub(crate) const TTL: Duration = Duration::from_secs(10);
/// The highest number of concurrent tasks.
pub(crate) const MOST_TASKS: usize = 64;

/// Turns this process into the driver of one subject.
pub(crate) async fn run(subject: &str, addresses: &[String]) -> Result<()> {
    let [first, ..] = addresses else { bail!("{subject} needs an address") };
    let guard = if subject == "quorlock-unguarded" { RestartGuard::Off } else { RestartGuard::On };
    match subject {
        "quorlock" | "quorlock-unguarded" => {
            let quorlock = quorlock::Quorlock::connect(addresses, Fencing::On, guard).await?;
            drive(of_crate("quorlock"), quorlock).await
        }
        "quorlock-unfenced" => {
            let quorlock = quorlock::Quorlock::connect(addresses, Fencing::Off, guard).await?;
            drive(of_crate("quorlock"), quorlock).await
        }
        "rslock" => drive(of_crate("rslock"), rslock::Rslock::connect(addresses)).await,
        "redlock" => drive(of_crate("redlock"), redlock::Redlock::connect(addresses)).await,
        "by-hand" | "by-hand-counting" => {
            let counting = if subject == "by-hand" { Counting::Off } else { Counting::On };
            drive(of_crate("redis"), by_hand::ByHand::connect(addresses, counting).await?).await
        }
        "postgres-advisory" => {
            drive(of_crate("tokio-postgres"), postgres::Advisory::connect(first).await?).await
        }
        "postgres-table" => drive(of_crate("tokio-postgres"), postgres::Table::connect(first).await?).await,
        "zookeeper" => drive(of_crate("zookeeper-client"), zookeeper::ZooKeeper::connect(first).await?).await,
        other => bail!("no Rust subject is called {other}"),
    }
}
