//! What a node is asked.

use std::sync::Arc;
use std::time::Duration;

use crate::protocol::{Claim, Draw, FencingToken, Ticket};

/// What a node is asked.
///
/// A claim that [shares](Claim::shared) the lock is asked for with the same questions. While anybody
/// holds such a claim, the key holds [`SHARED_MARKER`](crate::protocol::SHARED_MARKER), and ends no
/// sooner than the last of them; each has an end of its own. To *acquire* it is refused where the key
/// holds a token, and to those who are new where a writer [intends](Question::Intend) to have the
/// lock. To *renew* it makes a reader of whoever holds the key alone, as a downgrade does. To
/// *release* or *cancel* it takes out this claim, and the last one the key.
///
/// A claim of [several](Claim::and) keys is asked for with the same questions, too, by *acquire*,
/// *write back*, *renew*, *release* and *cancel*. What a question wants of the key it wants of all of
/// them, and what hinders it at one hinders it at all: then nothing is changed at any, and the answer
/// names the first key that stands in the way. Only a release or a cancellation does at each key what
/// it can.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Question {
    /// Store the claim's token under its key for `ttl`, if the key is free:
    /// `SET key token NX PX ttl`. Granted too if the token stands there already.
    Acquire {
        /// Key and token.
        claim: Arc<Claim>,
        /// For how long.
        ttl: Duration,
        /// The number to draw in the same step, if granted. `None` where fencing is off: then it is
        /// that plain command, or a script that does the same, and refuses its own token.
        draw: Option<Draw>,
    },
    /// As `Acquire`, but only if nobody with an earlier ticket waits at this node; else join those
    /// who wait, or say that one is still there, for the time of `patience`. Best effort: nodes
    /// need not know the same waiters.
    AcquireInTurn {
        /// Key and token.
        claim: Arc<Claim>,
        /// For how long.
        ttl: Duration,
        /// The place in the line.
        ticket: Ticket,
        /// Who has not asked again for this long is no longer waited for. Zero asks once, and joins no
        /// line.
        patience: Duration,
        /// The number to draw in the same step, if granted; `None` where fencing is off.
        draw: Option<Draw>,
    },
    /// Raise the lock's counter to `fencing_token`, if the key holds the claim's token and the counter is
    /// not [ahead](FencingToken::may_follow) already.
    WriteBack {
        /// Key and token.
        claim: Arc<Claim>,
        /// The attempt's fencing token.
        fencing_token: FencingToken,
    },
    /// For the time of `patience`, refuse whoever wants to share the key and does not do so yet: a
    /// writer waits for those who do.
    Intend {
        /// The key.
        key: Arc<str>,
        /// Who waits.
        ticket: Ticket,
        /// Who has not asked again for this long is no longer waited for.
        patience: Duration,
    },
    /// Take an [`Intend`](Question::Intend) back.
    Desist {
        /// The key.
        key: Arc<str>,
        /// Who waits no longer.
        ticket: Ticket,
    },
    /// Leave the line of those who wait for the key.
    LeaveLine {
        /// The key.
        key: Arc<str>,
        /// The place that is given up.
        ticket: Ticket,
    },
    /// Store the token of `to` for `ttl`, if the key holds the token of `from` or is free: the
    /// holder passes the lock on, without a moment in which it is free.
    Transfer {
        /// Key and token so far.
        from: Arc<Claim>,
        /// The same key and the next token.
        to: Arc<Claim>,
        /// For how long.
        ttl: Duration,
        /// The number to draw in the same step, if granted; `None` where fencing is off.
        draw: Option<Draw>,
    },
    /// Let the key live for at least `ttl` from now, if it holds the claim's token; store it anew
    /// if the key is gone. Never shortens the key's life (rule I-6).
    Renew {
        /// Key and token.
        claim: Arc<Claim>,
        /// For how long.
        ttl: Duration,
        /// The lease's fencing token: where the key is stored anew, the counter must not be
        /// behind it. `None` where fencing is off.
        fencing_token: Option<FencingToken>,
    },
    /// Delete the key, if it holds the claim's token.
    Release {
        /// Key and token.
        claim: Arc<Claim>,
    },
    /// As `Release`, and for the time of `linger` refuse requests of this claim that come late:
    /// for a node that may not yet have carried out an earlier question. An acquisition may go unrefused
    /// that has no [`contended`](Draw::contended) draw, if nothing can come late by which it was asked.
    Cancel {
        /// Key and token.
        claim: Arc<Claim>,
        /// For how long late requests are refused.
        linger: Duration,
    },
    /// Delete the counter of the lock's fencing tokens. Nobody is to use the key again: the next number
    /// would be too small.
    Forget {
        /// The key of the lock.
        key: Arc<str>,
    },
    /// Tell who holds the key. Changes nothing.
    Inspect {
        /// The key.
        key: Arc<str>,
    },
}

impl Question {
    /// Whether the question may create the key, and so must not be sent once the attempt is given
    /// up.
    #[must_use]
    pub fn may_create(&self) -> bool {
        match self {
            Question::Acquire { .. }
            | Question::AcquireInTurn { .. }
            | Question::Transfer { .. }
            | Question::Renew { .. } => true,
            Question::Release { .. }
            | Question::Cancel { .. }
            | Question::WriteBack { .. }
            | Question::Inspect { .. }
            | Question::Intend { .. }
            | Question::Desist { .. }
            | Question::Forget { .. }
            | Question::LeaveLine { .. } => false,
        }
    }

    /// The claim that it is about, if it is about one.
    pub(crate) fn claim(&self) -> Option<&Claim> {
        match self {
            Question::Acquire { claim, .. }
            | Question::AcquireInTurn { claim, .. }
            | Question::Transfer { to: claim, .. }
            | Question::Renew { claim, .. }
            | Question::WriteBack { claim, .. }
            | Question::Release { claim }
            | Question::Cancel { claim, .. } => Some(claim),
            Question::LeaveLine { .. }
            | Question::Inspect { .. }
            | Question::Intend { .. }
            | Question::Desist { .. }
            | Question::Forget { .. } => None,
        }
    }
}
