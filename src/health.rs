//! The status of a coordinator's nodes, for programs that show it or act on it.
//!
//! [`Coordinator::health`](crate::Coordinator::health) returns a [`Health`].

use std::sync::{Arc, Weak};

use futures::future::{Either, select};

use crate::quorum::board::StatusBoard;
pub use crate::quorum::board::{NodeHealth, NodeStatus};
use crate::quorum::members::Nodes;
use crate::runtime::clock::Clock;
use quorlock_protocol::{Moment, RoundTrip};

/// The status of the nodes of a [`Coordinator`](crate::Coordinator), now and whenever it changes.
///
/// Sends nothing: it shows what the connections have found out. Until a lock is first acquired or inspected there are
/// none, and every node is [`Unknown`](crate::health::NodeStatus::Unknown).
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let coordinator = quorlock::Coordinator::builder().nodes(["a", "b", "c"]).build()?;
/// let mut health = coordinator.health();
/// tokio::spawn(async move {
///     while let Some(nodes) = health.changed().await {
///         for node in nodes {
///             println!("{node}"); // redis://10.0.0.1:6379: connected
///         }
///     }
/// });
/// # Ok::<(), quorlock::ConfigError>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Health {
    nodes: Weak<Nodes>,
    board: Arc<StatusBoard>,
    clock: Arc<dyn Clock>,
    /// The version that was returned last.
    seen: u64,
    /// When the first of the returned quarantines ends.
    next_end: Option<Moment>,
}

impl Health {
    pub(crate) fn of(nodes: &Arc<Nodes>) -> Health {
        let (board, clock) = (Arc::clone(&nodes.board), Arc::clone(&nodes.clock));
        let mut health = Health { nodes: Arc::downgrade(nodes), board, clock, seen: 0, next_end: None };
        let now = health.clock.now();
        health.look(now);
        health
    }

    /// Returns the status of each node, in the order of the configuration. Empty once the coordinator is dropped.
    #[must_use]
    pub fn now(&self) -> Vec<NodeHealth> {
        let Some(nodes) = self.nodes.upgrade() else { return Vec::new() };
        self.board.each(self.clock.now(), |node| nodes.round_trip(node).map(RoundTrip::smoothed))
    }

    /// Waits for a change since this `Health` was made, or since the last call, and returns the status of each node.
    /// `None` once the coordinator is dropped, with its clones and all that they have made: locks, semaphores, leases,
    /// elections, observers. [`close`](crate::Coordinator::close) does not end it.
    ///
    /// A longer or shorter round trip is no change. Several changes in between are returned as one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect; call again.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime, while a node is too young to vote.
    pub async fn changed(&mut self) -> Option<Vec<NodeHealth>> {
        let board = Arc::clone(&self.board);
        loop {
            let news = board.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            let now = self.clock.now();
            if board.is_closed() {
                return None;
            }
            if self.look(now) {
                return Some(self.now());
            }
            match self.next_end {
                Some(end) => match select(news, self.clock.sleep_until(end)).await {
                    Either::Left(_) | Either::Right(_) => {}
                },
                None => news.await,
            }
        }
    }

    /// Whether the status has changed; from now on it counts as returned.
    fn look(&mut self, now: Moment) -> bool {
        let (version, next_end) = self.board.version(now);
        let is_new = version != self.seen || self.next_end.is_some_and(|end| now >= end);
        if is_new {
            (self.seen, self.next_end) = (version, next_end);
        }
        is_new
    }
}
