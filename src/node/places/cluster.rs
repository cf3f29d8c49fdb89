//! What a node needs to know of a store with several members, and of its connection to one of them.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{Claim, Moment, turn_key};
use tokio::sync::Notify;

use super::own::{OwnPlace, OwnPlaces, Role as PlaceRole};
use crate::node::facts::{ClockReading, Facts, Fsync, Memory, Role};
use crate::node::{Hint, HintListener, Identity, NodeError, Request, Response, Seams};
use crate::runtime::Clock;
use crate::runtime::Mutex;

/// A store with several members: what outlives the connections of its node.
pub trait Cluster: fmt::Display + Send + Sync + Sized + 'static {
    /// Where a place is stored.
    type Key: Ord + Clone + fmt::Debug + Send + Sync;
    /// What is known of a place of this process.
    type Stored: Send + Sync;
    /// A connection that may vote.
    type Session: Send + Sync;

    /// Returns what every such node keeps.
    fn local(&self) -> &Local<Self::Key, Self::Stored>;

    /// Returns the number of members that the address names.
    fn members(&self) -> usize;

    /// Connects to a member, which is less than the number of [`members`](Cluster::members).
    ///
    /// # Errors
    ///
    /// Why it cannot vote.
    fn open(
        self: &Arc<Self>,
        member: usize,
    ) -> impl Future<Output = Result<Arc<Self::Session>, NodeError>> + Send;

    /// Returns what every connection has.
    fn connection(session: &Self::Session) -> &Connection;

    /// Carries out a request.
    fn execute(
        session: &Arc<Self::Session>,
        request: &Request,
    ) -> impl Future<Output = Result<Response, NodeError>> + Send;

    /// Answers a renewal for which no request is needed.
    fn renew_locally(session: &Self::Session, claim: &Claim, ttl: Duration) -> Option<Response>;

    /// Deletes a place of this process. Returns whether that is certain.
    fn delete(
        session: &Self::Session,
        own: &OwnPlace<Self::Key, Self::Stored>,
    ) -> impl Future<Output = bool> + Send;

    /// Ends a connection that has failed, or the last one of a node that is used no more.
    fn leave(session: &Self::Session, is_last: bool) -> impl Future<Output = ()> + Send;
}

/// What a node of a [`Cluster`] keeps, whatever the store.
#[derive(Debug)]
#[non_exhaustive]
pub struct Local<K, S> {
    /// The environment.
    pub seams: Seams,
    /// The places of this process.
    pub own: Mutex<OwnPlaces<K, S>>,
    pub(super) listeners: Mutex<Vec<Arc<dyn HintListener>>>,
    due: Notify,
}

impl<K, S> Local<K, S> {
    /// Creates the state of a node that has no places.
    #[must_use]
    pub fn new(seams: Seams) -> Local<K, S> {
        Local { seams, own: Mutex::default(), listeners: Mutex::default(), due: Notify::new() }
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
        self.listeners.lock().iter().for_each(|listener| listener.on_hint(hint));
    }

    /// Returns whether anyone listens.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        !self.listeners.lock().is_empty()
    }

    pub(super) async fn next_ends_earlier(&self) {
        self.due.notified().await;
    }
}

impl<K: Ord + Clone + fmt::Debug, S> Local<K, S> {
    /// Records a place.
    pub fn put(&self, lock: &Arc<str>, own: OwnPlace<K, S>) {
        if self.own.lock().put(lock, own) {
            self.due.notify_one();
        }
    }

    /// Records that the place of a waiter stands behind those which `before` returns, and stays for as long as the waiter has
    /// patience. Returns whether it is its turn, which lasts for `turn`.
    pub fn stand<Q: Eq + ?Sized>(
        &self,
        lock: &str,
        key: &Q,
        (patience, turn): (Duration, Duration),
        before: impl FnOnce() -> Vec<K>,
    ) -> bool
    where
        K: Borrow<Q>,
    {
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

    /// Records that a place has gone, of whatever program, and tells the waiters of this process that are to ask. Returns
    /// whether there are any.
    pub fn gone<Q: Eq + ?Sized>(&self, lock: &Arc<str>, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let waiters = self.own.lock().gone(lock, key, self.now());
        for waiter in &waiters {
            self.due.notify_one();
            self.notify(Hint::Invalidated(turn_key(lock, *waiter).as_bytes()));
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
        Connection { identity, facts, round_trip, ended, end }
    }

    /// Records that it has ended, and why.
    pub fn stop(&self, error: NodeError) {
        self.ended.lock().get_or_insert(error);
        self.end.notify_one();
    }

    /// Returns why it has ended.
    #[must_use]
    pub fn ended(&self) -> Option<NodeError> {
        self.ended.lock().clone()
    }

    pub(super) async fn next_end(&self) {
        self.end.notified().await;
    }
}

/// Connects to the first member that can vote. Begins with this one, and returns which it is.
///
/// # Errors
///
/// Why none can.
pub async fn open_any<C: Cluster>(
    cluster: &Arc<C>,
    first: usize,
) -> Result<(Arc<C::Session>, usize), NodeError> {
    let mut failure = NodeError::Unreachable { reason: "no member is named".into() };
    let members = cluster.members();
    for offset in 0..members {
        let member = (first + offset) % members.max(1);
        match cluster.open(member).await {
            Ok(session) => return Ok((session, member)),
            // A permanent error says more than that another member is down.
            Err(error) if offset == 0 || error.is_permanent() || !failure.is_permanent() => {
                failure = error;
            }
            Err(_) => {}
        }
    }
    Err(failure)
}
