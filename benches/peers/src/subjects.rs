//! The lock services with a Rust client.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use quorlock::lock::Single;
use quorlock::{Coordinator, Fencing, Lease, RestartGuard, Wait};
use redlock::RedLock;
use rslock::LockManager;
use zookeeper_client::{Acls, Client, CreateMode, LockClient, LockOptions, LockPrefix};

use crate::TTL;
use crate::work::{Peer, drive};

mod by_hand;
pub(crate) mod postgres;

use by_hand::ByHand;
use postgres::Postgres;

/// Turns this process into the driver of one subject.
pub(crate) async fn run(subject: &str, addresses: &[String]) -> Result<()> {
    let [first, ..] = addresses else { bail!("{subject} needs an address") };
    let nodes = || addresses.iter().map(String::as_str).collect();
    match subject {
        "quorlock" => {
            drive("quorlock", Quorlock::connect(addresses, Fencing::On, RestartGuard::On).await?).await
        }
        "quorlock-unguarded" => {
            drive("quorlock", Quorlock::connect(addresses, Fencing::On, RestartGuard::Off).await?).await
        }
        "quorlock-unfenced" => {
            drive("quorlock", Quorlock::connect(addresses, Fencing::Off, RestartGuard::On).await?).await
        }
        "rslock" => drive("rslock", Rslock(LockManager::new(nodes()))).await,
        "redlock" => drive("redlock", Redlock(RedLock::new(nodes()))).await,
        "by-hand" => drive("redis", ByHand::connect(addresses, false).await?).await,
        "by-hand-counting" => drive("redis", ByHand::connect(addresses, true).await?).await,
        "postgres-advisory" => drive("tokio-postgres", Postgres::connect(first, false).await?).await,
        "postgres-table" => drive("tokio-postgres", Postgres::connect(first, true).await?).await,
        "zookeeper" => drive("zookeeper-client", ZooKeeper(Client::connect(first).await?)).await,
        other => bail!("no Rust subject is called {other}"),
    }
}

struct Quorlock {
    coordinator: Coordinator,
    fencing: Fencing,
}

impl Quorlock {
    async fn connect(nodes: &[String], fencing: Fencing, guard: RestartGuard) -> Result<Quorlock> {
        let coordinator = Coordinator::builder().nodes(nodes).restart_guard(guard).build()?;
        // Servers that have just started vote only when locks from before the start must have expired.
        coordinator.lock("warm").wait(Wait::UpTo(Duration::from_mins(1))).acquire().await?.release().await?;
        Ok(Quorlock { coordinator, fencing })
    }
}

impl Peer for Quorlock {
    type Held = Lease<Single, Fencing>;

    async fn acquire(&'static self, _task: usize, name: &str) -> Result<Self::Held> {
        Ok(self.coordinator.lock(name).fencing(self.fencing).wait(Wait::Forever).acquire().await?)
    }

    async fn release(&'static self, held: Self::Held) -> Result<()> {
        Ok(held.release().await?)
    }
}

/// It blocks, so each call has its own thread.
struct Redlock(RedLock);

impl Peer for Redlock {
    type Held = redlock::Lock<'static>;

    async fn acquire(&'static self, _task: usize, name: &str) -> Result<Self::Held> {
        let (name, millis) = (name.as_bytes().to_vec(), usize::try_from(TTL.as_millis())?);
        tokio::task::spawn_blocking(move || {
            loop {
                if let Some(lock) = self.0.lock(&name, millis)? {
                    return Ok(lock);
                }
            }
        })
        .await?
    }

    async fn release(&'static self, held: Self::Held) -> Result<()> {
        Ok(tokio::task::spawn_blocking(move || self.0.unlock(&held)).await?)
    }
}

struct Rslock(LockManager);

impl Peer for Rslock {
    type Held = rslock::Lock;

    async fn acquire(&'static self, _task: usize, name: &str) -> Result<Self::Held> {
        let lock = self.0.acquire_no_guard(name.as_bytes(), TTL).await?;
        ensure!(lock.validity_time > 0, "granted too late to be of use");
        Ok(lock)
    }

    async fn release(&'static self, held: Self::Held) -> Result<()> {
        held.release().await;
        Ok(())
    }
}

/// The standard recipe: ephemeral sequential nodes; the lowest holds, each watches its predecessor.
struct ZooKeeper(Client);

impl Peer for ZooKeeper {
    type Held = LockClient<'static>;

    async fn acquire(&'static self, _task: usize, name: &str) -> Result<Self::Held> {
        let folder = format!("/{name}");
        let options = LockOptions::new(Acls::anyone_all())
            .with_ancestor_options(CreateMode::Persistent.with_acls(Acls::anyone_all()))?;
        Ok(self.0.lock(LockPrefix::new_curator(&folder, "lock-")?, b"", options).await?)
    }

    async fn release(&'static self, held: Self::Held) -> Result<()> {
        self.0.delete(held.lock_path(), None).await?;
        // Dropping it would delete the node again, at an unknown time.
        std::mem::forget(held);
        Ok(())
    }
}
