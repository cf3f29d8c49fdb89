//! Requests to a node.

use std::sync::Arc;
use std::time::Duration;

use super::Reason;
use super::capabilities::{Capabilities, Capability};
use super::{NodeError, NodeErrorKind};
use crate::{Claim, FenceHint, FencingToken, LoggedHold, Mode, NextWaiter, OfferTerms, WaiterId};

/// A request to a node.
///
/// The same requests serve claims that [share](Claim::shared) the lock. While at least one client holds such
/// a claim, the key holds [`SHARED_MARKER`](crate::SHARED_MARKER) and expires no sooner than the
/// last of the claims; each claim has its own expiry. *Acquire* is refused where the key holds a token, and
/// to new readers while a writer [waits](Request::AnnounceWriter) for the lock. *Renew* turns an exclusive holder of
/// the key into a reader, as a downgrade does. *Release* and *cancel* remove this claim, and delete the key
/// with the last claim.
///
/// Claims of [several](Claim::and) keys also use the same requests: *acquire*, *write back*, *renew*,
/// *release* and *cancel*. A condition that fails for one key fails the whole request: no key is changed, and
/// the response names the first key that failed. Only *release* and *cancel* change each key on which they
/// can act.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Request {
    /// Stores the claim's token under its key for `ttl`, if the key is free: `SET key token NX PX ttl`. Also
    /// granted if the key already holds the token. A node that serves in [order of arrival](super::Grants::FirstCome) refuses
    /// it while another waiter is before it, and makes the place of the claim's own waiter that of the holder. Answered by [`Granted`](super::Vote::Granted),
    /// [`Held`](super::Vote::Held), or [`Free`](super::Vote::Free) if the claim was cancelled.
    Acquire {
        /// The key and the token.
        claim: Arc<Claim>,
        /// The TTL of the key.
        ttl: Duration,
        /// The fencing number to issue in the same step, if granted. `None` if fencing is off: then the
        /// request is that plain command, or a script that does the same and refuses its own token.
        fence_hint: Option<FenceHint>,
    },
    /// Enters the waiter into the queue that this node keeps for the lock, in the order in which the waiters
    /// started to wait. Grants nothing and changes no lock: a waiter whose turn it is sends
    /// [`Acquire`](Request::Acquire). Answered by [`Queued`](super::Vote::Queued); or by
    /// [`Free`](super::Vote::Free) if the lock is free and no turn has begun within the last `turn`: then it
    /// is this waiter's turn, whatever its place in the queue.
    ///
    /// When the lock is [released](Request::Release), it is the turn of the first waiter, which is notified
    /// by a hint at the key [`turn_key`](crate::turn_key) and leaves the queue. A
    /// waiter that asks again keeps its place, or gets it back. Best effort: each node keeps a queue of its
    /// own.
    ///
    /// A node that serves in [order of arrival](super::Grants::FirstCome) puts the waiter at the end, however long it has
    /// waited. Its place stays until an attempt takes it, and is lost with its patience, or after a turn that was not taken.
    Enqueue {
        /// The key of the lock.
        key: Arc<str>,
        /// The waiter.
        waiter: WaiterId,
        /// How long it has waited already, by its own clock.
        elapsed: Duration,
        /// A waiter that does not ask again for this long is dropped from the queue.
        patience: Duration,
        /// How long the lock is reserved for the waiter whose turn it is.
        turn: Duration,
        /// The terms on which the waiter accepts an [`Offer`](Request::Offer); `None` if it accepts none.
        /// This node sends the terms of the first waiter to the holder:
        /// [`InboxMessage::Next`](crate::InboxMessage::Next).
        terms: Option<Arc<OfferTerms>>,
        /// The name of the process for humans: the context of its tokens.
        context: Arc<str>,
        /// Whether this client has recently seen the lock held by a program that does not use the queue. The
        /// node tells the holders, which then leave the lock free for a moment:
        /// [`releases_openly`](crate::releases_openly).
        others_seen: bool,
    },
    /// Raises the lock's counter to `fencing_token`, if the key holds the claim's token and the counter is below.
    WriteBack {
        /// The key and the token.
        claim: Arc<Claim>,
        /// The fencing token of the attempt.
        fencing_token: FencingToken,
    },
    /// Refuses new readers of the key for the time of `patience`: a writer waits for the present readers to
    /// finish.
    AnnounceWriter {
        /// The key.
        key: Arc<str>,
        /// The waiting writer.
        waiter: WaiterId,
        /// A writer that does not ask again for this long is dropped.
        patience: Duration,
    },
    /// Withdraws an [`AnnounceWriter`](Request::AnnounceWriter).
    WithdrawWriter {
        /// The key.
        key: Arc<str>,
        /// The writer.
        waiter: WaiterId,
    },
    /// Leaves the queue. If it was this waiter's turn and the lock is free, the next waiter is notified.
    LeaveQueue {
        /// The key of the lock.
        key: Arc<str>,
        /// The waiter.
        waiter: WaiterId,
    },
    /// Replaces the token of `from` by that of `to` for `ttl`, or stores the latter if the key is free: the
    /// holder passes the lock on without releasing it in between. Answered by [`Granted`](super::Vote::Granted),
    /// [`Restored`](super::Vote::Restored) if the key was free, [`Held`](super::Vote::Held), or
    /// [`Free`](super::Vote::Free) if `to` was cancelled. A node that cannot tell answers `Granted` for a free key.
    Transfer {
        /// The key and the present token.
        from: Arc<Claim>,
        /// The same key and the next token.
        to: Arc<Claim>,
        /// The TTL of the key.
        ttl: Duration,
        /// The fencing number to issue in the same step, if granted; `None` if fencing is off.
        fence_hint: Option<FenceHint>,
    },
    /// Extends the TTL of the key to at least `ttl` from now, if it holds the claim's token; stores the token
    /// again if the key is gone. Never shortens the TTL (rule I-6). Answered by
    /// [`Granted`](super::Vote::Granted), [`Restored`](super::Vote::Restored), [`Held`](super::Vote::Held),
    /// or [`Free`](super::Vote::Free) if the claim was cancelled.
    Renew {
        /// The key and the token.
        claim: Arc<Claim>,
        /// The new TTL.
        ttl: Duration,
        /// The fencing token of the lease: where the key is stored again, the counter must not be behind it.
        /// `None` if fencing is off.
        fencing_token: Option<FencingToken>,
    },
    /// Deletes the key, if it holds the claim's token. Answered by [`Granted`](super::Vote::Granted),
    /// [`Notified`](super::Vote::Notified) or [`ReleasedContended`](super::Vote::ReleasedContended); or by
    /// [`Free`](super::Vote::Free) if the key does not hold the token, whether or not it is held by another
    /// client.
    Release {
        /// The key and the token.
        claim: Arc<Claim>,
    },
    /// Like `Release`, but stores the token of the `next` waiter in the same step, for as long as its terms
    /// say, if the key holds the claim's token (rule O-1), and sends that waiter an
    /// [`InboxMessage::Offered`](crate::InboxMessage::Offered). If no client is subscribed to its
    /// inbox, the key is deleted as by `Release`. Answered by [`Notified`](super::Vote::Notified) if the
    /// token was stored, and otherwise like `Release`.
    Offer {
        /// The key and the token.
        claim: Arc<Claim>,
        /// The next holder.
        next: Arc<NextWaiter>,
        /// Whether it is in the queue of this node: then it is also told which waiter follows it there.
        queued: bool,
        /// The fencing number to issue for it; `None` if its terms say that there is none.
        fence_hint: Option<FenceHint>,
    },
    /// Like `Release`, but also refuses late requests of this claim for the time of `linger`: for a node that
    /// may not yet have carried out an earlier request. An acquisition without a
    /// [`contended`](FenceHint::contended) hint need not be refused if no such request can arrive late.
    Cancel {
        /// The key and the token.
        claim: Arc<Claim>,
        /// How long late requests are refused.
        linger: Duration,
    },
    /// Lists the waiters in the [queue](Request::Enqueue) of the lock. Answered by
    /// [`Waiters`](super::Vote::Waiters).
    ListWaiters {
        /// The key of the lock.
        key: Arc<str>,
    },
    /// Adds a hold that has ended to the log of the lock, and drops the oldest beyond `most`. The node forgets the log
    /// [`LOG_EXPIRY`](crate::LOG_EXPIRY) after the last of them. Changes no lock. Answered by
    /// [`Granted`](super::Vote::Granted).
    LogHold {
        /// The key of the lock.
        key: Arc<str>,
        /// The hold.
        hold: Arc<LoggedHold>,
        /// How many holds of the lock to keep: at least one, at most [`MOST_LOGGED`](crate::MOST_LOGGED).
        most: usize,
    },
    /// Reads the log of the lock. Answered by [`Log`](super::Vote::Log).
    ReadLog {
        /// The key of the lock.
        key: Arc<str>,
    },
    /// Reads the holder of the key. Changes nothing.
    Inspect {
        /// The key.
        key: Arc<str>,
        /// How much of it is the client's key prefix, below which the [counters](Claim::below) are.
        prefix_len: usize,
    },
}

impl Request {
    /// Creates an [`Enqueue`](Request::Enqueue) of a waiter that accepts no offers, has no name, and has seen
    /// no other program.
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

    /// Creates an [`Inspect`](Request::Inspect) by a client without a key prefix.
    #[must_use]
    pub fn inspect(key: impl Into<Arc<str>>) -> Request {
        Request::Inspect { key: key.into(), prefix_len: 0 }
    }

    /// Returns whether the request may create the key, and so must not be sent once the attempt was given up.
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
            | Request::Enqueue { .. }
            | Request::LeaveQueue { .. }
            | Request::ListWaiters { .. }
            | Request::LogHold { .. }
            | Request::ReadLog { .. } => false,
        }
    }

    /// Returns whether the request takes back an earlier one of its claim and leaves no tombstone. It must not
    /// overtake that one: sent over another connection, it would come back (rule I-5). A node that cannot
    /// prevent that answers [`Disconnected`](super::NodeError::Disconnected) and does not send it; the client
    /// then cancels with a tombstone.
    #[must_use]
    pub fn relies_on_order(&self) -> bool {
        match self {
            Request::Release { .. } | Request::Offer { .. } => true,
            Request::Cancel { linger, .. } => linger.is_zero(),
            Request::Acquire { .. }
            | Request::Transfer { .. }
            | Request::Renew { .. }
            | Request::WriteBack { .. }
            | Request::Inspect { .. }
            | Request::AnnounceWriter { .. }
            | Request::WithdrawWriter { .. }
            | Request::Enqueue { .. }
            | Request::LeaveQueue { .. }
            | Request::ListWaiters { .. }
            | Request::LogHold { .. }
            | Request::ReadLog { .. } => false,
        }
    }

    /// Returns the capability that a node needs beyond exclusive locks of one resource, if any.
    #[must_use]
    pub fn needs(&self) -> Option<Capability> {
        match self {
            Request::Enqueue { .. } | Request::LeaveQueue { .. } | Request::ListWaiters { .. } => {
                Some(Capability::Queue)
            }
            Request::Transfer { .. } => Some(Capability::Transfer),
            Request::Offer { .. } => Some(Capability::Offer),
            Request::LogHold { .. } | Request::ReadLog { .. } => Some(Capability::Log),
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
            Request::Inspect { .. } => None,
        }
    }

    /// Returns the keys of the locks that it is about.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        let (claim, key) = match self.subject() {
            Subject::Claim(claim) => (Some(claim), None),
            Subject::Key(key) => (None, Some(key)),
        };
        claim.into_iter().flat_map(Claim::keys).chain(key)
    }

    /// Returns the key of the lock; of several, the first.
    #[must_use]
    pub fn key(&self) -> &str {
        match self.subject() {
            Subject::Claim(claim) => claim.key(),
            Subject::Key(key) => key,
        }
    }

    /// Returns the claim of the request, if it has one.
    #[doc(hidden)]
    #[must_use]
    pub fn claim(&self) -> Option<&Claim> {
        match self.subject() {
            Subject::Claim(claim) => Some(claim),
            Subject::Key(_) => None,
        }
    }

    /// Returns how long its client waits for the answer of a node that has this time: no longer than its TTL allows.
    #[doc(hidden)]
    #[must_use]
    pub fn waits_for(&self, time: Duration) -> Duration {
        if let Request::Acquire { ttl, .. } | Request::Transfer { ttl, .. } | Request::Renew { ttl, .. } =
            self
        {
            crate::node_timeout(Some(time), None, *ttl)
        } else {
            time
        }
    }

    fn subject(&self) -> Subject<'_> {
        match self {
            Request::Acquire { claim, .. }
            | Request::Transfer { to: claim, .. }
            | Request::Renew { claim, .. }
            | Request::WriteBack { claim, .. }
            | Request::Release { claim }
            | Request::Offer { claim, .. }
            | Request::Cancel { claim, .. } => Subject::Claim(claim),
            Request::Enqueue { key, .. }
            | Request::LeaveQueue { key, .. }
            | Request::ListWaiters { key }
            | Request::LogHold { key, .. }
            | Request::ReadLog { key }
            | Request::AnnounceWriter { key, .. }
            | Request::WithdrawWriter { key, .. }
            | Request::Inspect { key, .. } => Subject::Key(key),
        }
    }
}

/// What a request is about.
enum Subject<'a> {
    Claim(&'a Claim),
    Key(&'a Arc<str>),
}

impl Capabilities {
    /// Refuses a request that needs an unsupported capability, or is for no such claim. For the start of a node's
    /// `Node::ask`.
    ///
    /// # Errors
    ///
    /// [`NodeErrorKind::Unsupported`], naming the capability.
    pub fn check(&self, request: &Request) -> Result<(), NodeError> {
        let reason = if let Some(needed) = request.needs().filter(|needed| !self.has(*needed)) {
            format!("nodes of this kind do not support {needed}")
        } else if let Request::Transfer { to, .. } = request
            && (to.mode() == Mode::Shared || to.is_several())
        {
            "a share of a lock, or several locks together, cannot be passed on".to_owned()
        } else {
            return Ok(());
        };
        Err(NodeError::Failed { kind: NodeErrorKind::Unsupported, reason: Reason::new(reason) })
    }
}
