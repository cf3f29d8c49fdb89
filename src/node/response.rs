//! What a node answers, and from which history of its data.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{FencingToken, Moment, Quarantine, Token, WaiterId};

/// What a node says to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Vote {
    /// Done as asked: the key holds the token now, or, after a release, did until now.
    Granted,
    /// As `Granted`, to a release; and somebody was refused meanwhile, and may still want the lock. A
    /// hint: a node may forget that somebody does, when somebody else releases what is not theirs.
    ReleasedContended,
    /// As `Granted`, to a release; and the first of those who wait in the [queue](crate::node::Request::Enqueue) was told
    /// that it is its turn.
    Notified,
    /// The key was gone, and a renewal has stored the token again. The node does not count for
    /// this renewal: somebody else may have held it in between.
    Restored,
    /// Not done: the key holds something else. In a box, so that an answer is small: nearly none is this.
    Held(Box<Holding>),
    /// Not done: the key is shared or free, and a writer waits, who goes first.
    NotYourTurn,
    /// In the [queue](crate::node::Request::Enqueue).
    Queued(Box<Queued>),
    /// Those who wait in the [queue](crate::node::Request::Enqueue).
    Waiters(Box<QueueListing>),
    /// Not done: the counter has gone beyond the number that was to be written back.
    FenceAhead,
    /// Not done, and nobody else is in the way: the key is free, the claim was
    /// [cancelled](crate::node::Request::Cancel), or a release has not found its token.
    Free,
}

/// A place in the queue of those who wait for a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Queued {
    /// How many come before. From [`MOST_PLACES`](crate::protocol::MOST_PLACES) on the node may tell that number.
    pub ahead: u32,
    /// What the key holds, where the node has looked: at least for the first two of a queue, who are also given a
    /// [hint](crate::node::Hint) of every change of the key. For the others, `None` does not say that it is free.
    pub holding: Option<Holding>,
}

impl Queued {
    /// With so many before, and this under the key.
    #[must_use]
    pub fn new(ahead: u32, holding: Option<Holding>) -> Queued {
        Queued { ahead, holding }
    }
}

/// Those who wait for a lock in the queue of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct QueueListing {
    /// In the order in which they come.
    pub waiters: Vec<QueuedWaiter>,
    /// Whether there may be more than the node has told.
    pub has_more: bool,
}

impl QueueListing {
    /// These, and perhaps more.
    #[must_use]
    pub fn new(waiters: Vec<QueuedWaiter>, has_more: bool) -> QueueListing {
        QueueListing { waiters, has_more }
    }
}

impl From<QueueListing> for Vote {
    fn from(listing: QueueListing) -> Vote {
        Vote::Waiters(Box::new(listing))
    }
}

/// A process that waits for a lock in the queue of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QueuedWaiter {
    /// What it is called there: another name for each wait.
    pub id: WaiterId,
    /// For how long it has waited, on the node's clock.
    pub waited: Duration,
    /// Which process it is: the context of its tokens, as [`Token`] shows it.
    pub context: String,
}

impl QueuedWaiter {
    /// With this name, which has waited for so long, and is this process.
    #[must_use]
    pub fn new(id: WaiterId, waited: Duration, context: String) -> QueuedWaiter {
        QueuedWaiter { id, waited, context }
    }
}

impl From<Queued> for Vote {
    fn from(queued: Queued) -> Vote {
        Vote::Queued(Box::new(queued))
    }
}

impl From<Holding> for Vote {
    /// Not done: the key holds this.
    fn from(holding: Holding) -> Vote {
        Vote::Held(Box::new(holding))
    }
}

/// What stands under the key of a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Holding {
    /// The token of whoever holds it.
    pub token: Token,
    /// When the node will forget it.
    pub expiry: Expiry,
    /// Those who share it, where the token [says](Token::is_marker) that readers hold it and the node
    /// was asked who: the first hundred.
    pub readers: Vec<Token>,
    /// Which key it is, where several were asked for.
    pub key: Option<Arc<str>>,
}

impl Holding {
    /// Somebody's `token` with its `expiry`.
    #[must_use]
    pub fn new(token: Token, expiry: Expiry) -> Holding {
        Holding { token, expiry, readers: Vec::new(), key: None }
    }

    /// The same, shared by these `readers`.
    #[must_use]
    pub fn with_readers(self, readers: Vec<Token>) -> Holding {
        Holding { readers, ..self }
    }

    /// The same, at this one of several keys.
    #[must_use]
    pub fn at(self, key: Arc<str>) -> Holding {
        Holding { key: Some(key), ..self }
    }
}

/// When a key ends by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: a key has an expiry or has none")]
pub enum Expiry {
    /// So much time after the node answered.
    In(Duration),
    /// Never: this is no lock. Somebody keeps data under that name.
    Never,
}

/// A vote, and what it comes from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Response {
    /// What it said.
    pub vote: Vote,
    /// The number that goes with the vote: of an acquisition or a transfer, the one that was drawn for it, or
    /// where the counter stands if it was refused or the token stood there before; of an
    /// [inspection](crate::node::Request::Inspect), the holder's, or the counter where that is not known; where the
    /// counter is [ahead](Vote::FenceAhead), the counter. `None` for everything else, where fencing is off, and
    /// when nothing was drawn yet.
    pub fencing_token: Option<FencingToken>,
    /// The history of the data that it comes from.
    pub identity: Arc<Identity>,
    /// See [`counting_from`](Response::counting_from).
    pub counts_from: Option<Moment>,
}

impl Response {
    /// `vote`, as given by `identity`.
    #[must_use]
    pub fn new(vote: Vote, identity: Arc<Identity>) -> Response {
        Response { vote, fencing_token: None, identity, counts_from: None }
    }

    /// The same, where the TTL of what is granted does not begin when the store carried out the request, but
    /// with something before that: a lock that lives as long as a session is kept from the last heartbeat
    /// that the store has answered. `moment`, on the client's clock, is from before that was sent. The
    /// validity of a lease counts from there.
    #[must_use]
    pub fn counting_from(self, moment: Moment) -> Response {
        Response { counts_from: Some(moment), ..self }
    }

    /// The number of whoever it speaks of. A refusal comes with the counter, which others may have raised
    /// since; then the holder's token knows better. Whoever was asked who it is has looked that up.
    pub(crate) fn number_told(&self, inspected: bool) -> Option<FencingToken> {
        let Vote::Held(holding) = &self.vote else { return self.fencing_token };
        if inspected { self.fencing_token } else { holding.token.number().or(self.fencing_token) }
    }

    /// The same, with the node's counter of fencing tokens.
    #[must_use]
    pub fn with_fencing_token(self, fencing_token: Option<FencingToken>) -> Response {
        Response { fencing_token, ..self }
    }
}

/// A history of a store's data: all that was granted since it began and has not ended is remembered in it.
///
/// What forgets when it ends begins a new one with each start, as a server that keeps its data in memory does.
/// What remembers goes on with it, over any number of restarts: a file on a disk, a table, a store that
/// replicates by consensus. It begins a new one when it may have forgotten: a failover to a copy that may
/// have been behind, a backup that was restored, a file that was made anew. Two addresses of one history have
/// one vote, and one that has begun lately has none until all that may have been forgotten has run out.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Identity {
    /// Its name, which no other history has: Redis' `run_id`, the identifier of a database with its timeline.
    pub id: Box<str>,
    /// When this was learnt, on the client's clock; or a time to come, until which its age stays as it is.
    pub seen: Moment,
    /// How far back it reached at that moment, at least: for a process that forgets, for how long it had been
    /// running. A history has no vote before it is older than the largest `max_ttl` in use, with drift.
    pub age: Duration,
    /// The servers of which it is made, by the names that they keep for life, where it is a whole cluster.
    pub(crate) members: Option<Arc<BTreeSet<Arc<str>>>>,
}

impl Identity {
    /// A history called `id` that was at least of this `age` when it was `seen`.
    #[must_use]
    pub fn new(id: impl Into<Box<str>>, seen: Moment, age: Duration) -> Identity {
        Identity { id: id.into(), seen, age, members: None }
    }

    /// The same, of a cluster of these servers.
    pub(crate) fn with_members(self, members: Arc<BTreeSet<Arc<str>>>) -> Identity {
        Identity { members: Some(members), ..self }
    }

    /// Whether the two are one, and so have one vote: by the name, or by a server that is a member of both.
    /// Two who came to know a cluster at different times may call it after different members (rule C-7).
    pub(crate) fn is_one_with(&self, other: &Identity) -> bool {
        let shared = || Some(!self.members.as_ref()?.is_disjoint(other.members.as_ref()?));
        self.id == other.id || shared().unwrap_or(false)
    }

    /// How much longer it has to wait at `now` until its vote counts.
    pub(crate) fn stands_aside(&self, quarantine: Quarantine, now: Moment) -> Duration {
        let left = quarantine.left(self.age_at(now));
        if left.is_zero() { left } else { left.saturating_add(self.seen.since(now)) }
    }

    /// Its least age at `now`.
    #[must_use]
    pub fn age_at(&self, now: Moment) -> Duration {
        // A node may say anything of its age.
        self.age.saturating_add(now.since(self.seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorlock_protocol::Drift;

    #[test]
    fn a_process_of_any_age_ages_without_end() {
        let seconds = |seconds| Moment::since_origin(Duration::from_secs(seconds));
        let quarantine = Quarantine::new(Duration::from_secs(30), Drift::default());
        for age in [Duration::MAX, Duration::from_secs(u64::MAX)] {
            let identity = Identity::new("abc", seconds(1), age);
            assert!(identity.age_at(Moment::NEVER) >= age);
            assert_eq!(identity.stands_aside(quarantine, seconds(9)), Duration::ZERO);
        }
        let endless = Quarantine::new(Duration::MAX, Drift::default());
        let unborn = Identity::new("abc", Moment::NEVER, Duration::ZERO);
        assert_eq!(unborn.stands_aside(endless, seconds(1)), Duration::MAX);
    }
}
