//! The node: a handle to a thread with one connection.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use quorlock::node::facts::{Facts, ProbeLock};
use quorlock::node::{
    AddressError, Capabilities, HintListener, KeyPages, ListedKeys, Node, NodeError, NodeLimits, Reason,
    Request, Responder, Seams, SharedRequest, StatusListener,
};
use quorlock::runtime::within;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::address::EtcdAddress;
use crate::doctor::concerns;
use crate::leases::LEAST;
use crate::list;
use crate::requests::capabilities;
use crate::worker::{Counted, Job, Shared, Worker};

/// A node that keeps its locks in etcd, in the layout of etcd's own lock clients.
///
/// Clones are the same node, with one thread, which ends with the last clone. Leases that no key of ours is left on end by
/// themselves.
#[derive(Clone)]
pub struct EtcdNode {
    name: Arc<str>,
    address: EtcdAddress,
    jobs: UnboundedSender<Job>,
    shared: Arc<Shared>,
    seams: Seams,
}

/// The maximum number of unanswered requests that may create a key, and of those of any kind.
const MOST_VOTES: usize = 8192;
const MOST_REQUESTS: usize = 32768;

impl EtcdNode {
    /// Creates the node of this URL, as [`EtcdKind`](crate::EtcdKind) does. Contacts no server.
    ///
    /// # Errors
    ///
    /// If the URL is malformed.
    pub fn new(url: &str, seams: &Seams) -> Result<EtcdNode, AddressError> {
        let address = EtcdAddress::parse(url)?;
        let no_thread = |_| {
            let shown = address.to_string();
            AddressError::malformed(
                shown,
                "needs a thread, and the system cannot start one",
                "end some threads",
            )
        };
        EtcdNode::of(address.clone(), seams).map_err(no_thread)
    }

    pub(crate) fn of(address: EtcdAddress, seams: &Seams) -> Result<EtcdNode, Reason> {
        let (jobs, asked) = unbounded_channel();
        let shared = Arc::new(Shared::default());
        let name = address.to_string().into();
        let worker = Worker::new(address.clone(), seams.clone(), Arc::clone(&shared), asked);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        seams.start_thread("quorlock-etcd", move || runtime.block_on(worker.work()))?;
        Ok(EtcdNode { name, address, jobs, shared, seams: seams.clone() })
    }
}

impl Node for EtcdNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&self, request: SharedRequest, responder: Responder) {
        // Most renewals need nothing of the server, and so no thread.
        if let Request::Renew { claim, ttl, .. } = &*request {
            let session = self.shared.session.lock().upgrade();
            if let Some(renewed) = session.and_then(|session| session.renew_at_once(claim, *ttl)) {
                return responder.send(Ok(renewed));
            }
        }
        let unanswered = Arc::clone(&self.shared.unanswered);
        let waiting = unanswered.fetch_add(1, Ordering::Relaxed);
        let counted = Counted::of(unanswered);
        if waiting >= if request.may_create() { MOST_VOTES } else { MOST_REQUESTS } {
            return responder.send(Err(NodeError::Overloaded { waiting }));
        }
        // If the thread has ended, dropping the responder answers the request.
        drop(self.jobs.send(Job::Ask(request, responder, counted)));
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn limits(&self) -> NodeLimits {
        NodeLimits::default().least_ttl(LEAST)
    }

    fn round_trip(&self) -> Option<Duration> {
        *self.shared.round_trip.lock()
    }

    fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        let (to, receiver) = oneshot::channel();
        drop(self.jobs.send(Job::Ready(to)));
        let ended = || NodeError::Unreachable { reason: "its thread has ended".into() };
        receiver.map(move |receiver| receiver.unwrap_or_else(|_| Err(ended()))).boxed()
    }

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
        list::keys(self.address.clone(), self.seams.clone(), prefix, which)
    }

    fn examine(&self, key: Arc<str>) -> BoxFuture<'static, Option<Facts>> {
        const LIMIT: Duration = Duration::from_secs(7);
        let (node, seams) = (self.clone(), self.seams.clone());
        Box::pin(async move {
            let mut facts = Facts::default();
            facts.probe(&node, &seams, key, ProbeLock::Fenced, LIMIT).await;
            let asking = async {
                let session = list::open(&node.address, seams.clone()).await.ok()?;
                concerns(&session.client, &**seams.clock()).await.ok()
            };
            // What a user may not ask stays unknown.
            facts.concerns =
                Box::pin(within(&**seams.clock(), LIMIT, asking)).await.flatten().unwrap_or_default();
            Some(facts)
        })
    }
}

impl fmt::Debug for EtcdNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdNode").field("name", &self.name).finish_non_exhaustive()
    }
}
