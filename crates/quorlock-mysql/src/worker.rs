//! The work of a node's thread: it connects, carries out what was asked, and connects again.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::{Either, select};
use quorlock::node::{
    ConnectionState, Hint, HintListener, Identity, NodeError, NodeErrorKind, Reason, Responder, Response,
    Seams, SharedRequest, StatusListener,
};
use quorlock::protocol::{Backoff, Moment};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tracing::debug;

use crate::address::Database;
use crate::connection::{Connection, within};
use crate::error::Trouble;
use crate::handshake::{Ready, connect};
use crate::locks::{Rows, Told, keys};
use crate::memory::Memory;
use crate::node::{Shared, capabilities};
use crate::shedlock::{self, Predecessor, Tombstones};
use crate::table::{read, swap, sweep, too_long};
use crate::watch::Watches;

/// What a node's handle tells its thread.
pub(crate) enum Job {
    Ask(SharedRequest, Responder),
    Listen(Arc<dyn HintListener>),
    Observe(Arc<dyn StatusListener>),
    /// Is answered when there is a connection, or none.
    Ready(oneshot::Sender<Result<(), NodeError>>),
}

/// The first attempts to connect again follow soon, on a human scale.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// As of a node that is a Redis server: what came back is found within this time.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// As many requests are carried out together, in one transaction, whose commit reaches the disk once.
const BATCH: usize = 128;
/// A connection that was idle for longer is tried before anything is asked over it.
const IDLE: Duration = Duration::from_secs(1);
/// An idle connection is tried this often, which finds out that the server has gone.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// As often a batch is decided anew because other clients have changed its rows.
const ATTEMPTS: u32 = 40;
/// One written batch of as many is followed by a look at rows that may be dead.
const SWEEP_ONE_OF: u64 = 32;

pub(crate) struct Worker {
    database: Database,
    seams: Seams,
    shared: Arc<Shared>,
    jobs: UnboundedReceiver<Job>,
    observers: Vec<Arc<dyn StatusListener>>,
    listeners: Vec<Arc<dyn HintListener>>,
    /// Whether they were told that they hear of changes.
    hearing: bool,
    /// The rows that they wait for.
    watches: Watches,
    /// The rows as they were seen last.
    memory: Memory,
    /// As it was told last.
    state: Option<ConnectionState>,
    backoff: Backoff,
    /// Where the next look at dead rows begins.
    swept: String,
    /// Where locks are rows of `ShedLock`'s table: the connection before, and what was cancelled.
    predecessor: Predecessor,
    tombstones: Tombstones,
}

/// A connection that votes.
struct Link {
    connection: Connection,
    identity: Arc<Identity>,
    used: Moment,
    shedlock: Option<shedlock::Table>,
}

/// Why a link is no more.
enum End {
    /// No handle is left that could ask.
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
        let (observers, listeners, watches) = (Vec::new(), Vec::new(), Watches::default());
        let (hearing, state, swept) = (false, None, String::new());
        Worker {
            database,
            seams,
            shared,
            jobs,
            observers,
            listeners,
            hearing,
            watches,
            memory: Memory::default(),
            state,
            backoff,
            swept,
            predecessor: Predecessor::default(),
            tombstones: Tombstones::default(),
        }
    }

    /// Works until the last handle of the node is gone.
    pub(crate) async fn work(&mut self) {
        // After a panic.
        self.deafen();
        // No server is contacted before a request comes.
        let first = loop {
            match self.jobs.recv().await {
                Some(Job::Listen(listener)) => self.listeners.push(listener),
                Some(first) => break first,
                None => return,
            }
        };
        let mut waiting = vec![first];
        let mut met = connect(&self.database, &self.seams, &mut self.predecessor).await;
        loop {
            let trouble = match met {
                Ok(ready) => {
                    let mut link = self.linked(ready);
                    match self.serve(&mut link, std::mem::take(&mut waiting)).await {
                        End::Closed => return link.connection.close().await,
                        End::Lost(error) => error,
                    }
                }
                Err(error) => error,
            };
            debug!(node = %self.database, error = %format_args!("{trouble:#}"), "no connection");
            self.deafen();
            self.tell(ConnectionState::Lost(trouble.clone()));
            for job in waiting.drain(..) {
                self.refuse(job, &trouble);
            }
            match self.connect_again(&trouble).await {
                Some(again) => met = again,
                None => return,
            }
        }
    }

    fn linked(&mut self, ready: Ready) -> Link {
        let Ready { connection, identity, facts, round_trip, shedlock } = ready;
        self.backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        self.shared.introduced(facts, round_trip);
        self.tell(ConnectionState::Connected(Arc::clone(&identity)));
        // The table of another program sends no hints.
        self.hearing = shedlock.is_none();
        if self.hearing {
            self.say(Hint::Subscribed);
        }
        Link { connection, identity, used: self.seams.clock().now(), shedlock }
    }

    /// Pauses, and connects; meanwhile all that comes is refused. `None` when no handle is left.
    async fn connect_again(&mut self, trouble: &NodeError) -> Option<Result<Ready, NodeError>> {
        let clock = Arc::clone(self.seams.clock());
        let wait = self.backoff.next(self.seams.entropy().next_u64());
        let (database, seams) = (self.database.clone(), self.seams.clone());
        let mut predecessor = self.predecessor.clone();
        let mut connected = Box::pin(async move {
            let end = clock.now() + wait;
            while clock.now() < end {
                clock.sleep_until(end).await;
            }
            let met = connect(&database, &seams, &mut predecessor).await;
            (met, predecessor)
        });
        let mut awaited = Vec::new();
        let (met, predecessor) = loop {
            let job = match select(pin!(self.jobs.recv()), connected).await {
                Either::Left((job, pending)) => {
                    connected = pending;
                    job?
                }
                Either::Right((met, _)) => break met,
            };
            if let Job::Ready(to) = job {
                // It is being tried.
                awaited.push(to);
            } else {
                self.refuse(job, trouble);
            }
        };
        self.predecessor = predecessor;
        for to in awaited {
            drop(to.send(met.as_ref().map(drop).map_err(NodeError::clone)));
        }
        Some(met)
    }

    /// Carries out what is asked, until the connection is lost or no handle is left.
    async fn serve(&mut self, link: &mut Link, mut waiting: Vec<Job>) -> End {
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
                return self.reconnect_for(link, waiting, error).await;
            }
            while waiting.len() < BATCH
                && let Ok(job) = self.jobs.try_recv()
            {
                waiting.push(job);
            }
            let idle = clock.now().since(link.used);
            let asks = waiting.iter().any(|job| matches!(job, Job::Ask(..) | Job::Ready(_)));
            if (idle > IDLE && asks) || (idle >= HEARTBEAT && waiting.is_empty()) {
                if let Err(trouble) = link.connection.run("SELECT 1".to_owned()).await {
                    let error = trouble.before_anything_changed();
                    return self.reconnect_for(link, waiting, error).await;
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
                        observer.on_status(ConnectionState::Connected(Arc::clone(&link.identity)));
                        self.observers.push(observer);
                    }
                    Job::Ready(to) => drop(to.send(Ok(()))),
                }
            }
            if batch.is_empty() {
                continue;
            }
            if let Some(table) = link.shedlock.clone() {
                let lost = self.carry_out_at(&table, link, batch).await;
                link.used = clock.now();
                if let Some(error) = lost {
                    return End::Lost(error);
                }
                continue;
            }
            let done = self.carry_out(link, batch).await;
            link.used = clock.now();
            match done {
                Ok(true) if self.seams.entropy().next_u64().is_multiple_of(SWEEP_ONE_OF) => {
                    if let Err(Trouble::Lost(reason)) = sweep(&mut link.connection, &self.swept).await {
                        return End::Lost(NodeError::Unreachable { reason });
                    }
                }
                Ok(_) => {}
                Err(error) => return End::Lost(error),
            }
        }
    }

    /// Reads the rows whose next look is due, and passes on what has changed in them.
    async fn look(&mut self, link: &mut Link) -> Result<(), NodeError> {
        let asked = self.seams.clock().now();
        let due = self.watches.due(asked, BATCH);
        if due.is_empty() {
            return Ok(());
        }
        let rows = match read(&mut link.connection, &due).await {
            Ok(rows) => rows,
            Err(trouble) => {
                let lost = matches!(trouble, Trouble::Lost(_));
                let error = trouble.before_anything_changed();
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

    /// Passes on what these rows have that clients wait for.
    fn pass_on(&mut self, rows: &Rows) {
        for key in self.watches.look(rows, self.seams.clock().now()) {
            self.say(Hint::Invalidated(key.as_bytes()));
        }
    }

    /// A connection that was idle is gone. Nothing was asked over it, so what waits is asked over the next one.
    async fn reconnect_for(&mut self, link: &mut Link, waiting: Vec<Job>, error: NodeError) -> End {
        debug!(node = %self.database, error = %format_args!("{error:#}"), "its idle connection has ended");
        self.deafen();
        self.tell(ConnectionState::Lost(error));
        match connect(&self.database, &self.seams, &mut self.predecessor).await {
            Ok(ready) => {
                *link = self.linked(ready);
                Box::pin(self.serve(link, waiting)).await
            }
            Err(error) => {
                for job in waiting {
                    self.refuse(job, &error);
                }
                End::Lost(error)
            }
        }
    }

    /// A request that is to be carried out; the others are answered.
    fn admit(&self, request: SharedRequest, responder: Responder) -> Option<(SharedRequest, Responder)> {
        let refused = if request.may_create() && !responder.wanted() {
            Some(NodeError::NotAsked)
        } else {
            let long = || keys(&request).iter().find_map(|key| too_long(key));
            // A table of ShedLock has its own.
            let refused = || capabilities().check(&request).err().or_else(long);
            if self.database.shedlock().is_some() { None } else { refused() }
        };
        match refused {
            None => Some((request, responder)),
            Some(error) => {
                self.answer(responder, Err(error));
                None
            }
        }
    }

    /// Carries out requests at `ShedLock`'s table, one after the other. Tells why the connection is no more, if it is.
    async fn carry_out_at(
        &mut self,
        table: &shedlock::Table,
        link: &mut Link,
        batch: Vec<(SharedRequest, Responder)>,
    ) -> Option<NodeError> {
        let mut gone: Option<NodeError> = None;
        for (request, responder) in batch {
            if let Some(error) = &gone {
                self.answer(responder, Err(error.clone()));
                continue;
            }
            let now = self.seams.clock().now();
            let connection = &mut link.connection;
            let answer = match table.carry_out(connection, &request, &mut self.tombstones, now).await {
                Ok(vote) => Ok(Response::new(vote, Arc::clone(&link.identity))),
                Err(failed) => {
                    gone = failed.lost();
                    let error = failed.into_node_error();
                    // What the server has become is found out by a new connection.
                    if matches!(error.kind(), NodeErrorKind::ReadOnly | NodeErrorKind::Misconfigured) {
                        gone = Some(error.clone());
                    }
                    Err(error)
                }
            };
            self.answer(responder, answer);
        }
        gone
    }

    /// Carries out requests together, in the order asked. Tells whether any row was written, or why the connection is
    /// no more.
    async fn carry_out(
        &mut self,
        link: &mut Link,
        batch: Vec<(SharedRequest, Responder)>,
    ) -> Result<bool, NodeError> {
        let mut names: Vec<Arc<str>> = batch.iter().flat_map(|(request, _)| keys(request)).collect();
        names.sort_unstable();
        names.dedup();
        let clock = Arc::clone(self.seams.clock());
        let mut remembered = self.memory.rows(&names, clock.now());
        for _ in 0..ATTEMPTS {
            let (is_read, asked) = (remembered.is_none(), clock.now());
            let mut rows = match remembered.take() {
                Some(rows) => rows,
                None => match read(&mut link.connection, &names).await {
                    Ok(rows) => rows,
                    Err(trouble) => return self.failed(batch, trouble, Trouble::before_anything_changed),
                },
            };
            if is_read {
                self.memory.read(&rows, asked);
            }
            let decided: Vec<Result<Told, NodeError>> =
                batch.iter().map(|(request, _)| rows.carry_out(request)).collect();
            let changes = rows.changes();
            // What is remembered is confirmed by the write, and by that alone.
            if !is_read && changes.len() < names.len() {
                continue;
            }
            let nonce = self.seams.entropy().next_u64().max(1);
            let wrote = !changes.is_empty();
            let swapped = if wrote { swap(&mut link.connection, &changes, nonce).await } else { Ok(true) };
            match swapped {
                Ok(true) => {
                    if let Some(change) = changes.last() {
                        // The next look is behind it, or at the first rows.
                        self.swept =
                            if nonce.is_multiple_of(2) { change.key.to_owned() } else { String::new() };
                    }
                    for ((request, responder), decision) in batch.into_iter().zip(decided) {
                        if let (Ok((vote, _)), false) = (&decision, self.listeners.is_empty()) {
                            self.watches.note(&request, vote, &rows, self.seams.clock().now());
                        }
                        let identity = Arc::clone(&link.identity);
                        let response =
                            |(vote, number)| Response::new(vote, identity).with_fencing_token(number);
                        self.answer(responder, decision.map(response));
                    }
                    self.memory.written(&rows, nonce, clock.now());
                    self.pass_on(&rows);
                    return Ok(wrote);
                }
                Ok(false) => self.memory.forget(&names),
                Err(trouble) => {
                    self.memory.forget(&names);
                    return self.failed(batch, trouble, Trouble::into_node_error);
                }
            }
        }
        let reason = Reason::new(format!("other clients have changed the rows {ATTEMPTS} times meanwhile"));
        let error = NodeError::Failed { kind: NodeErrorKind::Busy, reason };
        for (_, responder) in batch {
            self.answer(responder, Err(error.clone()));
        }
        Ok(false)
    }

    /// Answers all with what has happened. The connection goes on unless it is lost.
    fn failed(
        &self,
        batch: Vec<(SharedRequest, Responder)>,
        trouble: Trouble,
        meaning: impl FnOnce(Trouble) -> NodeError,
    ) -> Result<bool, NodeError> {
        let lost = match &trouble {
            Trouble::Lost(reason) => Some(NodeError::Unreachable { reason: reason.clone() }),
            Trouble::Refused(_) => None,
        };
        let error = meaning(trouble);
        for (_, responder) in batch {
            self.answer(responder, Err(error.clone()));
        }
        // A server that was made a replica is introduced anew, and so is one whose tables have gone.
        let unfit = error.is_permanent().then(|| error.clone());
        lost.or(unfit).map_or(Ok(false), Err)
    }

    /// Answers without having asked the server.
    fn refuse(&mut self, job: Job, trouble: &NodeError) {
        match job {
            Job::Ask(_, responder) => self.answer(responder, Err(trouble.clone())),
            Job::Listen(listener) => self.listeners.push(listener),
            Job::Observe(observer) => {
                if let Some(state) = &self.state {
                    observer.on_status(state.clone());
                }
                self.observers.push(observer);
            }
            Job::Ready(to) => drop(to.send(Err(trouble.clone()))),
        }
    }

    fn answer(&self, responder: Responder, answer: Result<Response, NodeError>) {
        self.shared.unanswered.fetch_sub(1, Ordering::Relaxed);
        responder.send(answer);
    }

    /// Notifies the listeners that no change is passed on any more, and forgets what was seen over the connection.
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

    /// Tells observers of what is new.
    fn tell(&mut self, state: ConnectionState) {
        if self.state.as_ref() != Some(&state) {
            self.observers.iter().for_each(|observer| observer.on_status(state.clone()));
            self.state = Some(state);
        }
    }
}

/// What still waits is answered: the thread has ended.
impl Drop for Worker {
    fn drop(&mut self) {
        let ended = NodeError::Unreachable { reason: "its thread has ended".into() };
        self.jobs.close();
        while let Ok(job) = self.jobs.try_recv() {
            self.refuse(job, &ended);
        }
    }
}
