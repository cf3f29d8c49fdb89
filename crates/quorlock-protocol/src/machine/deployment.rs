use std::sync::Arc;
use std::time::Duration;

use crate::{Quarantine, Quorum};

/// What the machine has to know of the nodes and of the time, and does not find out by itself.
///
/// It may change from one call to the next: round trips are measured, and another client's `max_ttl` is learnt.
pub trait Deployment {
    /// Returns how many nodes there are, and how many must grant.
    fn quorum(&self) -> Quorum;

    /// Returns for how long a restarted node does not vote.
    fn quarantine(&self) -> Quarantine;

    /// Returns the time since 1970, by the clock of this host.
    fn wall(&self) -> Duration;

    /// Whether all clients are on this host, so that its clock draws all fencing tokens.
    fn is_on_one_host(&self) -> bool;

    /// Returns the timeout of a node in a round about keys that live for `ttl`.
    fn timeout(&self, node: usize, ttl: Duration) -> Duration;

    /// Returns after how long, at least `least`, a node answers later than its measured round trips let expect.
    fn overdue_after(&self, node: usize, least: Duration, ttl: Duration) -> Duration;

    /// Returns by how much a grant for keys that live for `ttl` may count from before it was asked for, while the
    /// nodes are sound.
    fn grant_age(&self, ttl: Duration) -> Duration;

    /// Returns a random number for the length of a pause: it need not be secret.
    fn random(&self) -> u64;

    /// Returns the name of a node, for reports.
    fn name(&self, node: usize) -> Arc<str>;
}
