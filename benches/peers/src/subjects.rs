//! Those of the lock services that have a Rust client: each in a file of its own.

use std::time::Duration;

use ::quorlock::Fencing;
use anyhow::{Result, bail};

use crate::versions::of_crate;
use crate::work::drive;

mod by_hand;
pub(crate) mod postgres;
mod quorlock;
mod redlock;
mod rslock;
mod zookeeper;

/// For all subjects that have one.
pub(crate) const TTL: Duration = Duration::from_secs(10);
/// As many as ever run at once.
pub(crate) const MOST_TASKS: usize = 64;

/// Turns this process into the driver of one subject.
pub(crate) async fn run(subject: &str, addresses: &[String]) -> Result<()> {
    let [first, ..] = addresses else { bail!("{subject} needs an address") };
    match subject {
        "quorlock" => {
            drive(of_crate("quorlock"), quorlock::Quorlock::connect(addresses, Fencing::On).await?).await
        }
        "quorlock-unfenced" => {
            drive(of_crate("quorlock"), quorlock::Quorlock::connect(addresses, Fencing::Off).await?).await
        }
        "rslock" => drive(of_crate("rslock"), rslock::Rslock::connect(addresses)).await,
        "redlock" => drive(of_crate("redlock"), redlock::Redlock::connect(addresses)).await,
        "by-hand" => drive(of_crate("redis"), by_hand::ByHand::connect(addresses).await?).await,
        "postgres-advisory" => {
            drive(of_crate("tokio-postgres"), postgres::Advisory::connect(first).await?).await
        }
        "postgres-table" => drive(of_crate("tokio-postgres"), postgres::Table::connect(first).await?).await,
        "zookeeper" => drive(of_crate("zookeeper-client"), zookeeper::ZooKeeper::connect(first).await?).await,
        other => bail!("there is no subject {other} in Rust"),
    }
}
