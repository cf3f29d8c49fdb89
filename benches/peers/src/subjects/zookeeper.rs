use anyhow::Result;
use zookeeper_client::{Acls, Client, CreateMode, LockClient, LockOptions, LockPrefix};

use crate::work::Peer;

/// The standard recipe: ephemeral sequential nodes; the lowest holds, each watches its predecessor.
pub(super) struct ZooKeeper(Client);

impl ZooKeeper {
    pub(super) async fn connect(cluster: &str) -> Result<ZooKeeper> {
        Ok(ZooKeeper(Client::connect(cluster).await?))
    }
}

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
