//! The task of a cluster's node: it requests the slot map when it may be outdated, and keeps the shards.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use redis::{Pipeline, Value};
use tracing::{debug, info};

use super::Inner;
use super::shard::{Shard, identity_in};
use super::slot_map::{Map, Master};
use crate::address::{Address, Endpoint};
use crate::node::{Node, NodeError, NodeErrorKind};
use crate::redis::connection::{Connection, text};
use crate::redis::error::{CLUSTER_NODES, Peer, SentCommand, explain, unconnected, unexpected};
use crate::redis::handshake::Connector;
use crate::redis::server_error::ServerError;
use crate::runtime::within;
use quorlock_protocol::{Backoff, Moment};

/// The longest time between two requests for the map. A map is valid for three seconds: see `SENTINELS_WORD`.
const REFRESH: Duration = Duration::from_secs(1);
/// The shortest time between two requests for the map: many redirected requests cause one request for it.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The longest backoff while the cluster is unhealthy: a failover is noticed within a second.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Another member is asked as well after this time without an answer.
const NEXT_MEMBER: Duration = Duration::from_millis(100);

/// The most masters of a cluster. Each takes a connection, and a member may report as many as it likes.
const MOST_MASTERS: usize = 200;

/// Keeps the map and the shards up to date until it is dropped.
pub(super) async fn keep(inner: Arc<Inner>) {
    let (clock, entropy) = (&*inner.settings.clock, &*inner.settings.entropy);
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    let mut source = None;
    for turn in 0_usize.. {
        let looked = clock.now();
        for shard in inner.shards() {
            // Its task may have ended with another runtime, or its runtime may not be driven.
            drop(shard.node.ready());
        }
        match request_map(&inner, &mut source, turn).await {
            Ok(map) => adopt(&inner, map, looked).await,
            Err(error) => {
                debug!(node = %inner.name, error = format_args!("{error:#}"), "no slot map of the cluster");
                inner.router.lock().fail(error);
            }
        }
        open(&inner);
        inner.contacted.lock().cancel();
        inner.notify();
        let fine = inner.router.lock().is_fine();
        if fine {
            backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
            let unread = (looked + REFRESH).since(clock.now());
            within(clock, unread, inner.map_outdated.notified()).await;
            clock.sleep_until(looked + FIRST_WAIT).await;
        } else {
            // Another member may have a newer map.
            source = None;
            clock.sleep_until(clock.now() + backoff.next(entropy.next_u64())).await;
        }
    }
}

/// The member that reported the map, and the connection to it, which stays open.
pub(super) struct MapSource {
    member: Address,
    connection: Connection,
}

/// Requests the map: from the member that reported it last, or else from the other members, starting with
/// another one at each `turn`. A member with an older map than the known one was cut off from the others, and
/// is believed only if no member has a newer one.
pub(super) async fn request_map(
    inner: &Inner,
    source: &mut Option<MapSource>,
    turn: usize,
) -> Result<Map, NodeError> {
    let known = inner.router.lock().map.clone();
    if let Some(last) = source.take()
        && let Ok((map, last)) = read_map(inner, last).await
        && !is_stale(&map, known.as_deref())
    {
        *source = Some(last);
        return Ok(map);
    }
    let mut members = candidates(inner, known.as_deref());
    let count = members.len().max(1);
    members.rotate_left(turn % count);
    let mut members = members.into_iter();
    let clock = &*inner.settings.clock;
    let mut asked: FuturesUnordered<_> =
        members.next().map(|member| ask(inner, member)).into_iter().collect();
    let (mut failure, mut behind) = (NodeError::NotAsked, Vec::new());
    while !asked.is_empty() {
        if let Some(Some(answer)) = within(clock, NEXT_MEMBER, asked.next()).await {
            match answer {
                Ok((map, _)) if is_stale(&map, known.as_deref()) => {
                    failure = unexpected("its map of the cluster is older than the known one");
                    behind.push(map);
                }
                Ok((map, identity_of)) => {
                    *source = Some(identity_of);
                    return Ok(map);
                }
                Err(error) => failure = error,
            }
        }
        asked.extend(members.next().map(|member| ask(inner, member)));
    }
    if behind.len() * 2 > count {
        return behind.into_iter().max_by_key(|map| map.epoch).ok_or(failure);
    }
    Err(failure)
}

/// Returns whether the map is older than the known one: a member that was cut off still reports what it knew
/// then.
fn is_stale(map: &Map, known: Option<&Map>) -> bool {
    known.is_some_and(|known| map.epoch < known.epoch && !map.is_of_another_cluster_than(known))
}

/// Returns the members to ask: the known ones, and those in the address.
fn candidates(inner: &Inner, map: Option<&Map>) -> Vec<Address> {
    let seeds = inner.address.seeds();
    let mut all: Vec<Address> = Vec::new();
    let known = map.iter().flat_map(|map| &map.places).map(|place| inner.member_at(place));
    for member in known.chain(seeds.iter().cloned()) {
        if !all.iter().any(|other| other.same_server(&member)) {
            all.push(member);
        }
    }
    all
}

/// Requests the map from one member, over a new connection.
async fn ask(inner: &Inner, member: Address) -> Result<(Map, MapSource), NodeError> {
    let mut connector = Connector::new(member.clone(), inner.settings.clone(), Arc::default());
    let (connection, _) = connector.greet_in_time().await?;
    read_map(inner, MapSource { member, connection }).await
}

/// Requests the map over the connection.
async fn read_map(inner: &Inner, mut source: MapSource) -> Result<(Map, MapSource), NodeError> {
    // A member that hangs must leave time to ask another one while the present map is valid.
    let (clock, limit) = (&*inner.settings.clock, inner.settings.connect_timeout.step().min(REFRESH));
    let mut request = Pipeline::with_capacity(1);
    request.cmd("CLUSTER").arg("NODES");
    let answers = within(clock, limit, source.connection.exchange(&request)).await;
    let answers = answers.ok_or(NodeError::Unanswered { waited: limit })?.map_err(unconnected)?;
    let table = match answers.into_iter().next() {
        Some(Value::ServerError(error)) => return Err(refusal(ServerError::read(&error), &source.member)),
        answer => answer.and_then(text).ok_or_else(no_map)?,
    };
    let mut map = map_in(&table)?;
    if let Endpoint::Tcp { host, .. } | Endpoint::Tls { host, .. } = source.member.endpoint() {
        map.call_nameless(host);
    }
    Ok((map, source))
}

/// Returns the map in the table of a member.
fn map_in(table: &str) -> Result<Map, NodeError> {
    let map = Map::read(table).ok_or_else(no_map)?;
    let masters = map.masters.len();
    if masters > MOST_MASTERS {
        return Err(unexpected(&format!(
            "it reports {masters} masters, and a cluster as a node may have {MOST_MASTERS}; use a smaller one"
        )));
    }
    Ok(map)
}

fn refusal(error: ServerError, member: &Address) -> NodeError {
    let user = member.user().unwrap_or("default");
    let error = explain(error, SentCommand { command: CLUSTER_NODES, key: "", user, peer: Peer::Server });
    if let NodeError::Failed { kind: kind @ NodeErrorKind::WrongServer, reason } = error {
        return NodeError::Unfit { kind, reason };
    }
    error
}

fn no_map() -> NodeError {
    unexpected(
        "it reports no master that serves slots; create the cluster first, with `redis-cli --cluster create`",
    )
}

/// Creates shards for the masters of this map, and drops the others.
async fn adopt(inner: &Arc<Inner>, map: Map, looked: Moment) {
    let (known, before) = {
        let router = inner.router.lock();
        (router.map.clone(), router.shards.clone())
    };
    if known.as_deref() == Some(&map) {
        return inner.router.lock().confirm(looked);
    }
    let identity = match (&known, before.first()) {
        (Some(known), Some(shard)) if !map.is_of_another_cluster_than(known) => shard.identity(),
        _ => identity_in(&map),
    };
    let mut fresh = Vec::new();
    let shard_of = |master: &Master| {
        let address = inner.member_at(&master.place);
        let kept = before.iter().find(|shard| shard.suits(inner, &address, master, &identity)).cloned();
        if let Some(kept) = &kept {
            kept.identity.set_members(&map.members);
        }
        kept.unwrap_or_else(|| {
            let number = inner.shard_count.fetch_add(1, Ordering::Relaxed) + 1;
            let shard = Arc::new(Shard::new(inner, number, address, master, (&identity, &map.members)));
            fresh.push(Arc::clone(&shard));
            shard
        })
    };
    let shards: Vec<_> = map.masters.iter().map(shard_of).collect();
    let (masters, uncovered) = (shards.len(), map.uncovered());
    info!(node = %inner.name, masters, uncovered, epoch = map.epoch, "the slot map of the cluster has changed");
    let gone = inner.router.lock().adopt(map, shards, looked);
    for shard in &gone {
        inner.fan_in.leave(shard.identity.number);
    }
    for shard in &fresh {
        shard.connect(inner);
    }
    // Dropped while the router is not locked.
    drop((gone, before));
    // Requests wait for the connections, and the first round waits for this.
    let contacts = fresh.iter().map(|shard| shard.node.ready());
    let before = inner.contacted.lock().is_cancelled();
    if before {
        drop(contacts.collect::<Vec<_>>());
    } else {
        open(inner);
        join_all(contacts).await;
    }
}

/// Forwards the requests that were kept before there was a map, in their order.
fn open(inner: &Arc<Inner>) {
    loop {
        let kept = inner.router.lock().open();
        if kept.is_empty() {
            return;
        }
        for (request, reply) in kept {
            inner.forward(request, reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::*;
    use crate::node::Identity;
    use crate::redis::cluster::{ClusterAddress, ClusterNode};
    use crate::redis::tests::settings;

    /// Gives a node this map, and returns the cluster's identity in its responses.
    async fn identity_of(node: &ClusterNode, members: &[&str]) -> Arc<Identity> {
        // No server listens at port 1: only the identity matters.
        let row = |(place, id): (usize, &&str)| match place {
            0 => format!("{id} 127.0.0.1:1@1 master - 0 0 1 connected 0-16383"),
            _ => format!("{id} 127.0.0.1:2@2 slave {} 0 0 1 connected", members[0]),
        };
        let table: Vec<_> = members.iter().enumerate().map(row).collect();
        adopt(&node.inner, Map::read(&table.join("\n")).unwrap(), Moment::ORIGIN).await;
        let server = Arc::new(Identity::new("a run", Moment::ORIGIN, Duration::ZERO));
        node.inner.shards()[0].identity.of_cluster(&server)
    }

    #[test]
    fn a_caller_that_waits_for_the_first_contact_does_not_wait_for_a_runtime_that_has_ended() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = ClusterAddress::parse(&format!("redis+cluster://{}", silent.local_addr().unwrap()));
        let node = ClusterNode::with(address.unwrap(), settings());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let here = runtime.enter();
        let mut waits = node.ready();
        assert!((&mut waits).now_or_never().is_none(), "no member has answered");
        drop(here);
        drop(runtime);
        assert!(waits.now_or_never().is_some());
    }

    #[test]
    fn a_map_of_too_many_masters_is_refused() {
        let table = |masters: u16| {
            let row = |n| format!("{n:040x} 127.0.0.1:{n}@1 master - 0 0 1 connected {n}\n");
            (1..=masters).map(row).collect::<String>()
        };
        assert!(map_in(&table(200)).is_ok());
        let error = map_in(&table(2_000)).unwrap_err();
        assert!(error.to_string().contains("2000 masters"), "{error}");
        assert!(!error.is_permanent(), "another member may report the right map");
    }

    fn node() -> ClusterNode {
        ClusterNode::with(ClusterAddress::parse("redis+cluster://127.0.0.1:1").unwrap(), settings())
    }

    #[tokio::test]
    async fn c7_nodes_of_one_cluster_agree_on_its_identity() {
        let (early, late, elsewhere) = (node(), node(), node());
        let known = identity_of(&early, &["b", "a"]).await;
        // The member that named the cluster is replaced, and only then the other node connects.
        let now = identity_of(&early, &["b", "c"]).await;
        assert_eq!(now.id, known.id, "its age is kept");
        let theirs = identity_of(&late, &["b", "c"]).await;
        assert_ne!(now.id, theirs.id, "they name it after different members");
        assert!(now.is_one_with(&theirs) && theirs.is_one_with(&now), "one vote");
        // The members change one by one until none of the first is left.
        for members in [["c", "d"], ["d", "e"]] {
            let (ours, theirs) = (identity_of(&early, &members).await, identity_of(&late, &members).await);
            assert!(ours.is_one_with(&theirs), "{members:?}");
            assert_eq!(ours.id, known.id);
        }
        let other = identity_of(&elsewhere, &["x", "y"]).await;
        assert!(!now.is_one_with(&other), "another cluster has another vote");
    }
}
