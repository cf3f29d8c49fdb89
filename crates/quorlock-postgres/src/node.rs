//! The node: a thread that carries requests over a few connections.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use quorlock::protocol::preferred_node;
use quorlock::{
    Capabilities, Facts, HintListener, Node, NodeError, Responder, Seams, SharedRequest, StatusListener,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::examine::examine;
use crate::handshake::Settings;
use crate::line::{Job, Line, Spanning, Turnstile};
use crate::listeners::Listeners;
use crate::request::{capabilities, keys};
use crate::url::DatabaseUrl;

/// A node that keeps its locks in a PostgreSQL database.
///
/// Clones are the same node. Its thread, and with it its connections, ends with the last of them. It has a thread of
/// its own, so that it goes on whichever of the program's runtimes ends.
#[derive(Clone)]
pub struct PostgresNode {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    settings: Settings,
    listeners: Arc<Listeners>,
    lines: Vec<UnboundedSender<Job>>,
    /// Requests that span several connections are given to all of them in one order.
    spanning: Mutex<()>,
}

impl PostgresNode {
    pub(crate) fn new(url: DatabaseUrl, seams: &Seams) -> io::Result<PostgresNode> {
        let (name, connections) = (url.to_string(), url.connections);
        let settings = Settings::new(url, seams);
        let listeners = Arc::new(Listeners::default());
        let (lines, works): (Vec<_>, Vec<_>) = (0..connections)
            .map(|number| {
                let (sender, jobs) = unbounded_channel();
                let (settings, listeners) = (settings.clone(), Arc::clone(&listeners));
                (sender, Line { number, settings, listeners, jobs, predecessor: None })
            })
            .unzip();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("quorlock-postgres".into()).spawn(move || {
            runtime.block_on(async move {
                futures::future::join_all(works.into_iter().map(|work| tokio::spawn(work.run()))).await
            });
        })?;
        Ok(PostgresNode {
            inner: Arc::new(Inner { name, settings, listeners, lines, spanning: Mutex::default() }),
        })
    }
}

impl Inner {
    /// Which connection a key belongs to: always the same one.
    fn line(&self, key: &str) -> usize {
        preferred_node(key, self.lines.len())
    }

    /// Gives a job to a connection. If that has ended, what was asked is answered by its being dropped.
    fn give(&self, line: usize, job: Job) {
        if let Some(sender) = self.lines.get(line) {
            drop(sender.send(job));
        }
    }
}

impl Node for PostgresNode {
    fn name(&self) -> &str {
        &self.inner.name
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn ask(&self, request: SharedRequest, responder: Responder) {
        let inner = &*self.inner;
        let mut lines: Vec<usize> = Vec::new();
        keys(&request, &mut |key| {
            let line = inner.line(key);
            if !lines.contains(&line) {
                lines.push(line);
            }
        });
        let Some((line, others)) = lines.split_first() else {
            return inner.give(0, Job::Ask { request, responder, spanning: None });
        };
        if others.is_empty() {
            return inner.give(*line, Job::Ask { request, responder, spanning: None });
        }
        // What was asked before over the others is carried out before it, and what is asked later after it.
        let _in_one_order = inner.spanning.lock().unwrap_or_else(PoisonError::into_inner);
        let mut spanning = Spanning { arrivals: Vec::new(), leave: Vec::new() };
        for other in others {
            let ((arrived, arrival), (leave, left)) = (oneshot::channel(), oneshot::channel());
            spanning.arrivals.push(arrival);
            spanning.leave.push(leave);
            inner.give(*other, Job::Pass(Turnstile { arrived, left }));
        }
        inner.give(*line, Job::Ask { request, responder, spanning: Some(spanning) });
    }

    fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        let (sender, receiver) = oneshot::channel();
        self.inner.give(0, Job::Connect(sender));
        let lost = || NodeError::Disconnected { reason: "the node has ended".into() };
        receiver.map(move |told| told.unwrap_or_else(|_| Err(lost()))).boxed()
    }

    fn round_trip(&self) -> Option<Duration> {
        self.inner.listeners.round_trip()
    }

    fn listen(&self, listener: Arc<dyn HintListener>) {
        self.inner.listeners.listen(listener);
    }

    fn observe(&self, observer: Arc<dyn StatusListener>) {
        self.inner.listeners.observe(&observer);
    }

    fn facts(&self) -> Option<Arc<Facts>> {
        self.inner.listeners.facts()
    }

    fn examine(&self, key: Arc<str>) -> BoxFuture<'static, Option<Facts>> {
        examine(self.clone(), self.inner.settings.clone(), key).map(Some).boxed()
    }
}

impl fmt::Debug for PostgresNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresNode").field("name", &self.inner.name).finish_non_exhaustive()
    }
}
