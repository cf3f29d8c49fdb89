//! Reads who held a lock before.

use super::Lock;
use crate::error::ConfigError;
use crate::lease::Single;
use crate::node::{Capability, Request, SharedRequest};
use crate::quorum::round::{Expect, Round};
use quorlock_protocol::machine::Deployment as _;
use quorlock_protocol::votes::VoteReport;
use quorlock_protocol::{LoggedHold, merge_logs};

/// The log of a lock: what [`Lock::log`] returns.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct HoldLog {
    /// The holds, in the order in which they ended by the wall clocks of their holders: the latest last.
    pub holds: Vec<SeenHold>,
    /// Which nodes have answered: those that are [granted](crate::votes::VoteOutcome::Granted). A node that keeps no log was
    /// not asked.
    pub report: VoteReport,
}

/// A hold that has ended, as the nodes have it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SeenHold {
    /// The hold.
    pub hold: LoggedHold,
    /// How many nodes have it. Fewer than a quorum is no alarm: the holder does not wait for them.
    pub nodes: usize,
}

impl<F> Lock<Single, F> {
    /// Asks all nodes that keep a log for the holds of this lock that have ended, by clients that
    /// [log](crate::Builder::log) them. Waits for each node at most its timeout.
    ///
    /// It is a help for people, and no proof: a client that was killed or cut off has left no entry, one of another library
    /// leaves none, and times are by the clocks of the holders.
    ///
    /// # Errors
    ///
    /// When name or options cannot work, or no node keeps a log. Nodes that do not answer are part of the report.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the nodes.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn log(&self) -> Result<HoldLog, ConfigError> {
        self.check()?;
        let nodes = &self.engine.nodes;
        let keeps = |node| nodes.can(node, Capability::Log);
        if !(0..nodes.quorum.nodes()).any(keeps) {
            return Err(ConfigError::Unsupported { node: nodes.name(0), capability: Capability::Log });
        }
        self.engine.introduced().await;
        let request = SharedRequest::from(Request::ReadLog { key: self.keys.queue_key().clone() });
        let round = Round::start(nodes, Expect::AnyAnswer, self.options.ttl, |node| {
            keeps(node).then(|| request.clone())
        });
        round.settled().await;
        let holds = merge_logs(round.with(|round, _| round.logs()))
            .into_iter()
            .map(|(hold, nodes)| SeenHold { hold, nodes });
        Ok(HoldLog { holds: holds.collect(), report: round.report() })
    }
}
