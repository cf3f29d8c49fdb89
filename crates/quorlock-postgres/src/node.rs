//! The node: a thread that sends requests over a few connections.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use quorlock::{
    node::facts::{Facts, ProbeLock},
    node::shedlock,
    node::{
        Capabilities, HintListener, KeyPages, ListedKeys, Node, NodeError, Reason, Responder, Seams,
        SharedRequest, StatusListener,
    },
};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;

use crate::line::NodeConnection;
use crate::lines::ConnectionPool;
use crate::list;
use crate::listeners::Listeners;
use crate::request::capabilities;
use crate::settings::Settings;
use crate::url::DatabaseUrl;

/// A node that keeps its locks in a PostgreSQL database.
///
/// Clones are the same node. Its thread and its connections end with the last clone. The thread is its own,
/// so that the node keeps working when one of the program's runtimes ends.
#[derive(Clone)]
pub struct PostgresNode {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    settings: Settings,
    listeners: Arc<Listeners>,
    lines: Arc<ConnectionPool>,
}

impl PostgresNode {
    pub(crate) fn new(url: DatabaseUrl, seams: &Seams) -> Result<PostgresNode, Reason> {
        let (name, connections) = (url.to_string(), url.connections);
        let settings = Settings::new(url, seams);
        let listeners = Arc::new(Listeners::default());
        let (senders, jobs): (Vec<_>, Vec<_>) = (0..connections).map(|_| unbounded_channel()).unzip();
        let lines = Arc::new(ConnectionPool::new(senders));
        let mut works: Vec<_> = jobs
            .into_iter()
            .enumerate()
            .map(|(number, jobs)| {
                let (settings, listeners) = (settings.clone(), Arc::clone(&listeners));
                NodeConnection {
                    number,
                    settings,
                    listeners,
                    jobs,
                    predecessor: None,
                    lines: Arc::downgrade(&lines),
                }
            })
            .collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // Each connection contains its panics itself.
        seams.start_thread("quorlock-postgres", name.as_str(), move || {
            let works = mem::take(&mut works).into_iter();
            runtime.block_on(futures::future::join_all(
                works.map(|work| async { tokio::spawn(work.work()).await }),
            ));
        })?;
        Ok(PostgresNode { inner: Arc::new(Inner { name, settings, listeners, lines }) })
    }
}

impl Node for PostgresNode {
    fn name(&self) -> &str {
        &self.inner.name
    }

    fn capabilities(&self) -> Capabilities {
        if self.inner.settings.url.shedlock.is_some() { shedlock::capabilities() } else { capabilities() }
    }

    fn ask(&self, request: SharedRequest, responder: Responder) {
        let Inner { settings, listeners, lines, .. } = &*self.inner;
        let asked = request.clone();
        let keys: Vec<&str> = asked.keys().map(|key| &**key).collect();
        lines.give(&keys, request, responder, listeners, &**settings.seams.clock());
    }

    fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        let (sender, receiver) = oneshot::channel();
        self.inner.lines.connect(sender);
        let lost = || NodeError::Disconnected { reason: "the node has ended".into() };
        receiver.map(move |result| result.unwrap_or_else(|_| Err(lost()))).boxed()
    }

    fn round_trip(&self) -> Option<Duration> {
        self.inner.listeners.round_trip()
    }

    fn listen(&self, listener: Arc<dyn HintListener>) {
        self.inner.listeners.listen(listener);
    }

    fn observe(&self, observer: Arc<dyn StatusListener>) {
        self.inner.listeners.observe(observer);
    }

    fn facts(&self) -> Option<Arc<Facts>> {
        self.inner.listeners.facts()
    }

    fn list_keys(&self, prefix: Arc<str>, which: ListedKeys) -> KeyPages {
        list::keys(self.clone(), self.inner.settings.clone(), prefix, which)
    }

    fn examine(&self, key: Arc<str>) -> BoxFuture<'static, Option<Facts>> {
        const LIMIT: Duration = Duration::from_secs(5);
        let node = self.clone();
        let (key, lock) = match self.inner.settings.url.shedlock {
            // No row of that table is ever deleted, so all examinations use the same one.
            Some(_) => (shedlock::CHECKED.into(), ProbeLock::Unfenced),
            None => (key, ProbeLock::Fenced),
        };
        Box::pin(async move {
            let mut facts = Facts::default();
            facts.probe(&node, &node.inner.settings.seams, key, lock, LIMIT).await;
            Some(facts)
        })
    }
}

impl fmt::Debug for PostgresNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresNode").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::resume_unwind;

    use quorlock::node::Request;
    use quorlock_testkit::ClosedPort;

    use super::*;

    #[tokio::test]
    async fn i31_a_panic_of_what_a_node_calls_does_not_end_it() {
        let port = ClosedPort::bind().unwrap();
        let url = format!("postgres://{}/x", port.address().unwrap());
        let node = PostgresNode::new(DatabaseUrl::parse(&url).unwrap(), &Seams::default()).unwrap();
        let down = node.ready().await;
        let panics = |_| resume_unwind(Box::new("a panic that the test wants"));
        node.ask(Request::inspect("a").into(), Responder::from_fn(panics));
        assert_eq!(node.ready().await, down);
    }
}
