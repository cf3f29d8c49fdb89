//! The health check of a cluster: that of each of its masters, and of how the slots are distributed.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::TryStreamExt as _;
use futures::future::join_all;
use futures::stream::{iter, once};

use super::Inner;
use super::shard::Shard;
use super::slot_map::{Map, Master};
use super::topology::request_map;
use crate::doctor::rules::age;
use crate::node::facts::{ConnectFailure, Facts, Location, Role, ShardFacts};
use crate::node::{KeyPages, ListedKeys, NodeError};
use crate::redis::inspect::examine as examine_server;
use crate::redis::list;
use quorlock_protocol::Slot;

/// Examines every master of the cluster. `key` is free; each master is probed with a key derived from it.
pub(super) async fn examine(inner: Arc<Inner>, key: Arc<str>) -> Facts {
    let map = match request_map(&inner, &mut None, 0).await {
        Ok(map) => map,
        Err(error) => {
            let failure = Some(ConnectFailure::new(error));
            return Facts { failure, role: Some(Role::Cluster), ..Facts::default() };
        }
    };
    let masters = map.masters.iter().filter_map(|master| Some((master, probe(&key, master)?)));
    let shards = join_all(masters.map(|(master, key)| shard(&inner, master, key))).await;
    summed_up(&map, shards)
}

async fn shard(inner: &Inner, master: &Master, key: Arc<str>) -> ShardFacts {
    let address = inner.member_at(&master.place);
    let name = Arc::from(address.to_string());
    let facts = examine_server(address, Shard::settings(inner, master), key).await;
    ShardFacts::new(name, master.share(), master.replicas, facts)
}

/// Lists the keys of all masters, one master after the other.
pub(super) fn keys(inner: Arc<Inner>, prefix: Arc<str>, which: ListedKeys) -> KeyPages {
    let of_masters = async move {
        let map = request_map(&inner, &mut None, 0).await?;
        let masters = map.masters.iter().map(|master| {
            let address = inner.member_at(&master.place);
            list::keys(address, Shard::settings(&inner, master), Arc::clone(&prefix), which).pages
        });
        Ok::<_, NodeError>(iter(masters.collect::<Vec<_>>()).flatten())
    };
    KeyPages { pages: Box::pin(once(of_masters).try_flatten()) }
}

/// Returns a key with the prefix `key` that this master serves. `None` if `key` has a hash tag, which puts
/// all locks on another master.
fn probe(key: &str, master: &Master) -> Option<Arc<str>> {
    let own = format!("{key}{{{}}}", master.home().tag());
    if Slot::of(&own) == master.home() {
        return Some(own.into());
    }
    master.serves(Slot::of(key)).then(|| key.into())
}

/// Returns the facts of a cluster: those of its youngest master, and the worst of each kind.
fn summed_up(map: &Map, shards: Vec<ShardFacts>) -> Facts {
    let youngest = shards.iter().map(|shard| &shard.facts).min_by_key(|facts| age(facts));
    let mut facts = youngest.cloned().unwrap_or_default();
    let of_each = || shards.iter().map(|shard| &shard.facts);
    facts.role = Some(Role::Cluster);
    facts.identity = map.members.first().cloned();
    facts.replicas = Some(map.masters.iter().map(|master| master.replicas).sum());
    facts.failure = if of_each().all(|facts| facts.failure.is_some()) { facts.failure } else { None };
    facts.round_trips = of_each()
        .map(|facts| &facts.round_trips)
        .max_by_key(|trips| trips.iter().max().copied())
        .cloned()
        .unwrap_or_default();
    facts.refusals = of_each()
        .find(|facts| !facts.refusals.is_empty())
        .map(|facts| facts.refusals.clone())
        .unwrap_or_default();
    facts.lock = of_each().filter_map(|facts| facts.lock.clone()).max_by_key(Result::is_err);
    let places: Vec<_> = of_each().filter_map(|facts| facts.place.as_ref()).collect();
    facts.place = places.first().map(|first| {
        let addresses = places.iter().flat_map(|place| &place.addresses).copied().collect();
        Location::new(first.host.clone(), addresses, first.encrypted)
    });
    facts.unserved = Some(map.uncovered());
    facts.shards = shards;
    facts
}
