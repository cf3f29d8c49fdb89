//! The node of a store with places: a handle to its thread.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::FutureExt as _;
use quorlock_protocol::Claim;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::cluster::{Cluster, Listing, Local, Voter, open_any};
use super::worker::{Counted, Job, Shared, Worker};
use crate::address::AddressError;
use crate::node::Reason;
use crate::node::facts::{Concern, Facts, ProbeLock};
use crate::node::{
    Capabilities, HintListener, KeyPages, ListedKeys, Node, NodeAddress, NodeError, NodeLimits, Request,
    Responder, Response, Seams, SharedRequest, StatusListener, Vote,
};
use crate::runtime::{BoxFuture, within};

/// A node on a [`Cluster`]: a thread, with a connection to one member at a time.
///
/// Clones are the same node. The thread ends with the last one.
pub struct PlacesNode<C: Cluster> {
    name: Arc<str>,
    jobs: UnboundedSender<Job>,
    shared: Arc<Shared<C>>,
    cluster: Arc<C>,
}

/// The maximum number of unanswered requests that may create a place, and of those of any kind.
const MOST_VOTES: usize = 8192;
const MOST_REQUESTS: usize = 32768;
/// How long each part of an examination may take.
const EXAMINED: Duration = Duration::from_secs(7);

/// Parses a URL of such a store.
///
/// # Errors
///
/// If it is malformed.
pub fn parse<C: Cluster>(url: &str) -> Result<Box<dyn NodeAddress>, AddressError> {
    Ok(Box::new(Parsed::<C>(C::parse(url)?)))
}

struct Parsed<C: Cluster>(C::Address);

impl<C: Cluster> NodeAddress for Parsed<C> {
    fn servers(&self) -> Vec<String> {
        self.0.as_ref().servers()
    }

    fn node(&self, seams: &Seams) -> Result<Arc<dyn Node>, Reason> {
        #[cfg(feature = "tls")]
        self.0.as_ref().check_tls(seams)?;
        Ok(Arc::new(PlacesNode::<C>::start(&self.0, seams)?))
    }
}

impl<C: Cluster> fmt::Display for Parsed<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<C: Cluster> fmt::Debug for Parsed<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Parsed").field(&self.0).finish()
    }
}

impl<C: Cluster> PlacesNode<C> {
    /// Creates the node of this URL. Contacts no server.
    ///
    /// # Errors
    ///
    /// If the URL is malformed, or the system cannot start another thread.
    pub fn new(url: &str, seams: &Seams) -> Result<PlacesNode<C>, AddressError> {
        let address = C::parse(url)?;
        let shown = address.to_string();
        PlacesNode::start(&address, seams).map_err(|_| {
            let problem = "needs a thread, and the system cannot start one";
            AddressError::malformed(shown, problem, "end some threads")
        })
    }

    fn start(address: &C::Address, seams: &Seams) -> Result<PlacesNode<C>, Reason> {
        let (name, (jobs, asked)) = (Arc::<str>::from(address.to_string()), unbounded_channel());
        let (cluster, shared) = (cluster(address, seams), Arc::new(Shared::default()));
        let mut worker = Worker::new(Arc::clone(&cluster), Arc::clone(&shared), asked);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // A panic costs the connection and the requests that wait for it (rule I-31).
        seams.start_thread(C::THREAD, Arc::clone(&name), move || runtime.block_on(worker.work()))?;
        Ok(PlacesNode { name, jobs, shared, cluster })
    }
}

fn cluster<C: Cluster>(address: &C::Address, seams: &Seams) -> Arc<C> {
    Arc::new(C::new(Local::new(address.clone(), seams.clone())))
}

/// Opens a connection for one purpose, which has nothing to do with that of the node.
async fn open_another<C: Cluster>(address: &C::Address, seams: &Seams) -> Result<Arc<C::Voter>, NodeError> {
    Ok(open_any(&cluster::<C>(address, seams), 0).await?.0)
}

impl<C: Cluster> Node for PlacesNode<C> {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&self, request: SharedRequest, responder: Responder) {
        // Most renewals need nothing of the server, and so no thread.
        if let Request::Renew { claim, ttl, .. } = &*request {
            let session = self.shared.session.lock().upgrade();
            if let Some(renewed) = session.and_then(|session| renew_locally(&*session, claim, *ttl)) {
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

    fn capabilities(&self) -> Capabilities {
        C::capabilities()
    }

    fn limits(&self) -> NodeLimits {
        NodeLimits::default().least_ttl(self.cluster.least_ttl())
    }

    fn grant_age(&self, ttl: Duration) -> Duration {
        self.cluster.grant_age(ttl)
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

    fn round_trip(&self) -> Option<Duration> {
        *self.shared.round_trip.lock()
    }

    fn facts(&self) -> Option<Arc<Facts>> {
        self.shared.facts.lock().clone()
    }

    fn list_keys(&self, prefix: Arc<str>, which: ListedKeys) -> KeyPages {
        let Local { address, seams, .. } = self.cluster.local();
        let place = (address.clone(), seams.clone(), prefix);
        KeyPages::unfold(None::<C::Listing>, move |listing| {
            let (address, seams, prefix) = place.clone();
            async move {
                let mut listing = match listing {
                    Some(listing) => listing,
                    None => C::Listing::new(open_another::<C>(&address, &seams).await?, &prefix),
                };
                let page = listing.page(&prefix, which).await?;
                Ok(page.map(|page| (page, Some(listing))))
            }
        })
    }

    fn examine(&self, key: Arc<str>) -> BoxFuture<'static, Option<Facts>> {
        let node = self.clone();
        Box::pin(async move {
            let (mut facts, Local { address, seams, .. }) = (Facts::default(), node.cluster.local());
            facts.probe(&node, seams, key, ProbeLock::Fenced, EXAMINED).await;
            let asking = async {
                let voter = open_another::<C>(address, seams).await.ok()?;
                voter.examine(&mut facts.software).await
            };
            let asked = Box::pin(within(&**seams.clock(), EXAMINED, asking)).await;
            facts.concerns = asked.flatten().unwrap_or_default();
            Some(facts)
        })
    }
}

/// Answers a renewal for which no request is needed: the place is known to be there, and its end would be reported.
fn renew_locally<V: Voter>(voter: &V, claim: &Claim, ttl: Duration) -> Option<Response> {
    let cluster = voter.cluster();
    if claim.is_several() || ttl < cluster.least_ttl() || voter.connection().ended().is_some() {
        return None;
    }
    let (local, lock) = (cluster.local(), claim.keys().next()?);
    let own = local.own.lock().holder(lock, claim.token()).cloned()?;
    if local.is_heard() && !voter.watched().keep(lock, local.now() + ttl) {
        return None;
    }
    let from = voter.confirmed(&own, ttl)?;
    let renewed = || Response::new(Vote::Granted, voter.identity()).counting_from(from);
    local.prolong(lock, &own.key, ttl).then(renewed)
}

/// Returns the concern about a number of voting members, if there is one. Zero if it is not known.
#[must_use]
pub fn concern_about(voters: usize) -> Option<Concern> {
    match voters {
        1 => Some(Concern::new(
            "has one member: while it is down, nothing can be locked",
            "use three members, which tolerate the loss of one, or five, which tolerate two",
        )),
        2.. if voters.is_multiple_of(2) => Some(Concern::new(
            format!("has {voters} members, which tolerate no more failures than one fewer"),
            "add or remove one member",
        )),
        _ => None,
    }
}

/// Whether a lock with this number of places is listed, the first of which may be that of a waiter.
#[must_use]
pub fn is_listed(which: ListedKeys, places: usize, is_waiter: bool) -> bool {
    match which {
        ListedKeys::Locks => !is_waiter,
        ListedKeys::Queues => places > 1 || is_waiter,
    }
}

impl<C: Cluster> Clone for PlacesNode<C> {
    fn clone(&self) -> PlacesNode<C> {
        let PlacesNode { name, jobs, shared, cluster } = self;
        let (shared, cluster) = (Arc::clone(shared), Arc::clone(cluster));
        PlacesNode { name: Arc::clone(name), jobs: jobs.clone(), shared, cluster }
    }
}

impl<C: Cluster> fmt::Debug for PlacesNode<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(C::THREAD).field(&self.name).finish()
    }
}
