//! The node: a handle to a thread with one connection.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::{BoxFuture, join};
use quorlock::runtime::within;
use quorlock::{
    node::facts::{ConnectFailure, Facts, Location, ProbeLock},
    node::shedlock,
    node::{
        AddressError, Capabilities, HintListener, KeyPages, ListedKeys, Node, NodeError, NodeLimits, Reason,
        Responder, Seams, SharedRequest, StatusListener,
    },
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::address::Database;
use crate::list;
use crate::worker::{Job, Shared, Worker, capabilities};

/// A node that keeps its locks as rows of a table in MariaDB or MySQL.
///
/// Clones are the same node, with one connection and one thread, which ends with the last clone.
#[derive(Clone)]
pub struct MysqlNode {
    name: Arc<str>,
    database: Database,
    jobs: UnboundedSender<Job>,
    shared: Arc<Shared>,
    seams: Seams,
}

/// The maximum number of unanswered requests that may create a key, and of those of any kind: a server that
/// hangs must not execute an unbounded backlog when it resumes.
const MOST_VOTES: usize = 512;
const MOST_REQUESTS: usize = 2048;

impl MysqlNode {
    /// Creates the node of this URL, as [`MysqlKind`](crate::MysqlKind) does. Contacts no server.
    ///
    /// # Errors
    ///
    /// If the URL is malformed.
    pub fn new(url: &str, seams: &Seams) -> Result<MysqlNode, AddressError> {
        let database = Database::parse(url)?;
        let no_thread = |_| {
            AddressError::malformed(
                database.to_string(),
                "needs a thread, and the system cannot start one",
                "end some threads",
            )
        };
        MysqlNode::of(database.clone(), seams).map_err(no_thread)
    }

    pub(crate) fn of(database: Database, seams: &Seams) -> Result<MysqlNode, Reason> {
        let (jobs, asked) = unbounded_channel();
        let shared = Arc::new(Shared::default());
        let name = Arc::<str>::from(database.to_string());
        let mut worker = Worker::new(database.clone(), seams.clone(), Arc::clone(&shared), asked);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // A panic costs the connection and the requests of one batch (rule I-31).
        seams.start_thread("quorlock-mysql", Arc::clone(&name), move || runtime.block_on(worker.work()))?;
        Ok(MysqlNode { name, database, jobs, shared, seams: seams.clone() })
    }
}

impl Node for MysqlNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&self, request: SharedRequest, responder: Responder) {
        let waiting = self.shared.unanswered.fetch_add(1, Ordering::Relaxed);
        if waiting >= if request.may_create() { MOST_VOTES } else { MOST_REQUESTS } {
            self.shared.unanswered.fetch_sub(1, Ordering::Relaxed);
            return responder.send(Err(NodeError::Overloaded { waiting }));
        }
        // If the thread has ended, dropping the responder answers the request.
        drop(self.jobs.send(Job::Ask(request, responder)));
    }

    fn capabilities(&self) -> Capabilities {
        if self.database.shedlock().is_some() { shedlock::capabilities() } else { capabilities() }
    }

    fn limits(&self) -> NodeLimits {
        NodeLimits::default().least_ttl(LEAST_TTL)
    }

    fn round_trip(&self) -> Option<Duration> {
        let nanos = self.shared.round_trip.load(Ordering::Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        let (to, receiver) = oneshot::channel();
        drop(self.jobs.send(Job::Ready(to)));
        let ended = || NodeError::Unreachable { reason: "its thread has ended".into() };
        Box::pin(async move { receiver.await.unwrap_or_else(|_| Err(ended())) })
    }

    /// The server sends no notifications: the thread polls the rows that listeners wait for.
    fn listen(&self, listener: Arc<dyn HintListener>) {
        drop(self.jobs.send(Job::Listen(listener)));
    }

    fn observe(&self, observer: Arc<dyn StatusListener>) {
        drop(self.jobs.send(Job::Observe(observer)));
    }

    fn facts(&self) -> Option<Arc<Facts>> {
        self.shared.facts.lock().clone()
    }

    fn list_keys(&self, prefix: Arc<str>, which: ListedKeys) -> KeyPages {
        list::keys(self.database.clone(), self.seams.clone(), prefix, which)
    }

    fn examine(&self, key: Arc<str>) -> BoxFuture<'static, Option<Facts>> {
        let (database, seams) = (self.database.clone(), self.seams.clone());
        Box::pin(async move { Some(examined(database, seams, key).await) })
    }
}

/// A commit takes milliseconds on a slow disk, and a lease must be renewed several times within its TTL.
const LEAST_TTL: Duration = Duration::from_millis(100);

/// Examines the server over a separate connection, within seven seconds.
async fn examined(database: Database, seams: Seams, key: Arc<str>) -> Facts {
    const LIMIT: Duration = Duration::from_secs(7);
    let (key, lock) = match database.shedlock() {
        // No row of that table is ever deleted, so all examinations use the same one.
        Some(_) => (shedlock::CHECKED.into(), ProbeLock::Unfenced),
        None => (key, ProbeLock::Fenced),
    };
    let mut facts = Facts::default();
    let node = match MysqlNode::of(database.clone(), &seams) {
        Ok(node) => node,
        Err(reason) => {
            facts.failure = Some(ConnectFailure::new(NodeError::Unreachable { reason }));
            return facts;
        }
    };
    let resolved = within(&**seams.clock(), LIMIT, seams.dial().resolve(database.host()));
    let (addresses, ()) = join(resolved, facts.probe(&node, &seams, key, lock, LIMIT)).await;
    let host = || Some(database.host().to_owned());
    facts.place = addresses.map(|found| Location::new(host(), found, database.is_encrypted()));
    facts
}

impl fmt::Debug for MysqlNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlNode").field("name", &self.name).finish_non_exhaustive()
    }
}
