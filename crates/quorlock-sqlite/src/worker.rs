//! The node's thread: carries out requests in order, and polls for waiters.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use futures::channel::oneshot;
use quorlock::node::{
    Capabilities, Capability, ConnectionState, Hint, HintListener, Hints, Identity, NodeError, NodeErrorKind,
    Observers, Order, Request, Responder, Response, Seams, SharedRequest, StatusListener, Vote,
};
use quorlock::protocol::Moment;

use crate::mark::Mark;
use crate::place;
use crate::store::{Store, be_patient_for};
use crate::watch::Watch;

/// How long clients wait for an answer, unless the settings say so. It is longer than the node waits for a transaction of
/// another process.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(3);

pub(crate) enum Job {
    /// With the moment at which it was asked.
    Ask(SharedRequest, Responder, Moment),
    Ready(oneshot::Sender<Result<(), NodeError>>),
    Observe(Arc<dyn StatusListener>),
    Listen(Arc<dyn HintListener>),
    /// Lists the keys that begin with `prefix` and come after `last`: one page of them.
    List {
        prefix: Arc<str>,
        last: String,
        sender: oneshot::Sender<Result<Vec<String>, NodeError>>,
    },
}

pub(crate) fn capabilities() -> Capabilities {
    Capabilities::default()
        .with(Capability::Transfer)
        .with(Capability::Several)
        .with(Capability::Shared)
        .in_order(Order::PerKey)
        .hinting(Hints::RemovalAndExpiry)
        .of_one_host()
}

/// The most marks of closed databases, each in a file of its own: only replaced files add to them.
const MOST_MARKS: usize = 16;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    Reads,
    Writes,
}

/// The state of the node's thread.
pub(crate) struct Worker {
    path: PathBuf,
    seams: Seams,
    /// Replaces the boot name of this system, in tests.
    boot: Option<String>,
    /// The number of requests that wait for the thread, which the handles share.
    waiting: Arc<AtomicUsize>,
    store: Option<Store>,
    /// Whether the database was ever open.
    was_open: bool,
    /// The marks of closed databases: locks that name them may still be held.
    marks: Vec<Mark>,
    watch: Watch,
    listeners: Vec<Arc<dyn HintListener>>,
    observers: Observers,
    /// How long the client of the last request with a TTL waits. What takes it back must not keep the next one waiting.
    awaited: Duration,
}

impl Worker {
    pub(crate) fn new(
        path: PathBuf,
        boot: Option<String>,
        waiting: Arc<AtomicUsize>,
        seams: Seams,
    ) -> Worker {
        Worker {
            path,
            seams,
            boot,
            waiting,
            store: None,
            was_open: false,
            marks: Vec::new(),
            watch: Watch::default(),
            listeners: Vec::new(),
            observers: Observers::default(),
            awaited: TIME_LIMIT,
        }
    }

    /// Runs until the node is dropped. After a panic it may be called again.
    pub(crate) fn work(&mut self, asked: &Receiver<Job>) {
        loop {
            let job = match self.watch.pause(self.seams.clock().now()) {
                None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(pause) => asked.recv_timeout(pause),
            };
            match job {
                Ok(job) => self.take(job),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.look();
        }
    }

    fn take(&mut self, job: Job) {
        match job {
            Job::Ask(request, responder, asked) => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                if request.may_create() {
                    self.awaited = request.waits_for(self.seams.node_timeout().unwrap_or(TIME_LIMIT));
                }
                be_patient_for(self.awaited, asked);
                let response = if request.may_create() && !responder.wanted() {
                    Err(NodeError::NotAsked)
                } else {
                    self.execute(&request)
                };
                responder.send(response);
            }
            Job::List { prefix, last, sender } => {
                let keys = self.ready(Access::Reads).and_then(|_| match &self.store {
                    Some(store) => store.keys(&prefix, &last),
                    None => Err(NodeError::NotAsked),
                });
                // As for `Ready`.
                drop(sender.send(keys));
            }
            // An error means that the caller no longer waits.
            Job::Ready(sender) => drop(sender.send(self.ready(Access::Writes).map(drop))),
            Job::Observe(observer) => {
                drop(self.ready(Access::Writes));
                self.observers.add(observer);
            }
            Job::Listen(listener) => {
                listener.on_hint(Hint::Subscribed);
                self.listeners.push(listener);
            }
        }
    }

    fn execute(&mut self, request: &Request) -> Result<Response, NodeError> {
        capabilities().check(request)?;
        let access = if matches!(request, Request::Inspect { .. }) { Access::Reads } else { Access::Writes };
        let identity = self.ready(access)?;
        let Some(store) = &mut self.store else { return Err(NodeError::NotAsked) };
        let outcome = store.execute(request);
        if let Ok((vote, _)) = &outcome {
            if changes(request, vote) {
                self.watch.touch();
            }
            if !self.listeners.is_empty() {
                self.watch.note(request, vote, store, self.seams.clock().now());
            }
        }
        match outcome {
            Ok((vote, number)) => Ok(Response::new(vote, identity).with_fencing_token(number)),
            Err(error) => {
                if error.is_permanent() || error.may_have_acted() {
                    // The next request reopens it.
                    self.close();
                }
                Err(error)
            }
        }
    }

    /// Opens the database if needed, and notifies the observers. One that this user may not write is opened for what only
    /// reads.
    fn ready(&mut self, access: Access) -> Result<Arc<Identity>, NodeError> {
        let is_of_use =
            |store: &Store| !store.was_replaced() && (access == Access::Reads || !store.only_reads());
        if self.store.as_ref().is_some_and(|store| !is_of_use(store)) {
            self.close();
        }
        if self.store.is_none() {
            match self.open(access) {
                Ok(mut store) => {
                    store.go_on(&mut self.marks);
                    self.was_open = true;
                    self.store = Some(store);
                }
                Err(error) => {
                    self.observers.notify(ConnectionState::Lost(error.clone()));
                    return Err(error);
                }
            }
        }
        let Some(store) = &self.store else { return Err(NodeError::NotAsked) };
        let (id, age) = store.history();
        let identity = Arc::new(Identity::new(id, self.seams.clock().now(), age));
        self.observers.notify(ConnectionState::Connected(Arc::clone(&identity)));
        Ok(identity)
    }

    fn open(&self, access: Access) -> Result<Store, NodeError> {
        let boot = self.boot.clone().map_or_else(place::boot, Ok)?;
        Store::open(&self.path, &boot, self.was_open, &self.seams).or_else(|error| {
            let is_of_rights =
                matches!(error.kind(), NodeErrorKind::ReadOnly | NodeErrorKind::PermissionDenied(_));
            if !is_of_rights || access == Access::Writes {
                return Err(error);
            }
            Store::open_to_read(&self.path, &boot, &self.seams).map_err(|_| error)
        })
    }

    fn close(&mut self) {
        self.marks.extend(self.store.take().and_then(|mut store| store.take_mark()));
        let excess = self.marks.len().saturating_sub(MOST_MARKS);
        self.marks.drain(..excess);
        self.watch.clear();
        self.hint(Hint::Flushed);
    }

    /// Polls for what clients wait for.
    fn look(&mut self) {
        let Some(store) = &self.store else { return };
        match self.watch.look(store, self.seams.clock().now()) {
            Ok(changed) => {
                for key in changed {
                    self.hint(Hint::Invalidated(key.as_bytes()));
                }
            }
            // The next request is answered with the error.
            Err(_) => self.close(),
        }
    }

    fn hint(&self, hint: Hint<'_>) {
        self.listeners.iter().for_each(|listener| listener.on_hint(hint));
    }
}

/// Whether the request may have changed something for waiters in this process.
fn changes(request: &Request, vote: &Vote) -> bool {
    !matches!(request, Request::Inspect { .. }) && !matches!(vote, Vote::Held(_) | Vote::NotYourTurn)
}
