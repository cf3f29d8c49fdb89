//! How long the ticks of the servers are, and which sessions they allow.

use std::time::Duration;

use quorlock::node::{NodeError, NodeErrorKind};
use tokio::sync::mpsc::unbounded_channel;

use super::CALL_LIMIT;
use crate::address::{Member, ZooKeeperAddress};
use crate::client::{Client, Wanted};
use crate::error::failed;
use crate::memory::{Memory, Ticks};

/// How many writes keep a session in the time of its timeout, unless ticks are longer. What is proven is at most two of these
/// pauses old.
const PARTS: u32 = 10;

impl Ticks {
    /// Learns of the length of the servers' ticks what they show: the shortest session that they grant has two, the longest
    /// twenty, unless an administrator has set that otherwise.
    pub(super) async fn ask(
        address: &ZooKeeperAddress,
        member: &Member,
        memory: &Memory,
    ) -> Result<Ticks, NodeError> {
        let ask = async |timeout| {
            let wanted = (Wanted { old: None, timeout }, CALL_LIMIT);
            let (client, granted) =
                Client::connect(address, member, &memory.local.seams, wanted, unbounded_channel().0).await?;
            client.close().await;
            Ok::<Duration, NodeError>(granted.timeout)
        };
        let longest = Duration::from_millis(u64::from(i32::MAX.unsigned_abs()));
        let (least, most) = futures::try_join!(ask(Duration::from_millis(1)), ask(longest))?;
        Ok(Ticks { least, tick: (least / 2).max(most / 20) })
    }

    /// How long to wait between two writes that keep a session.
    pub(super) fn pause(self, session: Duration) -> Duration {
        self.tick.max(session / PARTS)
    }

    /// Refuses a session that is too short for these ticks.
    pub(super) fn allow(self, session: Duration) -> Result<(), NodeError> {
        let least = self.least.max(self.tick * 4);
        if session >= least {
            return Ok(());
        }
        let words = format!(
            "its servers have ticks of up to {:?}, and so keep sessions of {least:?} or more, and the session of this node is \
             {session:?}: write `?session={}s` in the URL, or lower tickTime",
            self.tick,
            least.as_millis().div_ceil(1000),
        );
        Err(failed(NodeErrorKind::Misconfigured, words))
    }
}
