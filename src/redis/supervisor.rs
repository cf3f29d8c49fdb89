//! The work of a node's task: it connects, runs a session, and reconnects.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Either, select};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::warn;

use super::admission::{PendingRequest, State};
use super::connection::ConnectionError;
use super::handshake::Connector;
use super::home::Work;
use super::push::Listeners;
use super::session::{End, run};
use super::settings::{Notices, Settings};
use crate::address::Address;
use crate::doctor::Finding;
use crate::doctor::rules::on_sight;
use crate::node::NodeError;
use crate::node::Reason;
use crate::runtime::Mutex;
use quorlock_protocol::Backoff;

/// The first reconnects follow immediately, on a human scale.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// A node that came back is found within this time, and one that is gone for good costs a packet a second.
/// With 5 s, nodes that failed one after the other, never more than two of five at a time, were still waiting
/// to be dialled when the next ones failed: the chaos tester saw free locks take 1.7 s.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// A connection that ends sooner, and answers no request, does not count: the backoff keeps growing, such as
/// for a server that accepts connections and closes them again. One that has answered a request counts: where
/// connections are reset several times a second, growing waits kept three of five nodes away (the chaos
/// tester's `reset-connections`).
const LASTING: Duration = Duration::from_secs(3);

/// The parts of a node that its tasks share.
pub(crate) struct NodeInner {
    name: Arc<str>,
    settings: Settings,
    state: Arc<State>,
    listeners: Arc<Listeners>,
    /// The state that each task takes over from the previous one.
    tools: Mutex<Option<Tools>>,
    /// Cancelled once the first connection attempt of the latest task is over.
    contact: Mutex<CancellationToken>,
}

struct Tools {
    connector: Connector,
    queue: UnboundedReceiver<PendingRequest>,
    backoff: Backoff,
}

/// Returns a backoff that starts from the beginning.
fn fresh_backoff() -> Backoff {
    Backoff::new(FIRST_WAIT, LONGEST_WAIT)
}

impl NodeInner {
    pub(crate) fn new(
        name: Arc<str>,
        address: Address,
        settings: Settings,
        queue: UnboundedReceiver<PendingRequest>,
        state: Arc<State>,
        listeners: Arc<Listeners>,
    ) -> Arc<NodeInner> {
        let connector = Connector::new(address, settings.clone(), Arc::clone(&listeners));
        let tools = Mutex::new(Some(Tools { connector, queue, backoff: fresh_backoff() }));
        Arc::new(NodeInner { name, settings, state, listeners, tools, contact: Mutex::default() })
    }

    /// Waits until the first attempt to connect is over.
    pub(crate) async fn contacted(&self) {
        loop {
            let contact = self.contact.lock().clone();
            if contact.is_cancelled() {
                return;
            }
            contact.cancelled().await;
        }
    }
}

impl Work for Arc<NodeInner> {
    fn begin(&self, panicked: Option<&str>) -> Option<BoxFuture<'static, ()>> {
        let tools = self.tools.lock().take()?;
        // No `watch` channel: it wakes waiters in random order, which no seed reproduces.
        let contact = CancellationToken::new();
        *self.contact.lock() = contact.clone();
        let contacting = Some(contact.drop_guard());
        let failure = panicked
            .map(|panic| NodeError::Unreachable { reason: format!("its task panicked: {panic}").into() });
        if failure.is_none() {
            self.state.begin();
        }
        let supervisor = Supervisor { inner: Arc::clone(self), tools: Some(tools), contacting };
        Some(Box::pin(supervisor.run(failure)))
    }

    fn ended(&self) {
        self.state.end();
    }
}

/// The state of a node's task.
struct Supervisor {
    inner: Arc<NodeInner>,
    tools: Option<Tools>,
    /// Cancels the token of the first contact when dropped: after the first attempt, or with the task.
    contacting: Option<DropGuard>,
}

impl Supervisor {
    /// Serves the node until its last handle is dropped. Waits first if there is `failure`.
    async fn run(mut self, mut failure: Option<NodeError>) {
        let inner = Arc::clone(&self.inner);
        let NodeInner { name, settings, state, listeners, .. } = &*inner;
        let Some(Tools { connector, queue, backoff }) = &mut self.tools else { return };
        let clock = &*settings.clock;
        loop {
            let outcome = match failure.take() {
                // The first time, requests wait in the queue for the connection.
                None => connector.connect().await,
                Some(failure) => {
                    state.down(failure.clone());
                    drop(self.contacting.take());
                    let wait = backoff.next(settings.entropy.next_u64());
                    let connected = pin!(async {
                        clock.sleep_until(clock.now() + wait).await;
                        connector.connect().await
                    });
                    match select(pin!(refuse(queue, &failure)), connected).await {
                        Either::Left(_) => return,
                        Either::Right((outcome, _)) => outcome,
                    }
                }
            };
            failure = Some(match outcome {
                Ok(mut greeted) => {
                    let facts = std::mem::take(&mut greeted.facts);
                    if settings.notices == Notices::Logged {
                        for Finding { check, evidence, cure, .. } in on_sight(name, &facts) {
                            warn!(node = %name, finding = %check, cure, "the server {evidence}");
                        }
                    }
                    // Before its first vote is counted.
                    if let Some((note, theirs)) = greeted.max_ttl.as_ref().zip(facts.max_ttl) {
                        note.hear(name, theirs);
                    }
                    state.introduced(facts, greeted.round_trip);
                    if state.has_new_data(&greeted.identity) {
                        warn!(node = %name, "its data may have been replaced or deleted; its vote does not count for now");
                    }
                    let since = clock.now();
                    state.connect(Arc::clone(&greeted.identity));
                    drop(self.contacting.take());
                    if greeted.hints {
                        listeners.hearing();
                    }
                    if let Some(secret) = greeted.inbox.clone() {
                        listeners.inbox_open(secret);
                    }
                    let (end, has_answered) =
                        run(greeted, connector, queue, state, (name, listeners), clock).await;
                    listeners.deaf();
                    if has_answered || clock.now().since(since) >= LASTING {
                        *backoff = fresh_backoff();
                    }
                    match end {
                        End::Closed => return,
                        // It answers: requests wait in the queue for the next handshake, unless there was one just now.
                        End::Invalidated if clock.now().since(since) >= LASTING => continue,
                        End::Invalidated => NodeError::Unreachable {
                            reason: Reason::from(ConnectionError::Invalidated).within("the connection ended"),
                        },
                        End::Lost(reason) => {
                            NodeError::Unreachable { reason: reason.within("the connection ended") }
                        }
                    }
                }
                Err(error) => error,
            });
        }
    }
}

/// However the task ends, another one may continue from there.
impl Drop for Supervisor {
    fn drop(&mut self) {
        self.inner.listeners.deaf();
        *self.inner.tools.lock() = self.tools.take();
    }
}

/// Answers the requests that were queued before the node was known to be down: none of them was sent. Ends
/// when the node was dropped.
async fn refuse(queue: &mut UnboundedReceiver<PendingRequest>, failure: &NodeError) {
    while let Some(pending) = queue.recv().await {
        pending.answer(Err(failure.clone()));
    }
}
