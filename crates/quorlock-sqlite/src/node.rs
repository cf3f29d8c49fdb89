//! The node.

use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use futures::channel::oneshot;
use quorlock::protocol::Moment;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock::{
    node::facts::{ClockReading, Facts, Fsync, Location, Memory, ProbeLock, Role, Software},
    node::{
        Capabilities, HintListener, KeyPages, ListedKeys, Node, NodeError, NodeLimits, Reason, Responder,
        Seams, SharedRequest, StatusListener,
    },
};

use crate::place;
use crate::store::PAGE;
use crate::worker::{Job, TIME_LIMIT, Worker, capabilities};

/// A node that keeps its locks in a SQLite database, for the programs of this host.
#[derive(Clone)]
pub struct SqliteNode {
    name: Arc<str>,
    path: Arc<Path>,
    jobs: Sender<Job>,
    /// The number of requests that wait for the thread.
    waiting: Arc<AtomicUsize>,
    seams: Seams,
}

/// The maximum number of requests that wait: the disk may hang.
const MOST_REQUESTS: usize = 32768;

impl SqliteNode {
    /// Creates a node called `name` that keeps its locks in the database at `path`, which is created by the
    /// first request. The directory must exist.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn new(name: impl Into<Arc<str>>, path: PathBuf, seams: &Seams) -> Result<SqliteNode, Reason> {
        SqliteNode::start(name.into(), path, None, seams)
    }

    /// Creates a node that uses `boot` as the name of this boot, for tests: another name simulates a restart
    /// of the host.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn booted_as(
        boot: impl Into<String>,
        name: impl Into<Arc<str>>,
        path: PathBuf,
        seams: &Seams,
    ) -> Result<SqliteNode, Reason> {
        SqliteNode::start(name.into(), path, Some(boot.into()), seams)
    }

    fn start(
        name: Arc<str>,
        path: PathBuf,
        boot: Option<String>,
        seams: &Seams,
    ) -> Result<SqliteNode, Reason> {
        let (jobs, asked) = mpsc::channel();
        let waiting = Arc::<AtomicUsize>::default();
        let mut worker = Worker::new(path.clone(), boot, Arc::clone(&waiting), seams.clone());
        // A panic costs one request (rule I-31). With the thread the mark of this process would end, and others would take
        // the locks that it holds.
        seams.start_thread("quorlock-sqlite", Arc::clone(&name), move || worker.work(&asked))?;
        Ok(SqliteNode { name, path: path.into(), jobs, waiting, seams: seams.clone() })
    }
}

impl Node for SqliteNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&self, request: SharedRequest, responder: Responder) {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        if waiting >= MOST_REQUESTS {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return responder.send(Err(NodeError::Overloaded { waiting }));
        }
        // If the thread has ended, dropping the responder answers the request.
        drop(self.jobs.send(Job::Ask(request, responder, SystemClock::default().now())));
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn limits(&self) -> NodeLimits {
        NodeLimits::default().time_limit(TIME_LIMIT)
    }

    fn listen(&self, listener: Arc<dyn HintListener>) {
        drop(self.jobs.send(Job::Listen(listener)));
    }

    fn ready(&self) -> Pin<Box<dyn Future<Output = Result<(), NodeError>> + Send>> {
        let (sender, receiver) = oneshot::channel();
        drop(self.jobs.send(Job::Ready(sender)));
        let ended = |_| Err(NodeError::Unreachable { reason: "its thread has ended".into() });
        Box::pin(async move { receiver.await.unwrap_or_else(ended) })
    }

    fn observe(&self, observer: Arc<dyn StatusListener>) {
        drop(self.jobs.send(Job::Observe(observer)));
    }

    /// There is no queue to list: waiters watch the file.
    fn list_keys(&self, prefix: Arc<str>, which: ListedKeys) -> KeyPages {
        if which == ListedKeys::Queues {
            return KeyPages::none();
        }
        let jobs = self.jobs.clone();
        KeyPages::unfold(Some(String::new()), move |last| {
            let (sender, receiver) = oneshot::channel();
            let asked = last.map(|last| jobs.send(Job::List { prefix: Arc::clone(&prefix), last, sender }));
            async move {
                if asked.is_none() {
                    return Ok(None);
                }
                let ended = |_| Err(NodeError::Unreachable { reason: "its thread has ended".into() });
                let keys = receiver.await.unwrap_or_else(ended)?;
                let last = keys.last().filter(|_| keys.len() == PAGE).cloned();
                Ok(Some((keys.into_iter().map(Arc::from).collect(), last)))
            }
        })
    }

    fn examine(&self, key: Arc<str>) -> Pin<Box<dyn Future<Output = Option<Facts>> + Send>> {
        let node = self.clone();
        Box::pin(async move { Some(node.facts_by(key).await) })
    }
}

/// Facts for `doctor`.
impl SqliteNode {
    /// Collects the facts within five seconds, even if another process keeps the database locked.
    async fn facts_by(self, key: Arc<str>) -> Facts {
        const LIMIT: Duration = Duration::from_secs(5);
        let mut facts = Facts::default();
        facts.software = Some(Software::new("quorlock-sqlite", env!("CARGO_PKG_VERSION")));
        facts.role = Some(Role::Master);
        // Whatever must survive a power loss is on disk before it is acknowledged.
        (facts.append_only, facts.fsync) = (Some(true), Some(Fsync::Always));
        (facts.replicas, facts.memory) = (Some(0), Some(Memory::new(0, None, "noeviction")));
        facts.hints = Some(true);
        // Locks expire by the clock of this host.
        facts.clock = Some(ClockReading::new(0, Duration::ZERO));
        facts.place = Some(Location::new(None, Vec::new(), true));
        facts.probe(&self, &self.seams, key, ProbeLock::Fenced, LIMIT).await;
        // Only now there are files.
        facts.exposure = place::exposure(&self.path);
        facts.concerns.extend(place::concern(&self.path));
        // Nothing is older than the boot, though nothing was ever lost.
        let booted = self.seams.clock().now().since(Moment::ORIGIN);
        facts.uptime = facts.uptime.map(|age| age.min(booted));
        facts
    }
}

impl fmt::Debug for SqliteNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteNode").field("name", &self.name).finish_non_exhaustive()
    }
}
