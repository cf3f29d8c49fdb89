use std::time::Duration;

use anyhow::Result;
use quorlock::lock::Single;
use quorlock::{Coordinator, Fencing, Lease, RestartGuard, Wait};

use crate::work::Peer;

pub(super) struct Quorlock {
    coordinator: Coordinator,
    fencing: Fencing,
}

impl Quorlock {
    pub(super) async fn connect(nodes: &[String], fencing: Fencing, guard: RestartGuard) -> Result<Quorlock> {
        let coordinator = Coordinator::builder().nodes(nodes).restart_guard(guard).build()?;
        let quorlock = Quorlock { coordinator, fencing };
        // Servers that have just started vote only when locks from before the start must have expired.
        quorlock.lock("warm").wait(Wait::UpTo(Duration::from_mins(1))).acquire().await?.release().await?;
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
