//! The node's thread: connects to one member after the other, and carries out requests.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::{Either, select};
use quorlock::node::facts::Facts;
use quorlock::node::{
    ConnectionState, Hint, HintListener, NodeError, Observers, Responder, Seams, SharedRequest,
    StatusListener,
};
use quorlock::protocol::Backoff;
use quorlock::runtime::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{oneshot, watch};
use tracing::debug;

use crate::address::EtcdAddress;
use crate::queue::latest_wake;
use crate::session::{Memory, Session};

/// A command from a handle to the thread.
pub(crate) enum Job {
    Ask(SharedRequest, Responder, Counted),
    Listen(Arc<dyn HintListener>),
    Observe(Arc<dyn StatusListener>),
    /// Answered when the connection is up, or cannot be made.
    Ready(oneshot::Sender<Result<(), NodeError>>),
}

/// State that the thread shares with the handles.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) facts: Mutex<Option<Arc<Facts>>>,
    pub(crate) round_trip: Mutex<Option<Duration>>,
    /// The number of unanswered requests.
    pub(crate) unanswered: Arc<AtomicUsize>,
    /// The connection.
    pub(crate) session: Mutex<Weak<Session>>,
}

/// The initial delay before reconnecting, and the longest.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// When the deletion of a key is tried again.
const TRIED_AGAIN: Duration = Duration::from_secs(1);

pub(crate) struct Worker {
    address: EtcdAddress,
    memory: Arc<Memory>,
    shared: Arc<Shared>,
    jobs: UnboundedReceiver<Job>,
    observers: Observers,
    /// The connection, for what deletes keys that have ended.
    current: watch::Sender<Option<Arc<Session>>>,
    /// The member to ask first.
    member: usize,
    backoff: Backoff,
}

impl Worker {
    pub(crate) fn new(
        address: EtcdAddress,
        seams: Seams,
        shared: Arc<Shared>,
        jobs: UnboundedReceiver<Job>,
    ) -> Worker {
        let (memory, current) = (Arc::new(Memory::new(seams)), watch::Sender::new(None));
        let backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let (observers, member) = (Observers::default(), 0);
        Worker { address, memory, shared, jobs, observers, current, member, backoff }
    }

    /// Runs until the last handle of the node is dropped.
    pub(crate) async fn work(mut self) {
        tokio::spawn(delete_ended(Arc::clone(&self.memory), self.current.subscribe()));
        // No server is contacted before the first request.
        let first = loop {
            match self.jobs.recv().await {
                Some(Job::Listen(listener)) => self.memory.listeners.lock().push(listener),
                Some(first) => break first,
                None => return,
            }
        };
        let mut waiting = vec![first];
        let mut wait = Duration::ZERO;
        loop {
            let Some(connected) = self.connect(wait, &mut waiting).await else { return };
            let failure = match connected {
                Ok(session) => match self.serve(&session, std::mem::take(&mut waiting)).await {
                    Some(failure) => {
                        session.leave();
                        // The next member may be better off.
                        self.member += 1;
                        wait = Duration::ZERO;
                        self.memory.notify(Hint::Unsubscribed);
                        failure
                    }
                    None => return,
                },
                Err(error) => {
                    wait = self.backoff.next(self.memory.seams.entropy().next_u64());
                    error
                }
            };
            debug!(node = %self.address, error = %format_args!("{failure:#}"), "no connection");
            self.current.send_replace(None);
            self.observers.notify(ConnectionState::Lost(failure.clone()));
            waiting.drain(..).for_each(|job| self.refuse(job, &failure));
        }
    }

    /// Waits, and connects to the first member that can answer. Returns `None` if no handle is left. Requests wait meanwhile
    /// until the first pause, and are refused in it.
    async fn connect(
        &mut self,
        wait: Duration,
        waiting: &mut Vec<Job>,
    ) -> Option<Result<Arc<Session>, NodeError>> {
        let (address, memory, first) = (self.address.clone(), Arc::clone(&self.memory), self.member);
        let mut connected = Box::pin(async move {
            let end = memory.now() + wait;
            while !wait.is_zero() && memory.now() < end {
                memory.clock().sleep_until(end).await;
            }
            let members = address.members();
            let mut failure = NodeError::Unreachable { reason: "no member is named".into() };
            for offset in 0..members.len() {
                let at = (first + offset) % members.len().max(1);
                let Some(member) = members.get(at) else { continue };
                match Session::open(&address, member, &memory).await {
                    Ok(session) => return Ok((session, at)),
                    // A permanent error says more than that another member is down.
                    Err(error) if offset == 0 || error.is_permanent() || !failure.is_permanent() => {
                        failure = error;
                    }
                    Err(_) => {}
                }
            }
            Err(failure)
        });
        let connected = loop {
            let job = match select(pin!(self.jobs.recv()), connected).await {
                Either::Left((job, pending)) => {
                    connected = pending;
                    job?
                }
                Either::Right((connected, _)) => break connected,
            };
            match job {
                Job::Listen(listener) => self.memory.listeners.lock().push(listener),
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
    async fn serve(&mut self, session: &Arc<Session>, waiting: Vec<Job>) -> Option<NodeError> {
        self.backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        *self.shared.facts.lock() = Some(Arc::new(session.facts.clone()));
        *self.shared.round_trip.lock() = Some(session.round_trip);
        self.current.send_replace(Some(Arc::clone(session)));
        *self.shared.session.lock() = Arc::downgrade(session);
        self.observers.notify(ConnectionState::Connected(Arc::clone(&session.identity)));
        self.memory.notify(Hint::Subscribed);
        for job in waiting {
            self.take(session, job);
        }
        loop {
            if let Some(failure) = session.ended() {
                return Some(failure);
            }
            let asked = match select(pin!(self.jobs.recv()), pin!(session.end.notified())).await {
                Either::Left((job, _)) => Some(job?),
                Either::Right(_) => None,
            };
            if let Some(job) = asked {
                self.take(session, job);
            }
        }
    }

    fn take(&mut self, session: &Arc<Session>, job: Job) {
        match job {
            Job::Ask(request, responder, counted) => {
                if request.may_create() && !responder.wanted() {
                    return responder.send(Err(NodeError::NotAsked));
                }
                let session = Arc::clone(session);
                tokio::spawn(async move {
                    let answer = session.execute(&request).await;
                    drop(counted);
                    responder.send(answer);
                });
            }
            Job::Listen(listener) => {
                listener.on_hint(Hint::Subscribed);
                self.memory.listeners.lock().push(listener);
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
            Job::Listen(listener) => self.memory.listeners.lock().push(listener),
            Job::Observe(observer) => self.observers.add(observer),
            Job::Ready(to) => drop(to.send(Err(failure.clone()))),
        }
    }
}

/// Deletes each key of this process that has ended, although its lease lives on for others.
async fn delete_ended(memory: Arc<Memory>, mut current: watch::Receiver<Option<Arc<Session>>>) {
    let mut left = Vec::new();
    loop {
        let now = memory.now();
        left.extend(memory.own.lock().take_ended(now));
        let session = current.borrow_and_update().clone();
        let mut kept = Vec::new();
        for own in left {
            let deleted = match &session {
                Some(session) => session.delete_ended(&own).await.is_ok(),
                None => false,
            };
            if !deleted {
                kept.push(own);
            }
        }
        left = kept;
        let mut until = latest_wake(memory.own.lock().next_due(), now);
        if !left.is_empty() {
            until = until.min(memory.now() + TRIED_AGAIN);
        }
        tokio::select! {
            () = memory.due.notified() => {}
            () = memory.clock().sleep_until(until) => {}
            changed = current.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

/// Counts a request as unanswered until it is dropped.
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// Takes over a request that was added to this number.
    pub(crate) fn of(unanswered: Arc<AtomicUsize>) -> Counted {
        Counted(unanswered)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
