//! One master of a cluster.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Inner;
use super::push::PushSource;
use super::slot_map::{Map, Master};
use crate::address::Address;
use crate::node::{ConnectionState, Identity, Node, StatusListener};
use crate::redis::RedisNode;
use crate::redis::settings::{Membership, Settings};
use quorlock_protocol::Slot;

/// A master, and the ordinary node for a single server that asks it.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) node: RedisNode,
    pub(super) address: Address,
    pub(super) identity: Arc<ShardIdentity>,
    /// A slot of its own, for what is kept there of itself.
    home: Slot,
}

/// What answers show of the master that they came from.
#[derive(Debug)]
pub(super) struct ShardIdentity {
    /// Tells it from others at the same address.
    pub(super) line: u64,
    pub(super) name: Arc<str>,
    /// What the cluster is called as a process.
    identity: Arc<str>,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    /// All members of the cluster, by the newest map.
    members: Arc<BTreeSet<Arc<str>>>,
    /// The witness that was seen last, and what is made of it.
    last: Option<(Arc<Identity>, Arc<Identity>)>,
}

impl Shard {
    /// The master as it is in the map. Nobody is contacted yet.
    pub(super) fn new(
        inside: &Inner,
        line: u64,
        address: Address,
        master: &Master,
        (identity, members): (&Arc<str>, &Arc<BTreeSet<Arc<str>>>),
    ) -> Shard {
        let (home, settings) = (master.home(), Shard::settings(inside, master));
        let identity = ShardIdentity {
            line,
            name: address.to_string().into(),
            identity: Arc::clone(identity),
            seen: Mutex::new(Seen { members: Arc::clone(members), last: None }),
        };
        Shard {
            node: RedisNode::with(address.clone(), settings),
            address,
            identity: Arc::new(identity),
            home,
        }
    }

    /// What a connection to this master works with.
    pub(super) fn settings(inside: &Inner, master: &Master) -> Settings {
        let mut settings = inside.settings.clone();
        settings.membership = Membership::OfCluster;
        // In a slot of its own: nobody may keep anything elsewhere.
        settings.gate = settings.gate.map(|gate| {
            let rest = gate.strip_prefix("quorlock:gate:").unwrap_or(&gate);
            format!("quorlock:gate:{{{}}}:{rest}", master.home().tag()).into()
        });
        settings
    }

    /// Has it tell what happens there.
    pub(super) fn connect(&self, inside: &Arc<Inner>) {
        let line = self.identity.line;
        inside.fan_in.join(line);
        if inside.fan_in.any() {
            self.node.listen(Arc::new(PushSource { fan_in: Arc::downgrade(&inside.fan_in), line }));
        }
        self.node.observe(Arc::new(Lookout { inside: Arc::downgrade(inside), line }));
    }

    /// What its cluster is called.
    pub(super) fn identity(&self) -> Arc<str> {
        Arc::clone(&self.identity.identity)
    }

    /// Whether it is still right for a master at this address.
    pub(super) fn suits(&self, address: &Address, master: &Master, identity: &str) -> bool {
        self.address.same_server(address) && master.serves(self.home) && *self.identity.identity == *identity
    }
}

impl ShardIdentity {
    /// The witness of the cluster, as old as the process that answered.
    ///
    /// All masters have one name, which is that of the cluster, and name its members: two nodes that share
    /// one are one failure domain and one vote, whichever of its masters answers for which of them.
    pub(super) fn of_cluster(&self, theirs: &Arc<Identity>) -> Arc<Identity> {
        let mut known = self.seen();
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

    /// From now on answers for a cluster of these members.
    pub(super) fn stands_for(&self, members: &Arc<BTreeSet<Arc<str>>>) {
        *self.seen() = Seen { members: Arc::clone(members), last: None };
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a cluster is called as a process: after the first of its members, and it stays so for as
/// long as each map knows some of those that the one before it knew.
pub(super) fn identity_in(map: &Map) -> Arc<str> {
    format!("cluster-{}", map.members.first().map_or("", |member| &**member)).into()
}

/// Watches one master for its cluster.
#[derive(Debug)]
struct Lookout {
    inside: Weak<Inner>,
    line: u64,
}

impl StatusListener for Lookout {
    fn on_status(&self, contact: ConnectionState) {
        let Some(inside) = self.inside.upgrade() else { return };
        let doubtful = !matches!(contact, ConnectionState::Connected(_));
        inside.router().stands(self.line, contact);
        if doubtful {
            inside.doubt.notify_one();
        }
        inside.tell();
    }
}
