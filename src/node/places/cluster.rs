//! What a node needs to know of a store with several members, and of its connection to one of them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quorlock_protocol::{FencingToken, Moment, turn_key};
use tokio::sync::Notify;

use super::members::{Member, Members};
use super::own::{OwnPlace, OwnPlaces, Role as PlaceRole};
use super::watched::Watched;
use crate::address::AddressError;
use crate::node::facts::{ClockReading, Concern, Facts, Fsync, Memory, Role, Software};
use crate::node::{Capabilities, Hint, HintListener, Identity, ListedKeys, NodeError, Request, Seams, Vote};
use crate::runtime::{Clock, Mutex};

/// A store with several members: what outlives the connections of its node.
pub trait Cluster: Send + Sync + Sized + 'static {
    /// A parsed URL. `Display` is the name of the node, and shows no password.
    type Address: AsRef<Members> + Clone + fmt::Debug + fmt::Display + Send + Sync + 'static;
    /// Where a place is stored.
    type Key: Ord + Clone + fmt::Debug + Send + Sync;
    /// What is known of a place of this process.
    type Stored: Clone + Send + Sync;
    /// A connection that may vote.
    type Voter: Voter<Cluster = Self>;
    /// Lists the names of locks.
    type Listing: Listing<Voter = Self::Voter>;

    /// The name of its thread, which debuggers show.
    const THREAD: &'static str;

    /// Parses a URL.
    ///
    /// # Errors
    ///
    /// If it is malformed.
    fn parse(url: &str) -> Result<Self::Address, AddressError>;

    /// Creates the state of a node that has no connection yet.
    fn new(local: Local<Self>) -> Self;

    /// Returns what every such node keeps.
    fn local(&self) -> &Local<Self>;

    /// Returns what such a node can do.
    fn capabilities() -> Capabilities;

    /// Returns the shortest TTL.
    fn least_ttl(&self) -> Duration;

    /// Returns by how much a grant or a renewal may count from before it was asked for.
    fn grant_age(&self, ttl: Duration) -> Duration;

    /// Connects to a member.
    ///
    /// # Errors
    ///
    /// Why it cannot vote.
    fn open(
        self: &Arc<Self>,
        member: &Member,
    ) -> impl Future<Output = Result<Arc<Self::Voter>, NodeError>> + Send;
}

/// A connection to a member, which may vote.
pub trait Voter: Send + Sync + Sized + 'static {
    /// The store.
    type Cluster: Cluster<Voter = Self>;
    /// Why a request has no answer.
    type Failure: Failure;

    /// Returns what outlives it.
    fn cluster(&self) -> &Arc<Self::Cluster>;

    /// Returns what every connection has.
    fn connection(&self) -> &Connection;

    /// Returns the history of the data, as it is known by now.
    fn identity(&self) -> Arc<Identity> {
        Arc::clone(&self.connection().identity)
    }

    /// Carries out a request that such a node [can](Cluster::capabilities) carry out.
    fn apply(
        self: &Arc<Self>,
        request: &Request,
    ) -> impl Future<Output = Result<Answer, Self::Failure>> + Send;

    /// Returns the locks that are watched over this connection.
    fn watched(&self) -> &Watched<<Self::Cluster as Cluster>::Key>;

    /// Returns from when this TTL counts of the place of a holder, if that is known to be there without a request.
    fn confirmed(&self, own: &Own<Self::Cluster>, ttl: Duration) -> Option<Moment>;

    /// Deletes a place of this process, although its session or lease lives on for others.
    fn delete(&self, own: &Own<Self::Cluster>) -> impl Future<Output = Result<(), Self::Failure>> + Send;

    /// Ends a connection that has failed, or the last one of a node that is used no more.
    fn leave(&self, is_last: bool) -> impl Future<Output = ()> + Send;

    /// Asks for what `doctor` is to say of the store, and what it is, if that is not known yet. What may not be asked stays
    /// unknown.
    fn examine(&self, software: &mut Option<Software>) -> impl Future<Output = Option<Vec<Concern>>> + Send;
}

/// A place of this process in such a store.
pub type Own<C> = OwnPlace<<C as Cluster>::Key, <C as Cluster>::Stored>;

/// Lists the names of locks, page by page, over a connection of its own.
pub trait Listing: Send + Sized + 'static {
    /// The connection.
    type Voter: Voter;

    /// Begins with the first page of the names with this prefix.
    fn new(voter: Arc<Self::Voter>, prefix: &str) -> Self;

    /// Returns the next page, or `None` after the last one.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    fn page(
        &mut self,
        prefix: &str,
        which: ListedKeys,
    ) -> impl Future<Output = Result<Option<Vec<Arc<str>>>, NodeError>> + Send;
}

/// Why a request has no answer. An error of the node itself is one, too.
pub trait Failure: From<NodeError> + Into<NodeError> + Send {
    /// Returns whether another connection, to the next member, may do better.
    fn ends_connection(&self) -> bool;

    /// Returns whether nothing was done because what the node knew of the store is there no more. It knows that by now.
    fn is_stale(&self) -> bool {
        false
    }
}

/// The answer to a request.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete: what a response has of the store")]
pub struct Answer {
    /// The vote.
    pub vote: Vote,
    /// The number that was drawn, or where the counter stands.
    pub number: Option<FencingToken>,
    /// From when the TTL of a grant counts.
    pub from: Option<Moment>,
    /// The revision of the store that created the holder's place.
    pub revision: i64,
}

impl From<Vote> for Answer {
    fn from(vote: Vote) -> Answer {
        Answer { vote, number: None, from: None, revision: 0 }
    }
}

impl Answer {
    /// Adds a number, unless it is zero, where a counter begins.
    #[must_use]
    pub fn numbered(self, number: Option<FencingToken>) -> Answer {
        Answer { number: number.filter(|number| *number > FencingToken::ZERO), ..self }
    }
}

/// What a node of a [`Cluster`] keeps, whatever the store.
#[non_exhaustive]
pub struct Local<C: Cluster> {
    /// The URL.
    pub address: C::Address,
    /// The environment.
    pub seams: Seams,
    /// The places of this process.
    pub own: Mutex<OwnPlaces<C::Key, C::Stored>>,
    pub(super) listeners: Mutex<Vec<Arc<dyn HintListener>>>,
    due: Notify,
    /// The largest `max_ttl` of the clients, as it was last found recorded.
    max_ttl: Mutex<Option<Duration>>,
}

/// How long a request may take, unless the node timeout is longer.
pub const CALL_LIMIT: Duration = Duration::from_secs(3);
/// How long it may take to connect to a member, unless another time is set.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// For how long a new history does not vote, where no client says.
const USUAL_MAX_TTL: Duration = Duration::from_secs(60);

impl<C: Cluster> Local<C> {
    /// Creates the state of a node that has no places.
    pub(super) fn new(address: C::Address, seams: Seams) -> Local<C> {
        let (own, listeners, max_ttl) = (Mutex::default(), Mutex::default(), Mutex::default());
        Local { address, seams, own, listeners, due: Notify::new(), max_ttl }
    }

    /// Returns how long a request may take.
    #[must_use]
    pub fn call_limit(&self) -> Duration {
        CALL_LIMIT.max(self.seams.node_timeout().unwrap_or_default())
    }

    /// Returns how long it may take to connect to a member.
    #[must_use]
    pub fn connect_limit(&self) -> Duration {
        self.seams.connect_timeout().unwrap_or(CONNECT_LIMIT)
    }

    /// Compares the largest `max_ttl` of the clients, as it is recorded, with that of this one. Returns for how long a new
    /// history must not vote, in whole seconds, and what is to be recorded instead, if ours is larger.
    #[must_use]
    pub fn quarantine(&self, recorded: Option<&[u8]>) -> (Duration, Option<[u8; 8]>) {
        let millis = |data: &[u8]| Some(u64::from_be_bytes(data.try_into().ok()?));
        let stored = recorded.and_then(millis).map_or(Duration::ZERO, Duration::from_millis);
        let ours = self.seams.max_ttl().unwrap_or_default();
        if ours > Duration::ZERO && stored > Duration::ZERO {
            self.seams.hear_max_ttl(stored);
            *self.max_ttl.lock() = Some(stored);
        }
        let larger =
            (ours > stored).then(|| u64::try_from(ours.as_millis()).unwrap_or(u64::MAX).to_be_bytes());
        let longest = ours.max(stored);
        let longest = if longest.is_zero() { USUAL_MAX_TTL } else { longest };
        (Duration::from_secs(self.seams.drift().stretch(longest).as_secs() + 1), larger)
    }

    /// Returns the `max_ttl` that [`quarantine`](Local::quarantine) has found recorded.
    pub(super) fn max_ttl(&self) -> Option<Duration> {
        *self.max_ttl.lock()
    }

    /// Returns the present moment.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.seams.clock().now()
    }

    /// Returns the clock.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        &**self.seams.clock()
    }

    /// Passes a hint to all listeners.
    pub fn notify(&self, hint: Hint<'_>) {
        // Not under the lock, which a request needs.
        let listeners = self.listeners.lock().clone();
        for listener in &listeners {
            listener.on_hint(hint);
        }
    }

    /// Returns whether anyone listens.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        !self.listeners.lock().is_empty()
    }

    pub(super) async fn next_ends_earlier(&self) {
        self.due.notified().await;
    }

    /// Records a place.
    pub fn put(&self, lock: &Arc<str>, own: Own<C>) {
        if self.own.lock().put(lock, own) {
            self.due.notify_one();
        }
    }

    /// Puts off the end of a place. Returns whether it is known: one that has ended is being deleted.
    pub fn prolong(&self, lock: &str, key: &C::Key, ttl: Duration) -> bool {
        let (until, mut own) = (self.now() + ttl, self.own.lock());
        own.change(lock, key, |own| own.until = own.until.max(until));
        own.by_key(lock, key).is_some()
    }

    /// Records that the place of a waiter stands behind those which `before` returns, and stays for as long as the waiter has
    /// patience. Returns whether it is its turn, which lasts for `turn`.
    pub fn stand(
        &self,
        lock: &str,
        key: &C::Key,
        (patience, turn): (Duration, Duration),
        before: impl FnOnce() -> Vec<C::Key>,
    ) -> bool {
        let now = self.now();
        let mut own = self.own.lock();
        // What has gone since it was read was not told to this place.
        let before = before();
        let is_first = before.is_empty();
        let ends = is_first.then_some(now + turn);
        let first_ends = own.change(lock, key, |own| {
            own.until = now + patience;
            if let PlaceRole::Waiter(waiting) = &mut own.role {
                (waiting.before, waiting.turn, waiting.turn_ends) = (before, turn, ends);
            }
        });
        drop(own);
        if first_ends {
            self.due.notify_one();
        }
        is_first
    }

    /// Records a change of a lock that is watched, by which these places have gone, of whatever program. Tells the clients of
    /// this process that wait for it, a holder whose place has gone, and the waiters that are to ask. Returns whether there are any of these.
    pub fn changed(&self, watched: &Watched<C::Key>, lock: &Arc<str>, gone: &[C::Key]) -> bool {
        let Some(mut notifies) = watched.changed(lock, gone) else { return false };
        let mut waiters = Vec::new();
        for key in gone {
            let (asked, is_holders) = self.own.lock().gone(lock, key, self.now());
            waiters.extend(asked);
            notifies |= is_holders;
        }
        for waiter in &waiters {
            self.due.notify_one();
            self.notify(Hint::Invalidated(turn_key(lock, *waiter).as_bytes()));
        }
        if notifies {
            self.notify(Hint::Invalidated(lock.as_bytes()));
        }
        !waiters.is_empty()
    }
}

/// What a connection to a member has, whatever the store.
#[derive(Debug)]
#[non_exhaustive]
pub struct Connection {
    /// The history of the data.
    pub identity: Arc<Identity>,
    /// What is known of the store.
    pub facts: Facts,
    pub(super) round_trip: Duration,
    ended: Mutex<Option<NodeError>>,
    end: Notify,
    has_answered: AtomicBool,
}

impl Connection {
    /// Creates the record of a connection to a store that answers by the consensus of its members: what it has answered is
    /// on the disks of a majority, and no place goes before its session or lease. These end by the rate of a clock that the
    /// store does not show.
    #[must_use]
    pub fn new(identity: Identity, round_trip: Duration, user: Option<&str>) -> Connection {
        let facts = Facts {
            identity: Some((&*identity.id).into()),
            uptime: Some(identity.age),
            hints: Some(true),
            role: Some(Role::Master),
            append_only: Some(true),
            fsync: Some(Fsync::Always),
            replicas: Some(0),
            memory: Some(Memory::new(0, None, "noeviction")),
            clock: Some(ClockReading::new(0, Duration::ZERO)),
            user: user.map(Into::into),
            ..Facts::default()
        };
        let (identity, ended, end) = (Arc::new(identity), Mutex::new(None), Notify::new());
        Connection { identity, facts, round_trip, ended, end, has_answered: AtomicBool::new(false) }
    }

    /// Records that it has ended, and why.
    pub fn stop(&self, error: NodeError) {
        self.ended.lock().get_or_insert(error);
        self.end.notify_one();
    }

    /// Passes a failure on, and ends the connection if another one may do better.
    pub fn note<F: Failure>(&self, failure: F) -> NodeError {
        let ends = failure.ends_connection();
        let error = failure.into();
        if ends {
            self.stop(error.clone());
        }
        error
    }

    /// Returns why it has ended.
    #[must_use]
    pub fn ended(&self) -> Option<NodeError> {
        self.ended.lock().clone()
    }

    /// Records that a request was answered.
    pub(super) fn answered(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    pub(super) async fn next_end(&self) {
        self.end.notified().await;
    }
}

/// Connects to the first member that can vote. Begins with this one, and returns which it is.
pub(super) async fn open_any<C: Cluster>(
    cluster: &Arc<C>,
    first: usize,
) -> Result<(Arc<C::Voter>, usize), NodeError> {
    let members = cluster.local().address.as_ref().all();
    let mut failures = Vec::with_capacity(members.len());
    for offset in 0..members.len() {
        let at = (first + offset) % members.len();
        let Some(member) = members.get(at) else { continue };
        match cluster.open(member).await {
            Ok(voter) => return Ok((voter, at)),
            Err(error) => failures.push((member, error)),
        }
    }
    Err(none_of(failures))
}

/// Returns why no member can vote: a permanent error, which says more than that others are down, or what each has.
fn none_of(mut failures: Vec<(&Member, NodeError)>) -> NodeError {
    let permanent = failures.iter().rposition(|(_, error)| error.is_permanent());
    let alone = (failures.len() == 1).then_some(0);
    if let Some(at) = permanent.or(alone) {
        return failures.swap_remove(at).1;
    }
    let mut words = "no member can vote, and a majority of them must run and reach each other: ".to_owned();
    for (at, (member, error)) in failures.iter().enumerate() {
        let (member, error) = (member.to_string(), format!("{error:#}"));
        let named = if error.contains(&member) { String::new() } else { member + ": " };
        words = words + if at > 0 { "; " } else { "" } + &named + &error;
    }
    let reason = words.into();
    if failures.iter().all(|(_, error)| matches!(error, NodeError::Unresponsive { .. })) {
        return NodeError::Unresponsive { reason };
    }
    NodeError::Unreachable { reason }
}
