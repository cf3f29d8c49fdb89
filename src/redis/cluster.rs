//! A node that is a whole Redis Cluster: one failure domain, with one vote.
//!
//! A `slot_map` tells which master serves which slots. `topology`, one task, asks the members for it when
//! it is needed, and keeps one `shard` for each master: an ordinary node for a single server. The
//! `router` sends each question to the shard of its key. `reply` brings the answer back, in the name
//! of the cluster, and `push` does the same with hints. See docs/adr/0014-cluster.md.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::push::PushFanIn;
use self::reply::ReplyProxy;
use self::router::{Routed, SlotRouter};
use self::shard::Shard;
use self::slot_map::HostPort;
use super::command::key_of_one;
use super::home::{Home, Work};
use super::observers::Observers;
use super::settings::Settings;
use crate::address::{Address, ClusterAddress};
use crate::node::facts::Facts;
use crate::node::{Asked, Contact, Listener, Node, NodeError, Reply, Watcher};
use crate::protocol::Slot;

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
/// `redis+cluster://10.0.0.1:7000,10.0.0.2:7000`. It is one node however many masters it has: all of
/// them are run by the same people with the same software, and one failover can lose locks of one.
///
/// Contacts nobody until the first question, or until somebody waits for [`Node::ready`]. Then it
/// keeps one connection to each master that serves slots, and asks a member for the map every second,
/// and at once when one of them sends a question away, or is lost. Its tasks live on the runtime that is current
/// then, and end when the node is dropped. What ended with a runtime is made anew by the next question.
pub struct ClusterNode {
    inside: Arc<Inside>,
    home: Arc<Home>,
    /// Ends the keeper.
    #[expect(dead_code, reason = "ends it when it is dropped")]
    leaving: DropGuard,
}

/// What the handle shares with its tasks.
#[derive(Debug)]
struct Inside {
    name: Arc<str>,
    address: ClusterAddress,
    settings: Settings,
    desk: Mutex<SlotRouter>,
    fan_in: Arc<PushFanIn>,
    observers: Observers,
    /// The map may be wrong.
    doubt: Notify,
    /// Cancelled once all masters have been contacted for the first time, or nobody could be.
    contacted: Mutex<CancellationToken>,
    /// How many connections to masters there have been.
    lines: AtomicU64,
}

/// The keeper's.
struct Keeping {
    inside: Arc<Inside>,
    leaving: CancellationToken,
}

impl Work for Keeping {
    fn begin(&self, _panicked: Option<&str>) -> Option<BoxFuture<'static, ()>> {
        // What is asked waits for the map, as the first time: the last word of a member may be old.
        self.inside.desk().shut();
        self.inside.await_contact();
        let (inside, leaving) = (Arc::clone(&self.inside), self.leaving.clone());
        Some(Box::pin(async move {
            leaving.run_until_cancelled(topology::keep(inside)).await;
        }))
    }

    /// What each master's node says of it is enough.
    fn ended(&self) {}
}

impl ClusterNode {
    /// The cluster at `address`, with the system's clock, randomness and network.
    #[must_use]
    pub fn new(address: ClusterAddress) -> ClusterNode {
        ClusterNode::with(address, Settings::default())
    }

    /// The cluster at `address`.
    pub(crate) fn with(address: ClusterAddress, settings: Settings) -> ClusterNode {
        let inside = Inside {
            name: address.to_string().into(),
            address,
            settings,
            desk: Mutex::default(),
            fan_in: Arc::default(),
            observers: Observers::default(),
            doubt: Notify::new(),
            contacted: Mutex::default(),
            lines: AtomicU64::new(0),
        };
        let (inside, leaving) = (Arc::new(inside), CancellationToken::new());
        let keeping = Keeping { inside: Arc::clone(&inside), leaving: leaving.clone() };
        let clock = Arc::clone(&inside.settings.clock);
        let home = Home::new(Arc::clone(&inside.name), clock, Box::new(keeping));
        ClusterNode { inside, home, leaving: leaving.drop_guard() }
    }
}

impl Inside {
    fn desk(&self) -> MutexGuard<'_, SlotRouter> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contact_token(&self) -> MutexGuard<'_, CancellationToken> {
        self.contacted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A keeper begins that has contacted nobody yet.
    fn await_contact(&self) {
        let mut token = self.contact_token();
        if token.is_cancelled() {
            *token = CancellationToken::new();
        }
    }

    /// Ends once the keeper has contacted all masters, or could not contact anybody.
    async fn contacted(&self) {
        loop {
            let token = self.contact_token().clone();
            if token.is_cancelled() {
                return;
            }
            token.cancelled().await;
        }
    }

    /// The masters that are known.
    fn shards(&self) -> Vec<Arc<Shard>> {
        self.desk().shards.clone()
    }

    /// The member at this place, logged in to as the one that was named first.
    fn beside(&self, place: &HostPort) -> Address {
        match self.address.seeds() {
            [seed, ..] => seed.beside(&place.host, place.port),
            [] => unreachable!("no address of a cluster is without a member"),
        }
    }

    /// Sends the question to the master that serves its key, and says whether there is one.
    fn pass_on(self: &Arc<Self>, question: Asked, reply: Reply) -> bool {
        let slot = Slot::of(key_of_one(&question));
        // Not asked under the lock: it may be answered at once.
        let routed = self.desk().route(self.settings.clock.now(), slot, question, reply);
        self.send(slot, routed)
    }

    /// The same for a question that was kept until now.
    fn forward(self: &Arc<Self>, question: Asked, reply: Reply) {
        let slot = Slot::of(key_of_one(&question));
        let routed = self.desk().send(self.settings.clock.now(), slot, question, reply);
        let _ = self.send(slot, routed);
    }

    fn send(self: &Arc<Self>, slot: Slot, routed: Routed) -> bool {
        match routed {
            Routed::To { shard, question, reply } => {
                let proxy = ReplyProxy::new(self, &shard.face, slot, reply);
                shard.node.ask(question, Reply::new(Arc::new(proxy), 0));
                true
            }
            Routed::Nowhere { error, reply } => {
                self.doubt.notify_one();
                reply.send(Err(error));
                false
            }
            Routed::Kept => true,
        }
    }

    /// Notifies the observers of how the cluster stands.
    fn tell(&self) {
        self.observers.notify(|| self.desk().contact());
    }
}

impl Node for ClusterNode {
    fn name(&self) -> &str {
        &self.inside.name
    }

    fn ask(&self, question: Asked, reply: Reply) {
        match self.home.begin() {
            Ok(()) => {
                if !self.inside.pass_on(question, reply) {
                    // As it has been since the keeper was last driven.
                    drop(self.home.knock());
                }
            }
            Err(error) => reply.send(Err(error)),
        }
    }

    fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        let (begun, inside) = (self.home.knock(), Arc::clone(&self.inside));
        for shard in inside.shards() {
            drop(shard.node.ready());
        }
        Box::pin(async move {
            begun?;
            inside.contacted().await;
            let contact = inside.desk().contact();
            match contact {
                Some(Contact::Connected(_)) => Ok(()),
                Some(
                    Contact::Partial(error)
                    | Contact::Stalled(error)
                    | Contact::Lost(error)
                    | Contact::Ended(error),
                ) => Err(error),
                None => Err(NodeError::NotAsked),
            }
        })
    }

    /// Of the master that is farthest away.
    fn round_trip(&self) -> Option<Duration> {
        self.inside.desk().shards.iter().filter_map(|shard| shard.node.round_trip()).max()
    }

    /// Where their names put them into one slot. Else its master refuses, and says how they would be.
    fn takes_several(&self) -> bool {
        true
    }

    /// Hints come from each master, as they do from a single server, and the node hears of changes
    /// while all masters tell them.
    fn listen(&self, listener: Arc<dyn Listener>) {
        self.inside.fan_in.add(listener);
    }

    /// Of the master of which there is most to say.
    fn facts(&self) -> Option<Arc<Facts>> {
        self.inside.desk().facts()
    }

    fn examine(&self, key: Arc<str>) -> BoxFuture<'static, Option<Facts>> {
        let inside = Arc::clone(&self.inside);
        Box::pin(async move { Some(inspect::examine(inside, key).await) })
    }

    fn observe(&self, observer: Arc<dyn Watcher>) {
        self.inside.observers.add(observer, || self.inside.desk().contact());
    }
}

impl fmt::Debug for ClusterNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterNode").field("name", &self.inside.name).finish_non_exhaustive()
    }
}
