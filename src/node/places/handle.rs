//! A node's handle to its thread.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::FutureExt as _;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::cluster::Cluster;
use super::worker::{Counted, Job, Shared, Worker};
use crate::node::facts::Facts;
use crate::node::{HintListener, NodeError, Request, Responder, SharedRequest, StatusListener};
use crate::reason::Reason;
use crate::runtime::BoxFuture;

/// The part of a node that is the same for each [`Cluster`]: a thread, with a connection to one member at a time.
///
/// Clones are the same node. The thread ends with the last one. Its methods are those of [`Node`](crate::node::Node).
pub struct Handle<C: Cluster> {
    jobs: UnboundedSender<Job>,
    shared: Arc<Shared<C>>,
}

/// The maximum number of unanswered requests that may create a place, and of those of any kind.
const MOST_VOTES: usize = 8192;
const MOST_REQUESTS: usize = 32768;

impl<C: Cluster> Handle<C> {
    /// Starts the thread. `name` is shown by debuggers.
    ///
    /// # Errors
    ///
    /// The system cannot start another thread.
    pub fn start(cluster: C, name: &str) -> Result<Handle<C>, Reason> {
        let (jobs, asked) = unbounded_channel();
        let (cluster, shared) = (Arc::new(cluster), Arc::new(Shared::default()));
        let worker = Worker::new(Arc::clone(&cluster), Arc::clone(&shared), asked);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        cluster.local().seams.start_thread(name, move || runtime.block_on(worker.work()))?;
        Ok(Handle { jobs, shared })
    }

    /// Carries out a request.
    pub fn ask(&self, request: SharedRequest, responder: Responder) {
        // Most renewals need nothing of the server, and so no thread.
        if let Request::Renew { claim, ttl, .. } = &*request {
            let session = self.shared.session.lock().upgrade();
            if let Some(renewed) = session.and_then(|session| C::renew_locally(&session, claim, *ttl)) {
                return responder.send(Ok(renewed));
            }
        }
        let unanswered = Arc::clone(&self.shared.unanswered);
        let waiting = unanswered.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(unanswered);
        if waiting >= if request.may_create() { MOST_VOTES } else { MOST_REQUESTS } {
            return responder.send(Err(NodeError::Overloaded { waiting }));
        }
        // If the thread has ended, dropping the responder answers the request.
        drop(self.jobs.send(Job::Ask(request, responder, counted)));
    }

    /// Resolves when the connection is up, or cannot be made.
    #[must_use]
    pub fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        let (to, receiver) = oneshot::channel();
        drop(self.jobs.send(Job::Ready(to)));
        let ended = || NodeError::Unreachable { reason: "its thread has ended".into() };
        receiver.map(move |receiver| receiver.unwrap_or_else(|_| Err(ended()))).boxed()
    }

    /// Passes hints to a listener.
    pub fn listen(&self, listener: Arc<dyn HintListener>) {
        drop(self.jobs.send(Job::Listen(listener)));
    }

    /// Passes the state of the connection to a listener.
    pub fn observe(&self, observer: Arc<dyn StatusListener>) {
        drop(self.jobs.send(Job::Observe(observer)));
    }

    /// Returns the latest round trip.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        *self.shared.round_trip.lock()
    }

    /// Returns what the latest connection knows of the store.
    #[must_use]
    pub fn facts(&self) -> Option<Arc<Facts>> {
        self.shared.facts.lock().clone()
    }
}

impl<C: Cluster> Clone for Handle<C> {
    fn clone(&self) -> Handle<C> {
        Handle { jobs: self.jobs.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<C: Cluster> fmt::Debug for Handle<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}
