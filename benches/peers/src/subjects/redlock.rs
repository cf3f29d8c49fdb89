use anyhow::Result;
use redlock::{Lock, RedLock};

use super::TTL;
use crate::work::Peer;

/// It blocks, so each call has its own thread.
pub(super) struct Redlock(RedLock);

impl Redlock {
    pub(super) fn connect(nodes: &[String]) -> Redlock {
        Redlock(RedLock::new(nodes.iter().map(String::as_str).collect()))
    }
}

impl Peer for Redlock {
    type Held = Lock<'static>;

    async fn acquire(&'static self, _task: usize, name: &str) -> Result<Lock<'static>> {
        let name = name.as_bytes().to_vec();
        let millis = usize::try_from(TTL.as_millis())?;
        tokio::task::spawn_blocking(move || {
            loop {
                if let Some(lock) = self.0.lock(&name, millis)? {
                    return Ok(lock);
                }
            }
        })
        .await?
    }

    async fn release(&'static self, held: Lock<'static>) -> Result<()> {
        Ok(tokio::task::spawn_blocking(move || self.0.unlock(&held)).await?)
    }
}
