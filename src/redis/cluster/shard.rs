//! One master of a cluster.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use super::Inner;
use super::push::PushSource;
use super::slot_map::{Map, Master};
use crate::address::Address;
use crate::node::{ConnectionState, Identity, Node, StatusListener};
use crate::redis::RedisNode;
use crate::redis::settings::{Membership, Settings};
use crate::runtime::Mutex;
use quorlock_protocol::{Slot, gate_in, keeps_companions};

/// A master, and the ordinary node that connects to it.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) node: RedisNode,
    pub(super) address: Address,
    pub(super) identity: Arc<ShardIdentity>,
    /// A slot that it serves, for the keys of notes about the server itself.
    home: Slot,
    has_gate: bool,
}

/// The properties of a master that its responses show.
#[derive(Debug)]
pub(super) struct ShardIdentity {
    /// A number that is unique among the shards of a cluster node, also at the same address.
    pub(super) number: u64,
    pub(super) name: Arc<str>,
    /// The history ID of the cluster.
    identity: Arc<str>,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    /// All members of the cluster, by the newest map.
    members: Arc<BTreeSet<Arc<str>>>,
    /// The last identity of the master, and the cluster's identity derived from it.
    last: Option<(Arc<Identity>, Arc<Identity>)>,
}

impl Shard {
    /// Creates a shard for a master of the map. Connects to nothing yet.
    pub(super) fn new(
        inner: &Inner,
        number: u64,
        address: Address,
        master: &Master,
        (identity, members): (&Arc<str>, &Arc<BTreeSet<Arc<str>>>),
    ) -> Shard {
        let (home, settings) = (master.home(), Shard::settings(inner, master));
        let identity = ShardIdentity {
            number,
            name: address.to_string().into(),
            identity: Arc::clone(identity),
            seen: Mutex::new(Seen { members: Arc::clone(members), last: None }),
        };
        let has_gate = settings.gate.is_some();
        Shard {
            has_gate,
            node: RedisNode::with(address.clone(), settings),
            address,
            identity: Arc::new(identity),
            home,
        }
    }

    /// Returns the settings for connections to this master.
    pub(super) fn settings(inner: &Inner, master: &Master) -> Settings {
        let mut settings = inner.settings.clone();
        settings.membership = Membership::OfCluster;
        // In a slot of its own, because it cannot store other keys. A prefix with a hash tag puts all locks into one
        // slot: no other master needs a gate.
        settings.gate = settings.gate.and_then(|gate| {
            let own = gate_in(&settings.key_prefix, master.home()).map(Arc::from);
            let served =
                |gate: &Arc<str>| master.serves(Slot::of(gate)) || !keeps_companions(&settings.key_prefix);
            own.or_else(|| Some(gate).filter(served))
        });
        settings
    }

    /// Subscribes to its hints and its state.
    pub(super) fn connect(&self, inner: &Arc<Inner>) {
        let number = self.identity.number;
        inner.fan_in.join(number);
        if inner.fan_in.any() {
            self.node.listen(Arc::new(PushSource { fan_in: Arc::downgrade(&inner.fan_in), number }));
        }
        self.node.observe(Arc::new(ShardListener { inner: Arc::downgrade(inner), number }));
    }

    /// Returns the history ID of the cluster.
    pub(super) fn identity(&self) -> Arc<str> {
        Arc::clone(&self.identity.identity)
    }

    /// Returns whether the shard still fits a master at this address.
    pub(super) fn suits(&self, inner: &Inner, address: &Address, master: &Master, identity: &str) -> bool {
        let gate = Shard::settings(inner, master).gate.is_some();
        self.address.same_server(address)
            && master.serves(self.home)
            && gate == self.has_gate
            && *self.identity.identity == *identity
    }
}

impl ShardIdentity {
    /// Returns the identity of the cluster, as old as the process that answered.
    ///
    /// All masters have the ID of the cluster and list its members: two nodes with a member in common are one
    /// failure domain and one vote, whichever of their masters answers.
    pub(super) fn of_cluster(&self, theirs: &Arc<Identity>) -> Arc<Identity> {
        let mut known = self.seen.lock();
        match &known.last {
            Some((seen, ours)) if Arc::ptr_eq(seen, theirs) => Arc::clone(ours),
            Some(_) | None => {
                let ours = Identity::new(&*self.identity, theirs.seen, theirs.age);
                let ours = Arc::new(ours.with_members(Arc::clone(&known.members)));
                known.last = Some((Arc::clone(theirs), Arc::clone(&ours)));
                ours
            }
        }
    }

    /// Sets the members of the cluster.
    pub(super) fn set_members(&self, members: &Arc<BTreeSet<Arc<str>>>) {
        *self.seen.lock() = Seen { members: Arc::clone(members), last: None };
    }
}

/// Returns the history ID of a cluster: it is named after its first member, and keeps the name as long as
/// each map has a member in common with the one before it.
pub(super) fn identity_in(map: &Map) -> Arc<str> {
    format!("cluster-{}", map.members.first().map_or("", |member| &**member)).into()
}

/// Reports the state of one master to its cluster.
#[derive(Debug)]
struct ShardListener {
    inner: Weak<Inner>,
    number: u64,
}

impl StatusListener for ShardListener {
    fn on_status(&self, contact: ConnectionState) {
        let Some(inner) = self.inner.upgrade() else { return };
        let doubtful = !matches!(contact, ConnectionState::Connected(_));
        inner.router.lock().set_state(self.number, contact);
        if doubtful {
            inner.map_outdated.notify_one();
        }
        inner.notify();
    }
}
