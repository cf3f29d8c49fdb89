//! Routes requests to the master that serves their key.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::shard::Shard;
use super::slot_map::Map;
use crate::doctor::rules::on_sight;
use crate::node::facts::Facts;
use crate::node::{ConnectionState, Identity, Node, NodeError, Request, Responder, SharedRequest};
use crate::redis::admission::{MAX_REQUESTS, must_last};
use crate::redis::error::unserved;
use quorlock_protocol::{Moment, SENTINELS_WORD, Slot};

/// How many unreachable masters a message names.
const SHOWN_MASTERS: usize = 3;

/// The slot map, its masters, and the unanswered requests.
#[derive(Debug, Default)]
pub(super) struct SlotRouter {
    /// Whether requests are forwarded. Until a member was asked for the map, they are kept.
    opened: bool,
    kept: Vec<(SharedRequest, Responder)>,
    pub(super) map: Option<Arc<Map>>,
    /// Why there is no map.
    failure: Option<NodeError>,
    /// One shard for each master of the map, in the same order.
    pub(super) shards: Vec<Arc<Shard>>,
    /// The index in `shards` of the master of each slot.
    owners: Vec<Option<usize>>,
    /// The number of unanswered requests for each slot, by the shard that they were sent to.
    unanswered: HashMap<Slot, BTreeMap<u64, u32>>,
    /// When a member was last asked for the map and answered.
    confirmed: Option<Moment>,
    /// The state of each shard's connection.
    contacts: BTreeMap<u64, ConnectionState>,
}

/// The destination of a request.
pub(super) enum Routed {
    To {
        shard: Arc<Shard>,
        request: SharedRequest,
        reply: Responder,
    },
    Nowhere {
        error: NodeError,
        reply: Responder,
    },
    /// Kept until there is a map.
    Kept,
}

impl SlotRouter {
    /// Routes a request, keeps it, or returns why it cannot be sent.
    pub(super) fn route(
        &mut self,
        now: Moment,
        slot: Slot,
        request: SharedRequest,
        reply: Responder,
    ) -> Routed {
        if !self.opened {
            if self.kept.len() >= MAX_REQUESTS {
                let error = NodeError::Overloaded { waiting: self.kept.len() };
                return Routed::Nowhere { error, reply };
            }
            self.kept.push((request, reply));
            return Routed::Kept;
        }
        debug_assert!(self.kept.is_empty(), "a request overtakes those that were kept before it");
        self.send(now, slot, request, reply)
    }

    /// Routes a request that was kept.
    pub(super) fn send(
        &mut self,
        now: Moment,
        slot: Slot,
        request: SharedRequest,
        reply: Responder,
    ) -> Routed {
        match self.owner(now, slot, &request) {
            Ok(shard) => Routed::To { shard, request, reply },
            Err(error) => Routed::Nowhere { error, reply },
        }
    }

    fn owner(&mut self, now: Moment, slot: Slot, request: &Request) -> Result<Arc<Shard>, NodeError> {
        let place = self.owners.get(usize::from(slot.number())).copied().flatten();
        let Some(shard) = place.and_then(|place| self.shards.get(place)) else {
            return Err(self.failure.clone().unwrap_or_else(|| unserved(slot)));
        };
        // A master that was stopped while another took its place still answers for a moment.
        if must_last(request) && self.confirmed.is_none_or(|confirmed| now >= confirmed + SENTINELS_WORD) {
            let good = humantime::format_duration(SENTINELS_WORD);
            let reason = format!("no member of the cluster has confirmed the slot map within {good}");
            return Err(NodeError::Unreachable { reason: reason.into() });
        }
        // Sent to another shard, a release might overtake the request that it takes back. Then it is unknown
        // whether the key was released, and the caller leaves a tombstone.
        let elsewhere =
            |by_shard: &BTreeMap<u64, u32>| by_shard.keys().any(|number| *number != shard.identity.number);
        if request.relies_on_order() && self.unanswered.get(&slot).is_some_and(elsewhere) {
            let reason = "its slot has moved, and an earlier request to the master that had it is unanswered";
            return Err(NodeError::Disconnected { reason: reason.into() });
        }
        let by_shard = self.unanswered.entry(slot).or_default();
        *by_shard.entry(shard.identity.number).or_default() += 1;
        Ok(Arc::clone(shard))
    }

    /// Records that a request for this slot was answered by this shard.
    pub(super) fn settle(&mut self, slot: Slot, number: u64) {
        debug_assert!(
            self.unanswered.get(&slot).is_some_and(|by_shard| by_shard.contains_key(&number)),
            "each request is counted until its one response (rule C-2)"
        );
        let Some(by_shard) = self.unanswered.get_mut(&slot) else { return };
        if let Some(count) = by_shard.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                by_shard.remove(&number);
            }
        }
        if by_shard.is_empty() {
            self.unanswered.remove(&slot);
        }
    }

    /// Keeps requests until the router is opened again.
    pub(super) fn shut(&mut self) {
        self.opened = false;
    }

    /// Takes the requests that were kept before there was a map. Opens the router when none are left.
    pub(super) fn open(&mut self) -> Vec<(SharedRequest, Responder)> {
        let kept = std::mem::take(&mut self.kept);
        self.opened |= kept.is_empty();
        kept
    }

    /// Routes by this map from now on, and returns the shards of masters that no longer serve slots.
    pub(super) fn adopt(&mut self, map: Map, shards: Vec<Arc<Shard>>, looked: Moment) -> Vec<Arc<Shard>> {
        debug_assert_eq!(map.masters.len(), shards.len(), "each master of the map has one shard");
        self.confirm(looked);
        let mut owners = vec![None; usize::from(Slot::COUNT)];
        for (place, master) in map.masters.iter().enumerate() {
            for (first, last) in &master.slots {
                if let Some(slots) = owners.get_mut(usize::from(*first)..=usize::from(*last)) {
                    slots.fill(Some(place));
                }
            }
        }
        self.owners = owners;
        self.map = Some(Arc::new(map));
        self.failure = None;
        let before = std::mem::replace(&mut self.shards, shards);
        let gone = |shard: &Arc<Shard>| !self.shards.iter().any(|kept| Arc::ptr_eq(kept, shard));
        let gone: Vec<_> = before.into_iter().filter(gone).collect();
        for shard in &gone {
            self.contacts.remove(&shard.identity.number);
        }
        gone
    }

    /// Records that a member that was asked at this moment has confirmed the map.
    pub(super) fn confirm(&mut self, looked: Moment) {
        self.confirmed = Some(looked);
    }

    /// Records that no member could be asked for the map.
    pub(super) fn fail(&mut self, failure: NodeError) {
        if self.map.is_none() {
            self.failure = Some(failure);
        }
    }

    /// Records the state of a shard's connection.
    pub(super) fn set_state(&mut self, number: u64, contact: ConnectionState) {
        self.contacts.insert(number, contact);
    }

    /// Returns whether the cluster is healthy, as far as is known.
    pub(super) fn is_fine(&self) -> bool {
        matches!(self.contact(), Some(ConnectionState::Connected(_)))
    }

    /// Returns the state of the cluster, once it is known.
    pub(super) fn contact(&self) -> Option<ConnectionState> {
        let Some(map) = &self.map else { return self.failure.clone().map(ConnectionState::Lost) };
        let mut youngest: Option<(&Shard, &Arc<Identity>)> = None;
        let (mut away, mut others) = (Vec::new(), 0);
        for (shard, master) in self.shards.iter().zip(&map.masters) {
            match self.contacts.get(&shard.identity.number)? {
                // The runtime has ended, or the node was dropped.
                ended @ ConnectionState::Ended(_) => return Some(ended.clone()),
                ConnectionState::Connected(identity) => {
                    let is_younger = |known: &Identity| {
                        let later = identity.seen.max(known.seen);
                        identity.age_at(later) < known.age_at(later)
                    };
                    if youngest.is_none_or(|(_, known)| is_younger(known)) {
                        youngest = Some((shard, identity));
                    }
                }
                ConnectionState::Partial(reason)
                | ConnectionState::Stalled(reason)
                | ConnectionState::Lost(reason)
                    if away.len() < SHOWN_MASTERS =>
                {
                    let (name, share, all) = (&shard.identity.name, master.share(), Slot::COUNT);
                    away.push(format!("its master {name}, with {share} of {all} slots: {reason:#}"));
                }
                ConnectionState::Partial(_) | ConnectionState::Stalled(_) | ConnectionState::Lost(_) => {
                    others += 1;
                }
            }
        }
        if others > 0 {
            away.push(format!("{others} more of its masters"));
        }
        if let uncovered @ 1.. = map.uncovered() {
            away.push(format!("no master for {uncovered} of {} slots", Slot::COUNT));
        }
        let Some((shard, identity)) = youngest else {
            return Some(ConnectionState::Lost(NodeError::Unreachable { reason: away.join("; ").into() }));
        };
        Some(if away.is_empty() {
            ConnectionState::Connected(shard.identity.of_cluster(identity))
        } else {
            ConnectionState::Partial(NodeError::Unreachable { reason: away.join("; ").into() })
        })
    }

    /// Returns the facts of a master with a finding, or else of any.
    pub(super) fn facts(&self) -> Option<Arc<Facts>> {
        let mut all =
            self.shards.iter().filter_map(|shard| Some((&shard.identity.name, shard.node.facts()?)));
        let first = all.next()?;
        let (_, facts) = std::iter::once(first.clone())
            .chain(all)
            .find(|(name, facts)| !on_sight(name, facts).is_empty())
            .unwrap_or(first);
        Some(facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeErrorKind;
    use crate::redis::cluster::{ClusterAddress, ClusterNode};
    use crate::redis::tests::{Log, any_claim, plain, release, settings};
    use std::time::Duration;

    const NOW: Moment = Moment::ORIGIN;

    fn reply() -> Responder {
        Responder::new(Arc::new(Log::default()), 0)
    }

    /// Creates a router with two masters, the one at port `first` with the first half of the slots.
    fn router(cluster: &ClusterNode, first: u16, second: u16, before: Option<SlotRouter>) -> SlotRouter {
        let table = format!(
            "a :{first}@1 master - 0 0 1 connected 0-8191\nb :{second}@1 master - 0 0 1 connected 8192-16383"
        );
        let map = Map::read(&table).unwrap();
        let mut router = before.unwrap_or_default();
        let seed = &cluster.inner.address.seeds()[0];
        let shards = map.masters.iter().map(|master| {
            let address = seed.at_host("127.0.0.1", master.place.port);
            let named = (&"a".into(), &map.members);
            Arc::new(Shard::new(&cluster.inner, master.place.port.into(), address, master, named))
        });
        let shards = shards.collect();
        drop(router.adopt(map, shards, NOW));
        assert!(router.open().is_empty());
        router
    }

    fn cluster() -> ClusterNode {
        ClusterNode::with(ClusterAddress::parse("redis+cluster://127.0.0.1:1").unwrap(), settings())
    }

    fn number_of(routed: Routed) -> Result<u64, NodeError> {
        match routed {
            Routed::To { shard, .. } => Ok(shard.identity.number),
            Routed::Nowhere { error, .. } => Err(error),
            Routed::Kept => panic!("the router is open"),
        }
    }

    #[test]
    fn i5_a_release_on_another_connection_overtakes_nothing() {
        let (claim, slot) = (any_claim(), Slot::of("orders/42"));
        let (acquire, release) = (|| plain(&claim), || release(&claim));
        let cancel = |linger| Request::Cancel { claim: Arc::clone(&claim), linger };
        let cluster = cluster();
        let mut router = router(&cluster, 1, 2, None);
        let former = number_of(router.route(NOW, slot, acquire().into(), reply())).unwrap();
        assert_eq!(
            number_of(router.route(NOW, slot, release().into(), reply())),
            Ok(former),
            "after it on the same connection"
        );
        router.settle(slot, former);

        let mut router = self::router(&cluster, 2, 1, Some(router));
        for request in [release(), cancel(Duration::ZERO)] {
            let error = number_of(router.route(NOW, slot, request.into(), reply())).unwrap_err();
            assert!(error.may_have_acted(), "{error}");
        }
        let number =
            number_of(router.route(NOW, slot, cancel(Duration::from_secs(1)).into(), reply())).unwrap();
        assert_ne!(number, former, "a tombstone stops late requests on any shard");
        let other = number_of(router.route(NOW, Slot::of("{r1}"), release().into(), reply()));
        assert!(other.is_ok(), "another slot");
        router.settle(slot, former);
        assert_eq!(
            number_of(router.route(NOW, slot, release().into(), reply())),
            Ok(number),
            "no request is left to overtake"
        );
    }

    #[test]
    fn c6_votes_need_a_slot_map_confirmed_by_a_member() {
        let acquire = || plain(&any_claim());
        let (cluster, slot) = (cluster(), Slot::of("orders/42"));
        let mut router = router(&cluster, 1, 2, None);
        let last = NOW + Duration::from_millis(2_999);
        assert!(number_of(router.route(last, slot, acquire().into(), reply())).is_ok());
        let error =
            number_of(router.route(NOW + SENTINELS_WORD, slot, acquire().into(), reply())).unwrap_err();
        assert!(error.to_string().contains("slot map") && !error.may_have_acted(), "{error}");
        let release = release(&any_claim());
        assert!(
            number_of(router.route(NOW + SENTINELS_WORD, slot, release.into(), reply())).is_ok(),
            "it is to be released"
        );
        router.confirm(last);
        assert!(number_of(router.route(NOW + SENTINELS_WORD, slot, acquire().into(), reply())).is_ok());
    }

    #[test]
    fn requests_before_the_map_are_kept_and_bounded() {
        let (slot, mut router) = (Slot::of("r"), SlotRouter::default());
        let inspect = || Request::inspect("r");
        for _ in 0..MAX_REQUESTS {
            assert!(matches!(router.route(NOW, slot, inspect().into(), reply()), Routed::Kept));
        }
        let error = number_of(router.route(NOW, slot, inspect().into(), reply())).unwrap_err();
        assert!(matches!(error, NodeError::Overloaded { .. }), "{error}");
        router
            .fail(NodeError::Unfit { kind: NodeErrorKind::WrongServer, reason: "no server is there".into() });
        for (request, reply) in router.open() {
            let error = number_of(router.send(NOW, slot, request, reply)).unwrap_err();
            assert_eq!(error.to_string(), "no server is there");
        }
        assert!(router.open().is_empty());
        assert!(
            number_of(router.route(NOW, slot, inspect().into(), reply())).is_err(),
            "it is open, and refuses immediately"
        );
    }
}
