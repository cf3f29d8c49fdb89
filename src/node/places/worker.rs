//! The thread of a node: connects to one member after the other, and carries out requests.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::{Either, select};
use quorlock_protocol::Backoff;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{oneshot, watch};
use tracing::debug;

use super::cluster::{Cluster, Voter as _, open_any};
use super::requests::execute;
use crate::node::facts::Facts;
use crate::node::{
    ConnectionState, Hint, HintListener, NodeError, Observers, Responder, SharedRequest, StatusListener,
};
use crate::runtime::Mutex;

/// A command from a handle to the thread.
pub(super) enum Job {
    Ask(SharedRequest, Responder, Counted),
    Listen(Arc<dyn HintListener>),
    Observe(Arc<dyn StatusListener>),
    /// Answered when the connection is up, or cannot be made.
    Ready(oneshot::Sender<Result<(), NodeError>>),
}

/// State that the thread shares with the handles.
pub(super) struct Shared<C: Cluster> {
    pub(super) facts: Mutex<Option<Arc<Facts>>>,
    pub(super) round_trip: Mutex<Option<Duration>>,
    /// The number of unanswered requests.
    pub(super) unanswered: Arc<AtomicUsize>,
    /// The connection.
    pub(super) session: Mutex<Weak<C::Voter>>,
}

impl<C: Cluster> Default for Shared<C> {
    fn default() -> Shared<C> {
        let (facts, round_trip) = (Mutex::default(), Mutex::default());
        Shared { facts, round_trip, unanswered: Arc::default(), session: Mutex::new(Weak::new()) }
    }
}

/// The initial delay before reconnecting, and the longest.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// A connection that ends sooner, and answers no request, counts as none: the delay grows, as where a member ends each one.
const LASTING: Duration = Duration::from_secs(3);
/// When the deletion of a place is tried again.
const TRIED_AGAIN: Duration = Duration::from_secs(1);
/// How long to rest if nothing has to be deleted.
const LONG: Duration = Duration::from_secs(3600);

pub(super) struct Worker<C: Cluster> {
    cluster: Arc<C>,
    shared: Arc<Shared<C>>,
    jobs: UnboundedReceiver<Job>,
    observers: Observers,
    /// The connection, for what deletes places that have ended.
    current: watch::Sender<Option<Arc<C::Voter>>>,
    /// The member to ask first.
    member: usize,
    backoff: Backoff,
}

impl<C: Cluster> Worker<C> {
    pub(super) fn new(cluster: Arc<C>, shared: Arc<Shared<C>>, jobs: UnboundedReceiver<Job>) -> Worker<C> {
        let (current, backoff) = (watch::Sender::new(None), Backoff::new(FIRST_WAIT, LONGEST_WAIT));
        Worker { cluster, shared, jobs, observers: Observers::default(), current, member: 0, backoff }
    }

    /// Runs until the last handle of the node is dropped. After a panic it may be called again.
    pub(super) async fn work(&mut self) {
        if self.current.receiver_count() == 0 {
            tokio::spawn(delete_ended(Arc::clone(&self.cluster), self.current.subscribe()));
        }
        if let Some(session) = self.current.send_replace(None) {
            session.leave(false).await;
            self.cluster.local().notify(Hint::Unsubscribed);
        }
        // No server is contacted before the first request.
        let first = loop {
            match self.jobs.recv().await {
                Some(Job::Listen(listener)) => self.cluster.local().listeners.lock().push(listener),
                Some(first) => break first,
                None => return,
            }
        };
        let mut waiting = vec![first];
        loop {
            let mut wait = Duration::ZERO;
            let Some(connected) = self.connect(&mut waiting).await else { return };
            let failure = match connected {
                Ok(session) => {
                    let since = self.cluster.local().now();
                    let served = self.serve(&session, std::mem::take(&mut waiting)).await;
                    let Some(failure) = served else { return session.leave(true).await };
                    session.leave(false).await;
                    // The next member may be better off.
                    self.member += 1;
                    self.cluster.local().notify(Hint::Unsubscribed);
                    let lasted = self.cluster.local().now().since(since) >= LASTING;
                    if lasted || session.connection().has_answered() {
                        self.backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
                    } else {
                        wait = self.next_wait();
                    }
                    failure
                }
                Err(error) => {
                    wait = self.next_wait();
                    error
                }
            };
            debug!(node = %self.cluster.local().address, error = %format_args!("{failure:#}"), "no connection");
            self.current.send_replace(None);
            self.observers.notify(ConnectionState::Lost(failure.clone()));
            waiting.drain(..).for_each(|job| self.refuse(job, &failure));
            if self.pause(wait, &failure).await.is_none() {
                return;
            }
        }
    }

    fn next_wait(&mut self) -> Duration {
        self.backoff.next(self.cluster.local().seams.entropy().next_u64())
    }

    /// Waits before the next connection, and refuses requests meanwhile. Returns `None` if no handle is left.
    async fn pause(&mut self, wait: Duration, failure: &NodeError) -> Option<()> {
        let cluster = Arc::clone(&self.cluster);
        let local = cluster.local();
        let end = local.now() + wait;
        while local.now() < end {
            tokio::select! {
                job = self.jobs.recv() => self.refuse(job?, failure),
                () = local.clock().sleep_until(end) => {}
            }
        }
        Some(())
    }

    /// Connects to the first member that can answer. Returns `None` if no handle is left. Requests wait meanwhile.
    async fn connect(&mut self, waiting: &mut Vec<Job>) -> Option<Result<Arc<C::Voter>, NodeError>> {
        let (cluster, first) = (Arc::clone(&self.cluster), self.member);
        let mut connected = Box::pin(async move { open_any(&cluster, first).await });
        let connected = loop {
            let job = match select(pin!(self.jobs.recv()), connected).await {
                Either::Left((job, pending)) => {
                    connected = pending;
                    job?
                }
                Either::Right((connected, _)) => break connected,
            };
            match job {
                Job::Listen(listener) => self.cluster.local().listeners.lock().push(listener),
                Job::Observe(observer) => self.observers.add(observer),
                job @ (Job::Ask(..) | Job::Ready(_)) => waiting.push(job),
            }
        };
        Some(connected.map(|(session, member)| {
            self.member = member;
            session
        }))
    }

    /// Carries out requests until the connection ends. Returns why, or `None` if no handle is left.
    async fn serve(&mut self, session: &Arc<C::Voter>, waiting: Vec<Job>) -> Option<NodeError> {
        let connection = session.connection();
        let max_ttl = self.cluster.local().max_ttl();
        *self.shared.facts.lock() = Some(Arc::new(Facts { max_ttl, ..connection.facts.clone() }));
        *self.shared.round_trip.lock() = Some(connection.round_trip);
        self.current.send_replace(Some(Arc::clone(session)));
        *self.shared.session.lock() = Arc::downgrade(session);
        self.observers.notify(ConnectionState::Connected(Arc::clone(&connection.identity)));
        self.cluster.local().notify(Hint::Subscribed);
        for job in waiting {
            self.take(session, job);
        }
        loop {
            if let Some(failure) = connection.ended() {
                return Some(failure);
            }
            let asked = match select(pin!(self.jobs.recv()), pin!(connection.next_end())).await {
                Either::Left((job, _)) => Some(job?),
                Either::Right(_) => None,
            };
            if let Some(job) = asked {
                self.take(session, job);
            }
        }
    }

    fn take(&mut self, session: &Arc<C::Voter>, job: Job) {
        match job {
            Job::Ask(request, responder, counted) => {
                if request.may_create() && !responder.wanted() {
                    return responder.send(Err(NodeError::NotAsked));
                }
                let session = Arc::clone(session);
                tokio::spawn(async move {
                    let answer = execute(&session, &request).await;
                    if answer.is_ok() {
                        session.connection().answered();
                    }
                    drop(counted);
                    responder.send(answer);
                });
            }
            Job::Listen(listener) => {
                listener.on_hint(Hint::Subscribed);
                self.cluster.local().listeners.lock().push(listener);
            }
            Job::Observe(observer) => self.observers.add(observer),
            Job::Ready(to) => drop(to.send(Ok(()))),
        }
    }

    /// Answers without asking the server.
    fn refuse(&mut self, job: Job, failure: &NodeError) {
        match job {
            Job::Ask(_, responder, counted) => {
                drop(counted);
                responder.send(Err(failure.clone()));
            }
            Job::Listen(listener) => self.cluster.local().listeners.lock().push(listener),
            Job::Observe(observer) => self.observers.add(observer),
            Job::Ready(to) => drop(to.send(Err(failure.clone()))),
        }
    }
}

/// Deletes each place of this process that has ended, although its session or lease lives on for others.
async fn delete_ended<C: Cluster>(cluster: Arc<C>, mut current: watch::Receiver<Option<Arc<C::Voter>>>) {
    let local = cluster.local();
    let mut left = Vec::new();
    loop {
        let now = local.now();
        left.extend(local.own.lock().take_ended(now));
        let session = current.borrow_and_update().clone();
        let mut kept = Vec::new();
        for own in left {
            let deleted = match &session {
                Some(session) => session.delete(&own).await.is_ok(),
                None => false,
            };
            if !deleted {
                kept.push(own);
            }
        }
        left = kept;
        let mut until = local.own.lock().next_due().unwrap_or(now + LONG);
        if !left.is_empty() {
            until = until.min(local.now() + TRIED_AGAIN);
        }
        tokio::select! {
            () = local.next_ends_earlier() => {}
            () = local.clock().sleep_until(until) => {}
            changed = current.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

/// Counts a request as unanswered until it is dropped.
pub(super) struct Counted(pub(super) Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
