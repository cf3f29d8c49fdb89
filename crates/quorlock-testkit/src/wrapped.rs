//! A node that differs from another one in what a test is about.

use std::fmt;
use std::sync::Arc;

use quorlock::node::{Capabilities, HintListener, Node, Responder, SharedRequest};

type OnRequest = dyn Fn(SharedRequest, Responder, &Arc<dyn Node>) + Send + Sync;
type OnListen = dyn Fn(Arc<dyn HintListener>, &Arc<dyn Node>) + Send + Sync;

/// A node that passes everything on to another one, except what a test changes: it counts, delays, alters or
/// loses requests or hints.
///
/// # Examples
///
/// The connection ends at each renewal, after it was carried out or before:
///
/// ```
/// use quorlock::node::{NodeError, Request};
/// use quorlock_testkit::{MemoryNode, WrappedNode};
///
/// let node = WrappedNode::new(MemoryNode::new("a")).on_request(|request, responder, inner| {
///     if matches!(*request, Request::Renew { .. }) {
///         responder.send(Err(NodeError::Disconnected { reason: "it was reset".into() }));
///     } else {
///         inner.ask(request, responder);
///     }
/// });
/// # drop(node);
/// ```
#[derive(Clone)]
pub struct WrappedNode {
    inner: Arc<dyn Node>,
    capabilities: Option<Capabilities>,
    on_request: Arc<OnRequest>,
    on_listen: Arc<OnListen>,
}

impl WrappedNode {
    /// Wraps `node`, without a difference yet.
    pub fn new(node: impl Node) -> WrappedNode {
        WrappedNode {
            inner: Arc::new(node),
            capabilities: None,
            on_request: Arc::new(|request, responder, inner| inner.ask(request, responder)),
            on_listen: Arc::new(|listener, inner| inner.listen(listener)),
        }
    }

    /// Declares these capabilities, whatever the wrapped node supports.
    #[must_use]
    pub fn capabilities(mut self, capabilities: Capabilities) -> WrappedNode {
        self.capabilities = Some(capabilities);
        self
    }

    /// Calls this for each request instead of the wrapped node, which is the last argument.
    #[must_use]
    pub fn on_request(
        mut self,
        call: impl Fn(SharedRequest, Responder, &Arc<dyn Node>) + Send + Sync + 'static,
    ) -> WrappedNode {
        self.on_request = Arc::new(call);
        self
    }

    /// Calls this for each listener to hints instead of the wrapped node, which is the last argument.
    #[must_use]
    pub fn on_listen(
        mut self,
        call: impl Fn(Arc<dyn HintListener>, &Arc<dyn Node>) + Send + Sync + 'static,
    ) -> WrappedNode {
        self.on_listen = Arc::new(call);
        self
    }
}

impl fmt::Debug for WrappedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WrappedNode").field(&self.inner).finish()
    }
}

impl Node for WrappedNode {
    quorlock::node::forward_node!(self => &self.inner; name ready round_trip limits grant_age facts examine list_keys observe);

    fn ask(&self, request: SharedRequest, responder: Responder) {
        (self.on_request)(request, responder, &self.inner);
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.unwrap_or_else(|| self.inner.capabilities())
    }

    fn listen(&self, listener: Arc<dyn HintListener>) {
        (self.on_listen)(listener, &self.inner);
    }
}
