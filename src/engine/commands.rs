//! Commands from the holder of a lease to its keeper.

use std::fmt;

use tokio::sync::oneshot;

use crate::error::{Lost, RenewError, RetainError};
use quorlock_protocol::Moment;

/// Where the holder waits for the end of a release.
pub(crate) type ReleaseReply = oneshot::Sender<Result<(), Lost>>;

/// Commands that the keeper has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct HolderCommands {
    pub(crate) renewals: Vec<oneshot::Sender<Result<(), RenewError>>>,
    pub(crate) release: Option<ReleaseReply>,
    pub(crate) retain: Option<Retention>,
    /// Downgrades the lease to a shared one.
    pub(crate) downgrade: Option<oneshot::Sender<Result<(), RenewError>>>,
    pub(crate) dropped: bool,
}

impl HolderCommands {
    /// Whether the holder gives the lease up.
    pub(crate) fn ends(&self) -> bool {
        self.dropped || self.release.is_some() || self.retain.is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.ends() && self.downgrade.is_none() && self.renewals.is_empty()
    }
}

/// Until when a lock stays taken after its lease, and the note that others read.
pub(crate) struct Retention {
    pub(crate) until: Moment,
    pub(crate) note: String,
    reply: oneshot::Sender<Result<(), RetainError>>,
}

/// The most characters of a note.
const NOTE: usize = 120;

impl Retention {
    pub(crate) fn new(
        until: Moment,
        note: &str,
        reply: oneshot::Sender<Result<(), RetainError>>,
    ) -> Retention {
        Retention { until, note: note.chars().take(NOTE).collect(), reply }
    }

    /// Replies to the holder, which may have stopped waiting.
    pub(crate) fn reply(self, outcome: Result<(), RetainError>) {
        drop(self.reply.send(outcome));
    }
}

impl fmt::Debug for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retention").field("until", &self.until).finish_non_exhaustive()
    }
}
