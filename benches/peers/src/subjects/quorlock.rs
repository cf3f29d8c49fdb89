use anyhow::Result;
use quorlock::lock::Single;
use quorlock::{Coordinator, Fencing, Lease, RestartGuard, Wait};

use super::TTL;
use crate::work::Peer;

pub(super) struct Quorlock {
    coordinator: Coordinator,
    fencing: Fencing,
}

impl Quorlock {
    pub(super) async fn connect(nodes: &[String], fencing: Fencing, guard: RestartGuard) -> Result<Quorlock> {
        // With the restart guard, which is the default. The servers have just started, so they vote
        // only when locks from before the start must have expired.
        let coordinator =
            Coordinator::builder().nodes(nodes).ttl(TTL).max_ttl(TTL).restart_guard(guard).build()?;
        let quorlock = Quorlock { coordinator, fencing };
        quorlock.lock("warm").wait(Wait::UpTo(TTL * 3)).acquire().await?.release().await?;
        Ok(quorlock)
    }

    fn lock(&self, name: &str) -> quorlock::Lock<Single, Fencing> {
        self.coordinator.lock(name).fencing(self.fencing).wait(Wait::Forever)
    }
}

impl Peer for Quorlock {
    type Held = Lease<Single, Fencing>;

    async fn acquire(&'static self, _task: usize, name: &str) -> Result<Self::Held> {
        Ok(self.lock(name).acquire().await?)
    }

    async fn release(&'static self, held: Self::Held) -> Result<()> {
        Ok(held.release().await?)
    }
}
