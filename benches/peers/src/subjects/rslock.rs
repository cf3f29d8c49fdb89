use anyhow::{Result, ensure};
use rslock::{Lock, LockManager};

use super::TTL;
use crate::work::Peer;

pub(super) struct Rslock(LockManager);

impl Rslock {
    pub(super) fn connect(nodes: &[String]) -> Rslock {
        Rslock(LockManager::new(nodes.iter().map(String::as_str).collect()))
    }
}

impl Peer for Rslock {
    type Held = Lock;

    async fn acquire(&'static self, _task: usize, name: &str) -> Result<Lock> {
        let lock = self.0.acquire_no_guard(name.as_bytes(), TTL).await?;
        ensure!(lock.validity_time > 0, "granted too late to be of use");
        Ok(lock)
    }

    async fn release(&'static self, held: Lock) -> Result<()> {
        held.release().await;
        Ok(())
    }
}
