//! The node: a thread that carries out requests in the order asked.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use quorlock::{
    node::facts::{ClockReading, Exposure, Facts, Fsync, Location, Memory, ProbeLock, Role, Software},
    node::{
        Access, Capabilities, Capability, ConnectionState, Identity, Node, NodeError, NodeErrorKind,
        Observers, Order, Reason, Request, Responder, Response, Seams, SharedRequest, StatusListener, ask,
        record::Records,
    },
};

use crate::files::{Files, file_name};

/// A node that keeps its locks as files in a directory.
///
/// Clones are the same node. Its thread ends with the last clone.
#[derive(Clone)]
pub struct DirectoryNode {
    name: Arc<str>,
    directory: Arc<Path>,
    jobs: Sender<Job>,
    seams: Seams,
}

enum Job {
    Ask(SharedRequest, Responder),
    Observe(Arc<dyn StatusListener>),
}

impl DirectoryNode {
    /// Creates a node called `name` that keeps its locks in `directory`, which must exist at each request.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn new(
        name: impl Into<Arc<str>>,
        directory: PathBuf,
        seams: &Seams,
    ) -> Result<DirectoryNode, Reason> {
        let (jobs, asked) = mpsc::channel();
        let seams = seams.clone();
        let kept: Arc<Path> = Arc::from(&*directory);
        let worker =
            Worker { directory, seams: seams.clone(), observers: Observers::default(), until_sweep: 0 };
        seams.start_thread("quorlock-directory", move || worker.work(&asked))?;
        Ok(DirectoryNode { name: name.into(), directory: kept, jobs, seams })
    }

    /// Returns the name of the file of `key` in the subdirectory `keys`, for tools and tests that read or
    /// delete it.
    #[must_use]
    pub fn file_name(key: &str) -> String {
        file_name(key)
    }
}

fn capabilities() -> Capabilities {
    Capabilities::default()
        .with(Capability::Transfer)
        .with(Capability::Shared)
        .in_order(Order::PerKey)
        .durable()
}

impl Node for DirectoryNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&self, request: SharedRequest, responder: Responder) {
        // If the thread has ended, dropping the responder answers the request.
        drop(self.jobs.send(Job::Ask(request, responder)));
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn ready(&self) -> Pin<Box<dyn Future<Output = Result<(), NodeError>> + Send>> {
        let node = self.clone();
        Box::pin(async move { ask(&node, Request::inspect("ready")).await.map(drop) })
    }

    fn observe(&self, observer: Arc<dyn StatusListener>) {
        drop(self.jobs.send(Job::Observe(observer)));
    }

    fn examine(&self, key: Arc<str>) -> Pin<Box<dyn Future<Output = Option<Facts>> + Send>> {
        let node = self.clone();
        Box::pin(async move { Some(node.facts_by(key).await) })
    }
}

/// Facts for `doctor`.
impl DirectoryNode {
    /// Collects the facts within five seconds, even if another process keeps the directory locked.
    async fn facts_by(self, key: Arc<str>) -> Facts {
        const LIMIT: Duration = Duration::from_secs(5);
        let mut facts = Facts::default();
        facts.software = Some(Software::new("quorlock-directory", env!("CARGO_PKG_VERSION")));
        facts.role = Some(Role::Master);
        (facts.append_only, facts.fsync) = (Some(true), Some(Fsync::Always));
        (facts.replicas, facts.memory) = (Some(0), Some(Memory::new(0, None, "noeviction")));
        // Keys expire by the clock of this host.
        facts.clock = Some(ClockReading::new(0, Duration::ZERO));
        facts.place = Some(Location::new(None, Vec::new(), true));
        facts.probe(&self, &self.seams, key, ProbeLock::Fenced, LIMIT).await;
        // Only now there are files.
        let files = ["lock", "keys"].map(|name| self.directory.join(name));
        facts.exposure = Exposure::of(&self.directory, files.iter().map(PathBuf::as_path));
        facts
    }
}

impl fmt::Debug for DirectoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectoryNode").field("name", &self.name).finish_non_exhaustive()
    }
}

struct Worker {
    directory: PathBuf,
    seams: Seams,
    observers: Observers,
    until_sweep: u32,
}

impl Worker {
    fn work(mut self, asked: &Receiver<Job>) {
        for job in asked {
            match job {
                Job::Ask(request, responder) => {
                    let response = if request.may_create() && !responder.wanted() {
                        Err(NodeError::NotAsked)
                    } else {
                        self.execute(&request)
                    };
                    responder.send(response);
                }
                Job::Observe(observer) => {
                    drop(self.execute(&Request::inspect("ready")));
                    self.observers.add(observer);
                }
            }
        }
    }

    fn execute(&mut self, request: &Request) -> Result<Response, NodeError> {
        capabilities().check(request)?;
        let clock = self.seams.clock();
        let opened = Files::lock(&self.directory, || clock.wall()).and_then(|files| {
            let identity = files.identity(|| self.seams.entropy().next_u128())?;
            Ok((files, identity))
        });
        let (mut files, identity) = match opened {
            Ok((files, (id, age))) => (files, Arc::new(Identity::new(id, clock.now(), age))),
            Err(error) => {
                let error = failure(error, false);
                self.observers.notify(ConnectionState::Lost(error.clone()));
                return Err(error);
            }
        };
        self.observers.notify(ConnectionState::Connected(Arc::clone(&identity)));
        if self.until_sweep == 0 {
            // If deleting fails now, a later sweep retries.
            drop(files.sweep());
        }
        self.until_sweep = self.until_sweep.checked_sub(1).unwrap_or(SWEEP_EVERY);
        let mut records = Records::at(files.now()).without_queues();
        for key in Records::needed_for(request) {
            let record = files.read(&key).map_err(|error| failure(error, false))?;
            records.add(key, None, record);
        }
        let (vote, number) = records.apply(request)?;
        let mut changes = records.changes().into_iter();
        let written = changes.try_for_each(|change| files.write(change.key, change.record));
        written.and_then(|()| files.commit()).map_err(|error| failure(error, files.wrote()))?;
        Ok(Response::new(vote, identity).with_fencing_token(number))
    }
}

/// The number of requests between two sweeps for expired records.
const SWEEP_EVERY: u32 = 10_000;

/// Maps an error of the file system.
fn failure(error: io::Error, may_have_acted: bool) -> NodeError {
    if may_have_acted {
        return NodeError::Disconnected { reason: Reason::new("the disk failed").because(error) };
    }
    let is = |kinds: &[ErrorKind]| kinds.contains(&error.kind());
    let (kind, words) = if is(&[ErrorKind::InvalidData]) {
        return NodeError::Failed { kind: NodeErrorKind::WrongData, reason: error.into() };
    } else if is(&[ErrorKind::PermissionDenied]) {
        (NodeErrorKind::PermissionDenied(Access::Key), "the user may not use the directory")
    } else if is(&[ErrorKind::StorageFull, ErrorKind::QuotaExceeded]) {
        (NodeErrorKind::OutOfSpace, "the disk is full")
    } else if is(&[ErrorKind::ReadOnlyFilesystem]) {
        let reason = Reason::new("the file system is read-only").because(error);
        return NodeError::Unfit { kind: NodeErrorKind::ReadOnly, reason };
    } else {
        return NodeError::Unreachable { reason: error.into() };
    };
    NodeError::Failed { kind, reason: Reason::new(words).because(error) }
}
