//! The response of a node, and the history of its data.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::{FencingToken, LoggedHold, Moment, Quarantine, Token, WaiterId};

/// The vote of a node on a request.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Vote {
    /// Done: the key holds the token now, or, for a release, held it until now.
    Granted,
    /// Granted to a release, and another client was refused meanwhile and may still want the lock. A hint:
    /// the node may forget it when a client releases a lock that it does not hold.
    ReleasedContended,
    /// Granted to a release, and the first waiter in the [queue](super::Request::Enqueue) was notified that
    /// it is its turn.
    Notified,
    /// The key was gone, and a renewal has stored the token again, or a [transfer](super::Request::Transfer) the next one.
    /// The node does not count for this renewal: another client may have held the lock in between. It counts for the
    /// next holder, and tells the one before that the lock was lost.
    Restored,
    /// Refused: the key holds something else. Boxed, so that the common responses stay small.
    Held(Box<Holding>),
    /// Refused: the key is shared or free, and a writer that waits goes first; or waiters of a store that serves in
    /// [order of arrival](super::Grants::FirstCome).
    NotYourTurn,
    /// The waiter is in the [queue](super::Request::Enqueue).
    Queued(Box<Queued>),
    /// The waiters in the [queue](super::Request::Enqueue).
    Waiters(Box<QueueListing>),
    /// The log of the lock, the oldest hold first.
    Log(Box<[LoggedHold]>),
    /// Refused: the counter is not below the number that was to be written back.
    FenceAhead,
    /// Not done, and no other client holds the lock: the key is free, the claim was
    /// [cancelled](super::Request::Cancel), or a release did not find its token.
    Free,
}

/// A place in the queue for a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Queued {
    /// The number of waiters ahead. A node may report [`MOST_PLACES`](crate::MOST_PLACES) for any
    /// larger number.
    pub ahead: u32,
    /// The content of the key, where the node has read it: at least for the first two waiters, which also
    /// receive a hint of every change of the key. For the others, `None` does not mean that it
    /// is free.
    pub holding: Option<Holding>,
}

impl Queued {
    /// Creates a place with `ahead` waiters ahead, and the content of the key.
    #[must_use]
    pub fn new(ahead: u32, holding: Option<Holding>) -> Queued {
        Queued { ahead, holding }
    }
}

/// The waiters in the queue of a node for a lock.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct QueueListing {
    /// The waiters, first in the queue first.
    pub waiters: Vec<QueuedWaiter>,
    /// Whether there may be more waiters than the node has listed.
    pub has_more: bool,
}

impl QueueListing {
    /// Creates a list of waiters, and whether there may be more.
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
    /// Its ID in the queue, which is new for each wait.
    pub id: WaiterId,
    /// How long it has waited, by the node's clock.
    pub waited: Duration,
    /// The name of the process: the context of its tokens, as [`Token`] shows it.
    pub context: String,
}

impl QueuedWaiter {
    /// Creates an entry with this ID, waiting time and context.
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
    /// Returns [`Vote::Held`] with this content of the key.
    fn from(holding: Holding) -> Vote {
        Vote::Held(Box::new(holding))
    }
}

/// The content of a lock's key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Holding {
    /// The token of the holder.
    pub token: Token,
    /// When the key expires on the node.
    pub expiry: Expiry,
    /// The readers, where the token [says](Token::is_marker) that the lock is shared and the node was asked
    /// for them: the first hundred.
    pub readers: Vec<Token>,
    /// The key, for a request with several keys.
    pub key: Option<Arc<str>>,
    /// How often the holder has acquired the lock without releasing it, where the node counts that: Redisson does.
    pub depth: Option<u64>,
    /// Whether it is a place in a queue that [other programs share](super::Grants::FirstCome): a lock, also if it never expires.
    pub is_place: bool,
}

impl Holding {
    /// Creates an entry with the `token` of the holder and its `expiry`.
    #[must_use]
    pub fn new(token: Token, expiry: Expiry) -> Holding {
        Holding { token, expiry, readers: Vec::new(), key: None, depth: None, is_place: false }
    }

    /// Sets the readers.
    #[must_use]
    pub fn with_readers(self, readers: Vec<Token>) -> Holding {
        Holding { readers, ..self }
    }

    /// Says that it is a place in a queue.
    #[must_use]
    pub fn in_queue(self) -> Holding {
        Holding { is_place: true, ..self }
    }

    /// Sets the key.
    #[must_use]
    pub fn at(self, key: Arc<str>) -> Holding {
        Holding { key: Some(key), ..self }
    }
}

/// When a key expires.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: a key has an expiry or has none")]
pub enum Expiry {
    /// After this time, counted from the node's response.
    In(Duration),
    /// Never: the key is not a lock but other data, unless it is a [place](Holding::is_place).
    Never,
}

/// A vote and the history of the data that it comes from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Response {
    /// The vote.
    pub vote: Vote,
    /// The fencing number that goes with the vote. For a granted acquisition or transfer: the number that was
    /// issued; if it was refused, or the key already held the token: the counter. For an
    /// [inspection](super::Request::Inspect): the holder's number, or the counter if that is unknown. For
    /// [`Vote::FenceAhead`]: the counter. `None` for everything else, if fencing is off, and if no number was
    /// issued yet.
    pub fencing_token: Option<FencingToken>,
    /// The history of the data that the vote comes from.
    pub identity: Arc<Identity>,
    /// See [`counting_from`](Response::counting_from).
    pub counts_from: Option<Moment>,
    /// See [`with_store_revision`](Response::with_store_revision).
    pub store_revision: Option<NonZeroU64>,
}

impl Response {
    /// Creates a response with a `vote` and the history of the data.
    #[must_use]
    pub fn new(vote: Vote, identity: Arc<Identity>) -> Response {
        Response { vote, fencing_token: None, identity, counts_from: None, store_revision: None }
    }

    /// Sets the moment from which the TTL of the grant counts, where that is before the store carried out the
    /// request: a lock that lives as long as a session is valid from the last heartbeat that the store has
    /// confirmed. `moment`, on the client's clock, must be from before that heartbeat was sent. The validity
    /// of a lease counts from there.
    #[must_use]
    pub fn counting_from(self, moment: Moment) -> Response {
        Response { counts_from: Some(moment), ..self }
    }

    /// Sets the number by which the store itself orders the holders of a lock, such as the create revision of a key in etcd.
    /// Programs that lock in the same store without this library have such a number too, and no fencing token.
    #[must_use]
    pub fn with_store_revision(self, store_revision: Option<NonZeroU64>) -> Response {
        Response { store_revision, ..self }
    }

    /// Returns the fencing number of the holder. A refusal carries the counter, which other clients may have
    /// raised since; then the number in the holder's token is preferred. An inspection has looked up the
    /// holder's number.
    ///
    /// A holder of another program has drawn none: the number is that of our last one. Only where the layout is that
    /// program's own, so that the depth is counted, may it be the holder's.
    #[doc(hidden)]
    #[must_use]
    pub fn holder_number(&self, inspected: bool) -> Option<FencingToken> {
        let Vote::Held(holding) = &self.vote else { return self.fencing_token };
        let is_foreign = !holding.token.is_ours() && !holding.token.is_marker() && holding.depth.is_none();
        match holding.token.number() {
            _ if is_foreign => None,
            Some(number) if !inspected => Some(number),
            Some(_) | None => self.fencing_token,
        }
    }

    /// Sets the fencing number.
    #[must_use]
    pub fn with_fencing_token(self, fencing_token: Option<FencingToken>) -> Response {
        Response { fencing_token, ..self }
    }
}

/// A history of a store's data: the period in which the store remembers every grant that has not expired.
///
/// A store that loses its data when it stops, such as a server that keeps it in memory, starts a new history
/// with each start. A durable store continues its history over any number of restarts: a file on disk, a
/// table, a store that replicates by consensus. It starts a new one when it may have lost grants: after a
/// failover to a replica that may have lagged, a restored backup, a recreated file. Two addresses with the
/// same history have one vote. A new history has no vote until everything that may have been lost has
/// expired.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Identity {
    /// Its unique ID: Redis' `run_id`, the identifier of a database with its timeline.
    pub id: Box<str>,
    /// When this was learnt, on the client's clock; a moment in the future keeps the age constant until then.
    pub seen: Moment,
    /// The minimum age of the history at that moment: for a process that keeps data in memory, its uptime. A
    /// history has no vote before it is older than the largest `max_ttl` in use, plus drift.
    pub age: Duration,
    /// Whether the clock of its server was set back after the start, so that the server cannot tell the age.
    #[doc(hidden)]
    pub clock_set_back: bool,
    /// The server that keeps it, where that is known, and where one server may keep several.
    #[doc(hidden)]
    pub server: Option<Box<str>>,
    /// Of a whole cluster: the permanent IDs of its servers.
    #[doc(hidden)]
    pub members: Option<Arc<BTreeSet<Arc<str>>>>,
}

impl Identity {
    /// Creates a history called `id` that was at least `age` old when it was `seen`.
    #[must_use]
    pub fn new(id: impl Into<Box<str>>, seen: Moment, age: Duration) -> Identity {
        Identity { id: id.into(), seen, age, clock_set_back: false, server: None, members: None }
    }

    /// Sets whether the clock of its server was set back after the start.
    #[doc(hidden)]
    #[must_use]
    pub fn with_clock_set_back(self, clock_set_back: bool) -> Identity {
        Identity { clock_set_back, ..self }
    }

    /// Names the server that keeps this history. All that one server keeps have one vote.
    #[must_use]
    pub fn on_server(self, server: impl Into<Box<str>>) -> Identity {
        Identity { server: Some(server.into()), ..self }
    }

    /// Sets the servers of the cluster.
    #[doc(hidden)]
    #[must_use]
    pub fn with_members(self, members: Arc<BTreeSet<Arc<str>>>) -> Identity {
        Identity { members: Some(members), ..self }
    }

    /// Returns what has [one vote](Identity::voter), unless other clients may know it under another ID, as a cluster.
    #[doc(hidden)]
    #[must_use]
    pub fn lasting_id(&self) -> Option<&str> {
        self.members.is_none().then(|| self.voter())
    }

    /// Returns what has one vote: the server, where the history does not name a server of its own.
    #[doc(hidden)]
    #[must_use]
    pub fn voter(&self) -> &str {
        self.server.as_deref().unwrap_or(&self.id)
    }

    /// Returns whether both have one vote: the history or its server is the same, or a server is a member of both. Two clients that first met a cluster at different times may have named it after
    /// different members (rule C-7).
    #[doc(hidden)]
    #[must_use]
    pub fn is_one_with(&self, other: &Identity) -> bool {
        let shared = || Some(!self.members.as_ref()?.is_disjoint(other.members.as_ref()?));
        self.voter() == other.voter() || shared().unwrap_or(false)
    }

    /// Returns the remaining time at `now` until its vote counts.
    #[doc(hidden)]
    #[must_use]
    pub fn quarantine_left(&self, quarantine: Quarantine, now: Moment) -> Duration {
        let left = quarantine.left(self.age_at(now));
        if left.is_zero() { left } else { left.saturating_add(self.seen.since(now)) }
    }

    /// Returns its minimum age at `now`.
    #[must_use]
    pub fn age_at(&self, now: Moment) -> Duration {
        // A node may report any age.
        self.age.saturating_add(now.since(self.seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Drift;

    #[test]
    fn the_age_of_a_process_does_not_overflow() {
        let seconds = |seconds| Moment::since_origin(Duration::from_secs(seconds));
        let quarantine = Quarantine::new(Duration::from_secs(30), Drift::default());
        for age in [Duration::MAX, Duration::from_secs(u64::MAX)] {
            let identity = Identity::new("abc", seconds(1), age);
            assert!(identity.age_at(Moment::NEVER) >= age);
            assert_eq!(identity.quarantine_left(quarantine, seconds(9)), Duration::ZERO);
        }
        let endless = Quarantine::new(Duration::MAX, Drift::default());
        let unborn = Identity::new("abc", Moment::NEVER, Duration::ZERO);
        assert_eq!(unborn.quarantine_left(endless, seconds(1)), Duration::MAX);
    }

    /// Others may have raised the counter since; see docs/adr/0005-redis.md.
    #[test]
    fn a_refusal_reports_the_holders_number_not_the_counter() {
        let (wanted, counter) = (FencingToken::new(41).unwrap(), FencingToken::new(99));
        let token = Token::numbered(1, wanted, "");
        let held = Vote::from(Holding::new(token, Expiry::Never));
        let identity = Arc::new(Identity::new("a", Moment::ORIGIN, Duration::ZERO));
        let answer = Response::new(held, identity).with_fencing_token(counter);
        assert_eq!(answer.holder_number(false), Some(wanted));
        assert_eq!(
            answer.holder_number(true),
            counter,
            "an inspection returns the number drawn for the holder"
        );
    }

    /// The counter is that of our last holder.
    #[test]
    fn a_holder_of_another_program_has_no_number_unless_its_layout_counts() {
        let number = |token: &[u8], depth| {
            let holding = Holding { depth, ..Holding::new(Token::found(token), Expiry::Never) };
            let identity = Arc::new(Identity::new("a", Moment::ORIGIN, Duration::ZERO));
            let answer =
                Response::new(Vote::from(holding), identity).with_fencing_token(FencingToken::new(99));
            [false, true].map(|inspected| answer.holder_number(inspected))
        };
        assert_eq!(number(b"127.0.0.1", None), [None; 2], "Curator has drawn none");
        assert_eq!(number(b"", None), [None; 2], "etcdctl has drawn none");
        assert_eq!(number(b"8743c9c0-0795-4907-87fd-6c719a6b4586:31", Some(1)), [FencingToken::new(99); 2]);
        let ours = Token::new(7, "db-7:4121");
        assert_eq!(number(ours.as_bytes(), None), [FencingToken::new(99); 2]);
    }
}
