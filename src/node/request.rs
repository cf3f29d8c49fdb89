//! What a node is asked.

use std::sync::Arc;
use std::time::Duration;

use super::capabilities::Capability;
use quorlock_protocol::{Claim, FenceHint, FencingToken, Mode, NextWaiter, OfferTerms, WaiterId};

/// What a node is asked.
///
/// A claim that [shares](Claim::shared) the lock is asked for with the same requests. While anybody
/// holds such a claim, the key holds [`SHARED_MARKER`](crate::protocol::SHARED_MARKER), and ends no
/// sooner than the last of them; each has an end of its own. To *acquire* it is refused where the key
/// holds a token, and to those who are new where a writer [intends](Request::AnnounceWriter) to have the
/// lock. To *renew* it makes a reader of whoever holds the key alone, as a downgrade does. To
/// *release* or *cancel* it takes out this claim, and the last one the key.
///
/// A claim of [several](Claim::and) keys is asked for with the same requests, too, by *acquire*,
/// *write back*, *renew*, *release* and *cancel*. What a request wants of the key it wants of all of
/// them, and what hinders it at one hinders it at all: then nothing is changed at any, and the answer
/// names the first key that stands in the way. Only a release or a cancellation does at each key what
/// it can.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Request {
    /// Store the claim's token under its key for `ttl`, if the key is free:
    /// `SET key token NX PX ttl`. Granted too if the token stands there already. Answered by
    /// [`Granted`](crate::node::Vote::Granted), [`Held`](crate::node::Vote::Held), or [`Free`](crate::node::Vote::Free) where the
    /// claim was cancelled.
    Acquire {
        /// Key and token.
        claim: Arc<Claim>,
        /// For how long.
        ttl: Duration,
        /// The number to draw in the same step, if granted. `None` where fencing is off: then it is
        /// that plain command, or a script that does the same, and refuses its own token.
        fence_hint: Option<FenceHint>,
    },
    /// Wait for the lock in the queue that this node keeps for it, in the order in which those who wait began to.
    /// It grants nothing and changes no lock: whoever is told that it is its turn [acquires](Request::Acquire).
    /// Answered by [`Queued`](crate::node::Vote::Queued); or by [`Free`](crate::node::Vote::Free) if the lock is free, and no turn
    /// has begun for as long as `turn`: then it is the turn of who asks, wherever in the queue that is.
    ///
    /// When the lock is [released](Request::Release), it is the turn of the first in the queue, which is told by a
    /// [hint](crate::node::Hint) at the key [`turn_key`](crate::protocol::turn_key). A turn takes the waiter out of the
    /// queue. Who asks again keeps its place, or gets it back. Best effort: nodes keep queues of their own.
    Enqueue {
        /// The key of the lock.
        key: Arc<str>,
        /// Who waits.
        waiter: WaiterId,
        /// For how long it has waited already, by its own clock.
        elapsed: Duration,
        /// Who has not asked again for this long is no longer waited for.
        patience: Duration,
        /// For how long the lock is left to whoever was told that it is its turn.
        turn: Duration,
        /// On which terms it accepts an [`Offer`](Request::Offer); `None` where it accepts none. Who is first tells
        /// them to the holder by this node: [`InboxMessage::Next`](crate::protocol::InboxMessage::Next).
        terms: Option<Arc<OfferTerms>>,
        /// Which process it is, for people: the context of its tokens.
        context: Arc<str>,
        /// Whether this client has seen a program with the lock lately that does not stand in its queue. The holders
        /// learn it from this node, and let the lock be free for a moment:
        /// [`releases_openly`](crate::protocol::releases_openly).
        others_seen: bool,
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
    AnnounceWriter {
        /// The key.
        key: Arc<str>,
        /// Who waits.
        waiter: WaiterId,
        /// Who has not asked again for this long is no longer waited for.
        patience: Duration,
    },
    /// Take an [`Intend`](Request::AnnounceWriter) back.
    WithdrawWriter {
        /// The key.
        key: Arc<str>,
        /// Who waits no longer.
        waiter: WaiterId,
    },
    /// Wait in the queue no longer. If it was this waiter's turn, and the lock is free, the next one is told.
    LeaveQueue {
        /// The key of the lock.
        key: Arc<str>,
        /// Who waits no longer.
        waiter: WaiterId,
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
        fence_hint: Option<FenceHint>,
    },
    /// Let the key live for at least `ttl` from now, if it holds the claim's token; store it anew
    /// if the key is gone. Never shortens the key's life (rule I-6). Answered by
    /// [`Granted`](crate::node::Vote::Granted), [`Restored`](crate::node::Vote::Restored), [`Held`](crate::node::Vote::Held), or
    /// [`Free`](crate::node::Vote::Free) where the claim was cancelled.
    Renew {
        /// Key and token.
        claim: Arc<Claim>,
        /// For how long.
        ttl: Duration,
        /// The lease's fencing token: where the key is stored anew, the counter must not be
        /// behind it. `None` where fencing is off.
        fencing_token: Option<FencingToken>,
    },
    /// Delete the key, if it holds the claim's token. Answered by [`Granted`](crate::node::Vote::Granted),
    /// [`Notified`](crate::node::Vote::Notified) or [`Wanted`](crate::node::Vote::ReleasedContended), or by [`Free`](crate::node::Vote::Free) if it does not hold it, whoever else does.
    Release {
        /// Key and token.
        claim: Arc<Claim>,
    },
    /// As `Release`, and in the same step store the token of the `next` waiter for as long as its terms say, if the key
    /// holds the claim's token (rule O-1), and tell that waiter by its inbox:
    /// [`InboxMessage::Offered`](crate::protocol::InboxMessage::Offered). Where no client listens there the key is
    /// deleted, as by `Release`. Answered by [`Notified`](crate::node::Vote::Notified) where it is stored, or else as
    /// `Release`.
    Offer {
        /// Key and token.
        claim: Arc<Claim>,
        /// Who has the lock next.
        next: Arc<NextWaiter>,
        /// Whether it stands in the queue of this node: then it learns which waiter is behind it there, too.
        queued: bool,
        /// The number to draw for it; `None` where its terms say that there is none.
        fence_hint: Option<FenceHint>,
    },
    /// As `Release`, and for the time of `linger` refuse requests of this claim that come late:
    /// for a node that may not yet have carried out an earlier request. An acquisition may go unrefused
    /// that has no [`contended`](FenceHint::contended) draw, if nothing can come late by which it was asked.
    Cancel {
        /// Key and token.
        claim: Arc<Claim>,
        /// For how long late requests are refused.
        linger: Duration,
    },
    /// Delete the counter of the lock's fencing tokens. Nobody is to use the key again: the next number
    /// would be too small.
    DeleteFencingCounter {
        /// The key of the lock.
        key: Arc<str>,
    },
    /// Tell who waits in the [queue](Request::Enqueue) of the lock. Answered by [`Waiters`](crate::node::Vote::Waiters).
    ListWaiters {
        /// The key of the lock.
        key: Arc<str>,
    },
    /// Tell who holds the key. Changes nothing.
    Inspect {
        /// The key.
        key: Arc<str>,
    },
}

impl Request {
    /// A request for a place by a waiter that accepts no offers, gives no name, and has seen no other program: see
    /// [`Enqueue`](Request::Enqueue) for the times.
    #[must_use]
    pub fn enqueue(
        key: Arc<str>,
        waiter: WaiterId,
        elapsed: Duration,
        patience: Duration,
        turn: Duration,
    ) -> Request {
        let (terms, context, others_seen) = (None, Arc::default(), false);
        Request::Enqueue { key, waiter, elapsed, patience, turn, terms, context, others_seen }
    }

    /// Whether the request may create the key, and so must not be sent once the attempt is given
    /// up.
    #[must_use]
    pub fn may_create(&self) -> bool {
        match self {
            Request::Acquire { .. } | Request::Transfer { .. } | Request::Renew { .. } => true,
            // What it stores belongs to another client.
            Request::Release { .. }
            | Request::Offer { .. }
            | Request::Cancel { .. }
            | Request::WriteBack { .. }
            | Request::Inspect { .. }
            | Request::AnnounceWriter { .. }
            | Request::WithdrawWriter { .. }
            | Request::DeleteFencingCounter { .. }
            | Request::Enqueue { .. }
            | Request::LeaveQueue { .. }
            | Request::ListWaiters { .. } => false,
        }
    }

    /// What a node must be able to do beside exclusive locks of one resource, if anything.
    #[must_use]
    pub fn needs(&self) -> Option<Capability> {
        match self {
            Request::Enqueue { .. } | Request::LeaveQueue { .. } | Request::ListWaiters { .. } => {
                Some(Capability::Queue)
            }
            Request::Transfer { .. } => Some(Capability::Transfer),
            Request::Offer { .. } => Some(Capability::Offer),
            Request::AnnounceWriter { .. } | Request::WithdrawWriter { .. } => Some(Capability::Shared),
            Request::Acquire { claim, .. }
            | Request::Renew { claim, .. }
            | Request::WriteBack { claim, .. }
            | Request::Release { claim }
            | Request::Cancel { claim, .. } => {
                if claim.mode() == Mode::Shared {
                    Some(Capability::Shared)
                } else {
                    claim.is_several().then_some(Capability::Several)
                }
            }
            Request::Inspect { .. } | Request::DeleteFencingCounter { .. } => None,
        }
    }

    /// The key of the lock; of several, the first.
    pub(crate) fn key(&self) -> &str {
        match self {
            Request::Acquire { claim, .. }
            | Request::Transfer { to: claim, .. }
            | Request::Renew { claim, .. }
            | Request::WriteBack { claim, .. }
            | Request::Release { claim }
            | Request::Offer { claim, .. }
            | Request::Cancel { claim, .. } => claim.key(),
            Request::Enqueue { key, .. }
            | Request::LeaveQueue { key, .. }
            | Request::ListWaiters { key }
            | Request::AnnounceWriter { key, .. }
            | Request::WithdrawWriter { key, .. }
            | Request::DeleteFencingCounter { key }
            | Request::Inspect { key } => key,
        }
    }

    /// The claim that it is about, if it is about one.
    pub(crate) fn claim(&self) -> Option<&Claim> {
        match self {
            Request::Acquire { claim, .. }
            | Request::Transfer { to: claim, .. }
            | Request::Renew { claim, .. }
            | Request::WriteBack { claim, .. }
            | Request::Release { claim }
            | Request::Offer { claim, .. }
            | Request::Cancel { claim, .. } => Some(claim),
            Request::Enqueue { .. }
            | Request::LeaveQueue { .. }
            | Request::ListWaiters { .. }
            | Request::Inspect { .. }
            | Request::AnnounceWriter { .. }
            | Request::WithdrawWriter { .. }
            | Request::DeleteFencingCounter { .. } => None,
        }
    }
}
