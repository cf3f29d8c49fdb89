//! The node's thread: connects, carries out requests, and reconnects.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{Either, select};
use quorlock::node::facts::Facts;
use quorlock::node::record::Records;
use quorlock::node::shedlock::{Table, Tombstones};
use quorlock::node::{
    Capabilities, Capability, ConnectionState, Hint, HintListener, Hints, Identity, NodeError, Observers,
    Order, Responder, Response, Seams, SharedRequest, StatusListener,
};
use quorlock::protocol::{Backoff, Moment};
use quorlock::runtime::{Mutex, within};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tracing::debug;

use crate::address::Database;
use crate::connection::Connection;
use crate::error::Failure;
use crate::handshake::{Ready, connect, node_limit};
use crate::memory::Memory;
use crate::shedlock::Predecessor;
use crate::table::{Known, read, sweep};
use crate::watch::Watches;

mod batch;

/// A command from a handle to the thread.
pub(crate) enum Job {
    Ask(SharedRequest, Responder),
    Listen(Arc<dyn HintListener>),
    Observe(Arc<dyn StatusListener>),
    /// Answered when the connection is up, or cannot be made.
    Ready(oneshot::Sender<Result<(), NodeError>>),
}

/// State that the thread shares with the handles.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) facts: Mutex<Option<Arc<Facts>>>,
    /// In nanoseconds; 0 if unknown.
    pub(crate) round_trip: AtomicU64,
    /// The number of unanswered requests.
    pub(crate) unanswered: AtomicUsize,
}

impl Shared {
    fn introduced(&self, facts: Facts, round_trip: Duration) {
        *self.facts.lock() = Some(Arc::new(facts));
        let nanos = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
        self.round_trip.store(nanos.max(1), Ordering::Relaxed);
    }
}

pub(crate) fn capabilities() -> Capabilities {
    let able = [Capability::Transfer, Capability::Shared, Capability::Several, Capability::Queue];
    let able = able.into_iter().fold(Capabilities::default(), Capabilities::with);
    able.in_order(Order::PerKey).hinting(Hints::RemovalAndExpiry).durable()
}

/// The initial delay before reconnecting.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The maximum delay before reconnecting, as for Redis nodes.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// A connection that ends sooner, and answers no request, counts as none: the delay grows, as where a proxy ends each one.
const LASTING: Duration = Duration::from_secs(3);
/// The maximum number of requests per transaction, whose commit flushes to disk once.
const BATCH: usize = 128;
/// A connection that was idle for longer is tested before its next use.
const IDLE: Duration = Duration::from_secs(1);
/// How often an idle connection is tested, to detect that the server is gone.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How often a batch is decided again because other clients have changed its rows.
const ATTEMPTS: u32 = 40;
/// One in this many written batches is followed by a sweep for dead rows.
const SWEEP_ONE_OF: u64 = 32;

pub(crate) struct Worker {
    database: Database,
    seams: Seams,
    shared: Arc<Shared>,
    jobs: UnboundedReceiver<Job>,
    observers: Observers,
    listeners: Vec<Arc<dyn HintListener>>,
    /// Whether the listeners were notified that hints are active.
    hearing: bool,
    /// The rows that clients wait for.
    watches: Watches,
    /// The cached rows.
    memory: Memory,
    backoff: Backoff,
    /// Where the next sweep begins.
    swept: String,
    /// For `ShedLock`'s table: the previous connection, and the cancelled attempts.
    predecessor: Predecessor,
    tombstones: Tombstones,
}

/// A connection that may vote.
struct Session {
    connection: Connection,
    identity: Arc<Identity>,
    known: Known,
    /// When it was made.
    since: Moment,
    used: Moment,
    has_answered: bool,
    shedlock: Option<Table>,
    /// How long the clients of the last batch wait, for which the server's timeout is set, if it has one.
    awaited: Option<Duration>,
}

/// Why a connection ended.
enum End {
    /// No handle is left.
    Closed,
    Lost(NodeError),
}

impl Worker {
    pub(crate) fn new(
        database: Database,
        seams: Seams,
        shared: Arc<Shared>,
        jobs: UnboundedReceiver<Job>,
    ) -> Worker {
        let backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let (listeners, watches) = (Vec::new(), Watches::default());
        let (hearing, swept) = (false, String::new());
        Worker {
            database,
            seams,
            shared,
            jobs,
            observers: Observers::default(),
            listeners,
            hearing,
            watches,
            memory: Memory::default(),
            backoff,
            swept,
            predecessor: Predecessor::default(),
            tombstones: Tombstones::default(),
        }
    }

    /// Runs until the last handle of the node is dropped.
    pub(crate) async fn work(&mut self) {
        // After a panic.
        self.deafen();
        // No server is contacted before the first request.
        let first = loop {
            match self.jobs.recv().await {
                Some(Job::Listen(listener)) => self.listeners.push(listener),
                Some(first) => break first,
                None => return,
            }
        };
        let mut waiting = vec![first];
        let mut connected = connect(&self.database, &self.seams, &mut self.predecessor).await;
        loop {
            let failure = match connected {
                Ok(ready) => {
                    let mut link = self.linked(ready);
                    match self.serve(&mut link, std::mem::take(&mut waiting)).await {
                        End::Closed => return link.connection.close().await,
                        End::Lost(error) => {
                            if link.has_answered || self.seams.clock().now().since(link.since) >= LASTING {
                                self.backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
                            }
                            error
                        }
                    }
                }
                Err(error) => error,
            };
            debug!(node = %self.database, error = %format_args!("{failure:#}"), "no connection");
            self.deafen();
            self.observers.notify(ConnectionState::Lost(failure.clone()));
            for job in waiting.drain(..) {
                self.refuse(job, &failure);
            }
            match self.connect_again(&failure).await {
                Some(again) => connected = again,
                None => return,
            }
        }
    }

    fn linked(&mut self, ready: Ready) -> Session {
        let Ready { connection, identity, known, facts, round_trip, shedlock, is_mariadb } = ready;
        self.shared.introduced(facts, round_trip);
        self.observers.notify(ConnectionState::Connected(Arc::clone(&identity)));
        // The table of ShedLock sends no hints.
        self.hearing = shedlock.is_none();
        if self.hearing {
            self.say(Hint::Subscribed);
        }
        let (now, awaited) = (self.seams.clock().now(), is_mariadb.then(|| node_limit(&self.seams)));
        let has_answered = false;
        Session { connection, identity, known, since: now, used: now, has_answered, shedlock, awaited }
    }

    /// Pauses and reconnects, refusing requests in the meantime. `None` if no handle is left.
    async fn connect_again(&mut self, failure: &NodeError) -> Option<Result<Ready, NodeError>> {
        let clock = Arc::clone(self.seams.clock());
        let wait = self.backoff.next(self.seams.entropy().next_u64());
        let (database, seams) = (self.database.clone(), self.seams.clone());
        let mut predecessor = self.predecessor.clone();
        let mut connected = Box::pin(async move {
            let end = clock.now() + wait;
            while clock.now() < end {
                clock.sleep_until(end).await;
            }
            let connected = connect(&database, &seams, &mut predecessor).await;
            (connected, predecessor)
        });
        let mut awaited = Vec::new();
        let (connected, predecessor) = loop {
            let job = match select(pin!(self.jobs.recv()), connected).await {
                Either::Left((job, pending)) => {
                    connected = pending;
                    job?
                }
                Either::Right((connected, _)) => break connected,
            };
            if let Job::Ready(to) = job {
                // An attempt is in progress.
                awaited.push(to);
            } else {
                self.refuse(job, failure);
            }
        };
        self.predecessor = predecessor;
        for to in awaited {
            drop(to.send(connected.as_ref().map(drop).map_err(NodeError::clone)));
        }
        Some(connected)
    }

    /// Carries out requests until the connection is lost or no handle is left.
    async fn serve(&mut self, link: &mut Session, mut waiting: Vec<Job>) -> End {
        let clock = Arc::clone(self.seams.clock());
        loop {
            if waiting.is_empty() {
                let look = self.watches.pause(clock.now());
                match within(&*clock, look.unwrap_or(HEARTBEAT), self.jobs.recv()).await {
                    Some(Some(job)) => waiting.push(job),
                    Some(None) => return End::Closed,
                    None => {}
                }
            }
            if let Err(error) = self.look(link).await {
                match self.reconnect_for(link, &mut waiting, error).await {
                    Ok(()) => continue,
                    Err(error) => return End::Lost(error),
                }
            }
            while waiting.len() < BATCH
                && let Ok(job) = self.jobs.try_recv()
            {
                waiting.push(job);
            }
            let idle = clock.now().since(link.used);
            let asks = waiting.iter().any(|job| matches!(job, Job::Ask(..) | Job::Ready(_)));
            if (idle > IDLE && asks) || (idle >= HEARTBEAT && waiting.is_empty()) {
                if let Err(failure) = link.connection.run("SELECT 1".to_owned()).await {
                    let error = failure.before_anything_changed();
                    match self.reconnect_for(link, &mut waiting, error).await {
                        Ok(()) => continue,
                        Err(error) => return End::Lost(error),
                    }
                }
                link.used = clock.now();
            }
            let mut batch = Vec::new();
            for job in waiting.drain(..) {
                match job {
                    Job::Ask(request, responder) => batch.extend(self.admit(request, responder)),
                    Job::Listen(listener) => {
                        if self.hearing {
                            listener.on_hint(Hint::Subscribed);
                        }
                        self.listeners.push(listener);
                    }
                    Job::Observe(observer) => {
                        self.observers.add(observer);
                    }
                    Job::Ready(to) => drop(to.send(Ok(()))),
                }
            }
            if batch.is_empty() {
                continue;
            }
            if let Err(failure) = self.set_timeout(link, &batch).await {
                match self.failed(batch, failure, Failure::before_anything_changed) {
                    Ok(_) => continue,
                    Err(error) => return End::Lost(error),
                }
            }
            if let Some(table) = link.shedlock.clone() {
                let lost = self.execute_at(&table, link, batch).await;
                link.used = clock.now();
                if let Some(error) = lost {
                    return End::Lost(error);
                }
                link.has_answered = true;
                continue;
            }
            let done = self.execute(link, batch).await;
            link.used = clock.now();
            link.has_answered |= done.is_ok();
            match done {
                Ok(true) if self.seams.entropy().next_u64().is_multiple_of(SWEEP_ONE_OF) => {
                    if let Err(Failure::Lost(reason)) = sweep(&mut link.connection, &self.swept).await {
                        return End::Lost(NodeError::Unreachable { reason });
                    }
                }
                Ok(_) => {}
                Err(error) => return End::Lost(error),
            }
        }
    }

    /// Reads the rows whose next look is due, and reports changes.
    async fn look(&mut self, link: &mut Session) -> Result<(), NodeError> {
        let asked = self.seams.clock().now();
        let due = self.watches.due(asked, BATCH);
        if due.is_empty() {
            return Ok(());
        }
        let rows = match read(&mut link.connection, &due, &link.known).await {
            Ok(rows) => rows,
            Err(failure) => {
                let lost = matches!(failure, Failure::Lost(_));
                let error = failure.before_anything_changed();
                if lost || error.is_permanent() {
                    return Err(error);
                }
                debug!(node = %self.database, error = %format_args!("{error:#}"), "waiters ask again");
                self.watches.clear();
                self.say(Hint::Flushed);
                return Ok(());
            }
        };
        link.used = self.seams.clock().now();
        self.memory.read(&rows, asked);
        self.pass_on(&rows);
        Ok(())
    }

    /// Reports the changes in these rows to the listeners.
    fn pass_on(&mut self, rows: &Records) {
        for key in self.watches.look(rows, self.seams.clock().now()) {
            self.say(Hint::Invalidated(key.as_bytes()));
        }
    }

    /// Reconnects after an idle connection has ended. Nothing was in flight, so the waiting jobs use the next
    /// one; without one they are refused.
    async fn reconnect_for(
        &mut self,
        link: &mut Session,
        waiting: &mut Vec<Job>,
        error: NodeError,
    ) -> Result<(), NodeError> {
        debug!(node = %self.database, error = %format_args!("{error:#}"), "its idle connection has ended");
        self.deafen();
        self.observers.notify(ConnectionState::Lost(error));
        match connect(&self.database, &self.seams, &mut self.predecessor).await {
            Ok(ready) => {
                *link = self.linked(ready);
                Ok(())
            }
            Err(error) => {
                for job in waiting.drain(..) {
                    self.refuse(job, &error);
                }
                Err(error)
            }
        }
    }

    /// Answers without asking the server.
    fn refuse(&mut self, job: Job, failure: &NodeError) {
        match job {
            Job::Ask(_, responder) => self.answer(responder, Err(failure.clone())),
            Job::Listen(listener) => self.listeners.push(listener),
            Job::Observe(observer) => {
                self.observers.add(observer);
            }
            Job::Ready(to) => drop(to.send(Err(failure.clone()))),
        }
    }

    fn answer(&self, responder: Responder, answer: Result<Response, NodeError>) {
        self.shared.unanswered.fetch_sub(1, Ordering::Relaxed);
        responder.send(answer);
    }

    /// Notifies the listeners that hints are off, and clears what was seen over the connection.
    fn deafen(&mut self) {
        self.watches.clear();
        self.memory.clear();
        if std::mem::take(&mut self.hearing) {
            self.say(Hint::Unsubscribed);
        }
    }

    fn say(&self, hint: Hint<'_>) {
        self.listeners.iter().for_each(|listener| listener.on_hint(hint));
    }
}

/// The thread ends: answers the remaining jobs.
impl Drop for Worker {
    fn drop(&mut self) {
        let ended = NodeError::Unreachable { reason: "its thread has ended".into() };
        self.jobs.close();
        while let Ok(job) = self.jobs.try_recv() {
            self.refuse(job, &ended);
        }
    }
}
