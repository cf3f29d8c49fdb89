//! A node that is a whole Redis Cluster: one failure domain, with one vote (C-1).
//!
//! The cluster has many masters, and each serves some of the 16384 slots. A lock and all keys beside it are
//! in one slot (C-4), so one master decides about it. This node sends each request to that master, and
//! returns its response in the name of the cluster.
//!
//! ```text
//!  ask ──► SlotRouter ── slot of the key ──► Shard 1 (RedisNode) ──► master ──► vote
//!            │   ▲                           Shard 2 (RedisNode) ──► master      │
//!            │   │ map, shards                  …                                ▼
//!          kept  └── topology ── CLUSTER NODES ──► any member              ReplyProxy
//!       (no map yet)   one task, every second                      settles the count, renames the identity
//!                                                                                │
//!  caller ◄──────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! # Parts
//!
//! | part | what it does |
//! |---|---|
//! | `slot_map` | parses the map that a member reports |
//! | `topology` | the task: requests the map, and adds and drops shards |
//! | `shard` | one master: an ordinary `RedisNode`, and the identity of the cluster with the age of that master |
//! | `router` | the shard of each slot, the count of unanswered requests, and the state of the cluster. No IO; under one mutex |
//! | `reply` | receives the response of a shard, and passes it on |
//! | `push` | makes the hints of all masters those of one node |
//!
//! # States and events
//!
//! The router is *shut* until the first map or the first failure to get one: requests are kept, up to a
//! limit, and then forwarded in their order. Then it is *open*, and answers immediately.
//!
//! | event | what it does |
//! |---|---|
//! | a request | goes to the shard of its slot and is counted; without a master for the slot, it fails as not sent |
//! | a response | is uncounted. If it says that the slot is elsewhere, the map is requested, not sooner than 50 ms after the last time |
//! | the same map again | confirms that votes may be requested |
//! | another map | shards of new masters connect, those of former ones are dropped. An older epoch is refused unless most members report it |
//! | a master is lost | the map is requested |
//! | the runtime ends | the next call starts the task anew, with the router shut |
//!
//! # Invariants
//!
//! - A request is sent to one master, once: no redirects, no retries (C-5). `MOVED` and `ASK` are errors
//!   that say that nothing was done.
//! - A release never overtakes, on the connection to another master, the request that it takes back. While
//!   a former master of the slot has an unanswered request, a release fails as unknown, and its caller
//!   leaves a tombstone (C-2).
//! - Votes are requested only within three seconds after a member was asked and confirmed the map (C-6).
//! - A member acts only in the replication history of its handshake; each script compares it (C-3).
//! - Two nodes whose clusters have a member in common are one vote (C-7).
//!
//! No mutex is held while a shard is asked or dropped: a response may come before `ask` returns. Dropping
//! the node ends the task; the shards go with it, and each finishes its clean-up as a single server does.
//!
//! What was rejected: docs/adr/0005-redis.md.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::push::PushFanIn;
use self::reply::ReplyProxy;
use self::router::{Routed, SlotRouter};
use self::shard::Shard;
use self::slot_map::HostPort;
use super::home::{Home, Work};
use super::observers::Observers;
use super::redisson;
use super::settings::Settings;
use crate::address::{Address, ClusterAddress, Layout};
use crate::node::facts::Facts;
use crate::node::{
    Capabilities, Capability, ConnectionState, HintListener, KeyPages, ListedKeys, Node, NodeError,
    NodeErrorKind, Responder, SharedRequest, StatusListener,
};
use crate::runtime::Mutex;
use quorlock_protocol::{Slot, keeps_companions};

mod inspect;
mod push;
mod reply;
mod router;
mod shard;
mod slot_map;
mod topology;

/// A [`Node`] that is a whole Redis Cluster.
///
/// [`Builder::nodes`](crate::Builder::nodes) makes these from addresses such as
/// `redis+cluster://10.0.0.1:7000,10.0.0.2:7000`. It is one node, however many masters it has: all of them
/// run the same software under the same operators, and one failover can lose the locks of one master.
///
/// It connects at the first request or call of [`Node::ready`], not before. Then it keeps one connection to
/// each master that serves slots, and requests the slot map from a member every second, and immediately when
/// a master redirects a request or is lost. Its tasks run on the Tokio runtime of that call, and end when the
/// node is dropped. Tasks that ended with a runtime are restarted by the next request.
pub struct ClusterNode {
    inner: Arc<Inner>,
    home: Arc<Home>,
    /// Ends the topology task.
    #[expect(dead_code, reason = "ends the task when it is dropped")]
    leaving: DropGuard,
}

/// The state that the handle shares with its tasks.
#[derive(Debug)]
struct Inner {
    name: Arc<str>,
    address: ClusterAddress,
    settings: Settings,
    router: Mutex<SlotRouter>,
    fan_in: Arc<PushFanIn>,
    observers: Observers,
    /// Notified when the map may be wrong.
    map_outdated: Notify,
    /// Cancelled once all masters were contacted for the first time, or none could be.
    contacted: Mutex<CancellationToken>,
    /// The number of shards created so far, which numbers them.
    shard_count: AtomicU64,
}

/// The work of the topology task.
struct TopologyTask {
    inner: Arc<Inner>,
    leaving: CancellationToken,
}

impl Work for TopologyTask {
    fn begin(&self, _panicked: Option<&str>) -> Option<BoxFuture<'static, ()>> {
        // Requests wait for a new map, as at the first time: the present one may be old.
        self.inner.router.lock().shut();
        self.inner.await_contact();
        let (inner, leaving) = (Arc::clone(&self.inner), self.leaving.clone());
        Some(Box::pin(async move {
            leaving.run_until_cancelled(topology::keep(inner)).await;
        }))
    }

    /// A caller that waits for the first contact waits in vain. The nodes of the masters report their own states.
    fn ended(&self) {
        let contacted = self.inner.contacted.lock().clone();
        contacted.cancel();
    }
}

impl ClusterNode {
    /// Creates a node for the cluster at `address`, with the system's clock, randomness and network.
    #[must_use]
    pub fn new(address: ClusterAddress) -> ClusterNode {
        ClusterNode::with(address, Settings::default())
    }

    /// Creates a node for the cluster at `address`, with these settings.
    pub(crate) fn with(address: ClusterAddress, settings: Settings) -> ClusterNode {
        let inner = Inner {
            name: address.to_string().into(),
            address,
            settings,
            router: Mutex::default(),
            fan_in: Arc::default(),
            observers: Observers::default(),
            map_outdated: Notify::new(),
            contacted: Mutex::default(),
            shard_count: AtomicU64::new(0),
        };
        let (inner, leaving) = (Arc::new(inner), CancellationToken::new());
        let keeping = TopologyTask { inner: Arc::clone(&inner), leaving: leaving.clone() };
        let clock = Arc::clone(&inner.settings.clock);
        let home = Home::new(Arc::clone(&inner.name), clock, Box::new(keeping));
        ClusterNode { inner, home, leaving: leaving.drop_guard() }
    }
}

impl Inner {
    /// Renews the token of the first contact, for a task that has contacted no master yet.
    fn await_contact(&self) {
        let mut token = self.contacted.lock();
        if token.is_cancelled() {
            *token = CancellationToken::new();
        }
    }

    /// Waits until the task has contacted all masters, or could contact none.
    async fn contacted(&self) {
        loop {
            let token = self.contacted.lock().clone();
            if token.is_cancelled() {
                return;
            }
            token.cancelled().await;
        }
    }

    /// Returns the known masters.
    fn shards(&self) -> Vec<Arc<Shard>> {
        self.router.lock().shards.clone()
    }

    /// Returns the address of a member, with the credentials of the first seed.
    fn member_at(&self, place: &HostPort) -> Address {
        match self.address.seeds() {
            [seed, ..] => seed.at_host(&place.host, place.port),
            [] => unreachable!("no address of a cluster is without a member"),
        }
    }

    /// Sends the request to the master that serves its key, and returns whether there is one.
    fn pass_on(self: &Arc<Self>, request: SharedRequest, reply: Responder) -> bool {
        let slot = Slot::of(request.key());
        // Sent after the lock is released: the response may come immediately.
        let routed = self.router.lock().route(self.settings.clock.now(), slot, request, reply);
        self.send(slot, routed)
    }

    /// Sends a request that was kept until now.
    fn forward(self: &Arc<Self>, request: SharedRequest, reply: Responder) {
        let slot = Slot::of(request.key());
        let routed = self.router.lock().send(self.settings.clock.now(), slot, request, reply);
        let _ = self.send(slot, routed);
    }

    fn send(self: &Arc<Self>, slot: Slot, routed: Routed) -> bool {
        match routed {
            Routed::To { shard, request, reply } => {
                let proxy = ReplyProxy::new(self, &shard.identity, slot, reply);
                shard.node.ask(request, Responder::new(Arc::new(proxy), 0));
                true
            }
            Routed::Nowhere { error, reply } => {
                self.map_outdated.notify_one();
                reply.send(Err(error));
                false
            }
            Routed::Kept => true,
        }
    }

    /// Notifies the observers of the state of the cluster.
    fn notify(&self) {
        self.observers.notify(|| self.router.lock().contact());
    }
}

impl Node for ClusterNode {
    fn name(&self) -> &str {
        &self.inner.name
    }

    fn ask(&self, request: SharedRequest, reply: Responder) {
        if let Err(error) = self.capabilities().check(&request) {
            return reply.send(Err(error));
        }
        if self.inner.address.layout() == Layout::Redisson && !redisson::keeps_slot(request.key()) {
            let reason = "Redisson's channel and counter for a lock of this name are in other slots of the cluster, so that \
                          Redisson cannot lock it either; choose a name with a whole hash tag, or without braces";
            let (kind, reason) = (NodeErrorKind::Unsupported, reason.into());
            return reply.send(Err(NodeError::Failed { kind, reason }));
        }
        if !request.keys().all(|key| keeps_companions(key)) {
            let reason = "the name of a lock contains `{}` before any hash tag, and so nothing beside it can be in its slot \
                          of a cluster; choose another name, or a key prefix with a hash tag, such as `{app}:`";
            let (kind, reason) = (NodeErrorKind::Unsupported, reason.into());
            return reply.send(Err(NodeError::Failed { kind, reason }));
        }
        match self.home.begin() {
            Ok(()) => {
                if !self.inner.pass_on(request, reply) {
                    // The state may be old: the topology task may not be driven.
                    drop(self.home.wake());
                }
            }
            Err(error) => reply.send(Err(error)),
        }
    }

    fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        let (begun, inner) = (self.home.wake(), Arc::clone(&self.inner));
        for shard in inner.shards() {
            drop(shard.node.ready());
        }
        Box::pin(async move {
            begun?;
            inner.contacted().await;
            let contact = inner.router.lock().contact();
            match contact {
                Some(ConnectionState::Connected(_)) => Ok(()),
                Some(
                    ConnectionState::Partial(error)
                    | ConnectionState::Stalled(error)
                    | ConnectionState::Lost(error)
                    | ConnectionState::Ended(error),
                ) => Err(error),
                None => Err(NodeError::NotAsked),
            }
        })
    }

    /// The round trip of the most distant master.
    fn round_trip(&self) -> Option<Duration> {
        self.inner.router.lock().shards.iter().filter_map(|shard| shard.node.round_trip()).max()
    }

    /// Multi-key requests work if all keys are in one slot. Otherwise the master refuses them, and the error
    /// says how to name the keys. Offers are excluded: a vote must not be older than a move of its slot (rule
    /// C-6).
    fn capabilities(&self) -> Capabilities {
        match self.inner.address.layout() {
            Layout::Own => Capabilities::all().without(Capability::Offer),
            Layout::Redisson => redisson::capabilities(),
        }
    }

    /// Hints come from each master, as from a single server, and the listeners are subscribed while all
    /// masters send them.
    fn listen(&self, listener: Arc<dyn HintListener>) {
        self.inner.fan_in.add(listener);
    }

    /// The facts of the first master that has a finding, or of any.
    fn facts(&self) -> Option<Arc<Facts>> {
        self.inner.router.lock().facts()
    }

    fn examine(&self, key: Arc<str>) -> BoxFuture<'static, Option<Facts>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move { Some(inspect::examine(inner, key).await) })
    }

    fn list_keys(&self, prefix: Arc<str>, which: ListedKeys) -> KeyPages {
        inspect::keys(Arc::clone(&self.inner), prefix, which)
    }

    fn observe(&self, observer: Arc<dyn StatusListener>) {
        self.inner.observers.add(observer, || self.inner.router.lock().contact());
    }
}

impl fmt::Debug for ClusterNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterNode").field("name", &self.inner.name).finish_non_exhaustive()
    }
}
