//! What happens to a lease: the events of its keeper.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::{LossReason, Lost, RenewError, RetainError};
use crate::quorum::round::Round;
use quorlock_protocol::{Moment, Verdict};

/// Where the holder waits for the end of a release.
pub(crate) type ReleaseReply = oneshot::Sender<Result<(), Lost>>;
/// Where the holder waits for the verdict on a renewal.
pub(crate) type RenewReply = oneshot::Sender<Result<(), RenewError>>;

/// What happens while a lease goes on.
pub(crate) enum Event {
    /// The holder wants it renewed now.
    Renew(RenewReply),
    /// The holder wants it renewed now for this TTL, and so from now on.
    Extend(Duration, RenewReply),
    /// The holder wants it shared.
    Downgrade(RenewReply),
    /// The verdict on the renewal that asked in this round, for which a task has waited.
    Verdict(Arc<Round>, Verdict),
    /// Something may be due: it is time, or the coordinator is being closed.
    Look,
    /// The same, by a thread that stands in for the runtime of the keeper, which may be blocked: it also reads answers.
    Attend,
    /// A node says that a key of the lease has changed there. It may be reporting it.
    Hint,
    /// Responses have made the verdict on the renewal in flight certain. A node may be reporting it.
    Decided,
    /// A renewal has found after its verdict that too many nodes have no key. A node may be reporting it.
    Lost,
    /// The last answer of a round has arrived. A node may be reporting it.
    Settled,
    /// This runtime, which is driven, has its timer from now on.
    Adopt(Handle),
    /// The holder gives it up.
    End(Ended),
}

impl Event {
    /// Whether a node reports it, on the runtime of its connection.
    pub(crate) fn is_of_a_node(&self) -> bool {
        matches!(self, Event::Hint | Event::Decided | Event::Lost | Event::Settled)
    }
}

/// How a lease ends.
pub(crate) enum Ended {
    /// The holder released the lock, and may wait for confirmation.
    Released(Option<ReleaseReply>),
    /// The holder leaves the lock taken.
    Retained(Retention),
    /// The lease was lost.
    Lost(LossReason),
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
