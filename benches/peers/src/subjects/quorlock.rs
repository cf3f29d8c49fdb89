use std::time::Duration;

use anyhow::Result;
use quorlock::{Coordinator, Fencing, Lease, RestartGuard, Wait};

use super::TTL;
use crate::work::Peer;

pub(super) struct Quorlock {
    coordinator: Coordinator,
    fencing: Fencing,
}

impl Quorlock {
    pub(super) async fn connect(nodes: &[String], fencing: Fencing) -> Result<Quorlock> {
        // The servers have only just started, and would not vote yet.
        let coordinator =
            Coordinator::builder().nodes(nodes).restart_guard(RestartGuard::Off).ttl(TTL).build()?;
        let quorlock = Quorlock { coordinator, fencing };
        quorlock.lock("warm").wait(Wait::UpTo(Duration::from_secs(5))).acquire().await?.release().await?;
        Ok(quorlock)
    }

    fn lock(&self, name: &str) -> quorlock::Lock {
        self.coordinator.lock(name).fencing(self.fencing).wait(Wait::Forever)
    }
}

impl Peer for Quorlock {
    type Held = Lease;

    async fn acquire(&'static self, _task: usize, name: &str) -> Result<Lease> {
        Ok(self.lock(name).acquire().await?)
    }

    async fn release(&'static self, held: Lease) -> Result<()> {
        Ok(held.release().await?)
    }
}
