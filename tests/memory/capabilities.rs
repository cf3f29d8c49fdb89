//! Nodes that lack capabilities, keep no order, have their own limits, or count validity from an
//! earlier time.

use std::sync::atomic::{AtomicBool, Ordering as Memory};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::{
    AcquireError, ConfigError, Coordinator, DowngradeError, Lock, RetainError, Wait,
    doctor::Check,
    node::{Capabilities, Capability, Node, NodeLimits, Order, Response, ask},
    runtime::{Clock, Entropy},
};
use quorlock_testkit::{MemoryNode, SeededEntropy, WrappedNode};

use crate::common::{Bench, LIMIT, MS, TTL, VALIDITY, bench, client_of, passing};

fn lock_of(client: &Coordinator) -> Lock {
    client.lock("r").ttl(TTL).wait(Wait::Never)
}

/// A client of nodes of which the first has these capabilities.
fn with_one_able_to(bench: &Bench, capabilities: Capabilities) -> Coordinator {
    let first = bench.nodes[0].clone().with_capabilities(capabilities);
    let nodes = std::iter::once(first).chain(bench.nodes[1..].iter().cloned());
    client_of(bench, nodes)
}

async fn refusal<K>(lock: Lock<K>) -> (Arc<str>, Capability) {
    let asked = lock.acquire().await.unwrap_err();
    assert_eq!(asked, AcquireError::Config(lock.validate().unwrap_err()), "before any request");
    let AcquireError::Config(ConfigError::Unsupported { node, capability }) = asked else {
        panic!("{asked}")
    };
    (node, capability)
}

#[tokio::test(start_paused = true)]
async fn an_operation_one_node_lacks_is_refused_by_name() {
    let bench = bench(3);
    let client = with_one_able_to(&bench, Capabilities::default().in_order(Order::PerKey));
    assert_eq!(refusal(client.lock("r").shared()).await, ("node-1".into(), Capability::Shared));
    assert_eq!(refusal(client.lock_all(["r", "s"])).await, ("node-1".into(), Capability::Several));
    let refused = client.lock("r").validate_retention(TTL).unwrap_err();
    assert_eq!(refused, ConfigError::Unsupported { node: "node-1".into(), capability: Capability::Transfer });
    let cure =
        "leave out --at-least and --once-per (in a program `retain` and `every`), or use nodes that do";
    assert!(refused.to_string().ends_with(cure), "{refused}");
    assert!(client.semaphore("s", 2).validate_retention(TTL).is_err());
    assert_eq!(bench.nodes[1].requests().total(), 0);
    let lease = client.lock("r").acquire().await.unwrap();
    let error = lease.downgrade().await.unwrap_err();
    let DowngradeError::Unsupported { lease, .. } = error else { panic!("{error}") };
    let error = lease.retain(TTL, "").await.unwrap_err();
    assert!(matches!(&error, RetainError::Unsupported { reason, .. } if reason.contains("token")), "{error}");
    bench.pass(MS).await;
    assert_eq!(bench.keys(), 0, "it was released");
}

#[tokio::test(start_paused = true)]
async fn without_transfer_a_handoff_is_a_release_and_an_acquire() {
    for capabilities in [Capabilities::all(), Capabilities::all().without(Capability::Transfer)] {
        let bench = bench(3);
        let client = with_one_able_to(&bench, capabilities);
        let lock = client.lock("r").wait(Wait::Forever);
        let first = lock.acquire().await.unwrap();
        let waits = passing(lock.clone());
        bench.pass(MS).await;
        first.release().await.unwrap();
        waits.await.unwrap().unwrap();
        let transfers = bench.nodes.iter().any(|node| node.requests().transfer > 0);
        assert_eq!(transfers, capabilities.has(Capability::Transfer));
    }
}

/// Runs each request after its own delay, as if over unordered connections.
fn scrambled(bench: &Bench, entropy: &Arc<SeededEntropy>, order: Order) -> Vec<WrappedNode> {
    let scrambled = |node: &MemoryNode| {
        let (clock, entropy) = (bench.clock.clone(), entropy.clone());
        WrappedNode::new(node.clone()).capabilities(node.capabilities().in_order(order)).on_request(
            move |request, responder, inner| {
                let way = MS * u32::try_from(entropy.next_u64() % 20).unwrap();
                let (arrival, inner) = (clock.sleep_until(clock.now() + way), inner.clone());
                tokio::spawn(async move {
                    arrival.await;
                    // It is on its way, whether it is still wanted or not.
                    responder.send(ask(&inner, request).await);
                });
            },
        )
    };
    bench.nodes.iter().map(scrambled).collect()
}

/// Counts the keys left by clients that acquire, cancel half-way and release, over such nodes.
async fn left_by_clients(seed: u64, order: Order) -> usize {
    let bench = bench(5);
    let entropy = Arc::new(SeededEntropy::new(seed));
    let nodes = scrambled(&bench, &entropy, order);
    let client = client_of(&bench, nodes);
    for _ in 0..100 {
        let patience = MS * u32::try_from(entropy.next_u64() % 40).unwrap();
        let lock = lock_of(&client);
        tokio::select! {
            lease = lock.acquire() => drop(lease),
            () = bench.clock.sleep_until(bench.clock.now() + patience) => {}
        }
    }
    bench.pass(TTL / 10).await;
    bench.keys()
}

#[tokio::test(start_paused = true)]
async fn i5_unordered_nodes_are_asked_in_order_and_keep_no_key() {
    for seed in 1..=5 {
        assert_eq!(left_by_clients(seed, Order::Unordered).await, 0, "seed {seed}");
    }
    let mut left = 0;
    for seed in 1..=5 {
        left += left_by_clients(seed, Order::PerKey).await;
    }
    assert!(
        left > 0,
        "an unordered node that claims to be ordered must leave keys, or the test proves nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn two_clients_never_hold_a_lock_of_unordered_nodes() {
    let bench = bench(3);
    let (held, entropy) = (Arc::new(AtomicBool::default()), Arc::new(SeededEntropy::new(7)));
    let clients = (0..4).map(|_| {
        let nodes = scrambled(&bench, &entropy, Order::Unordered);
        let client = client_of(&bench, nodes);
        let held = held.clone();
        tokio::spawn(async move {
            for _ in 0..20 {
                let lease = client.lock("r").wait(Wait::Forever).acquire().await.unwrap();
                assert!(!held.swap(true, Memory::SeqCst));
                tokio::task::yield_now().await;
                assert!(held.swap(false, Memory::SeqCst));
                lease.release().await.unwrap();
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
}

/// A node that has its own limits, once they are set.
#[derive(Clone, Debug)]
struct Limited(MemoryNode, Arc<Mutex<NodeLimits>>);

impl Node for Limited {
    quorlock::node::forward_node!(self => &self.0; name ask capabilities ready);

    fn limits(&self) -> NodeLimits {
        *self.1.lock().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_ttl_a_node_cannot_store_is_refused_by_its_name() {
    let bench = bench(3);
    let limits = Arc::<Mutex<NodeLimits>>::default();
    let nodes = bench.nodes.iter().map(|node| Limited(node.clone(), limits.clone()));
    let build =
        || Coordinator::builder().custom_nodes(nodes.clone()).clock(bench.clock.clone()).ttl(TTL).build();
    let client = build().unwrap();
    let short = client.lock("r").ttl(TTL / 10);
    drop(short.acquire().await.unwrap());
    let least = TTL / 2;
    *limits.lock().unwrap() = NodeLimits::default().least_ttl(least);
    let error = short.acquire().await.unwrap_err();
    let expected = ConfigError::TtlTooShortForNode { ttl: TTL / 10, least, node: "node-3".into() };
    assert_eq!(error, AcquireError::Config(expected), "{error}");
    let held = client.lock("r").ttl(least).acquire().await.unwrap();
    *limits.lock().unwrap() = NodeLimits::default().least_ttl(TTL * 2);
    held.renew().await.expect("it is held already");
    assert!(matches!(build(), Err(ConfigError::TtlTooShortForNode { .. })), "known when it is built");
}

/// As a program that confuses seconds and milliseconds may say.
#[tokio::test(start_paused = true)]
async fn a_minority_that_supports_long_ttls_only_refuses_no_lock_of_the_others() {
    for (count, lies, is_acquired) in [(3, 1, true), (5, 2, true), (3, 2, false)] {
        let bench = bench(count);
        let limits = |index| {
            if index < lies { NodeLimits::default().least_ttl(Duration::MAX) } else { NodeLimits::default() }
        };
        let nodes = bench.nodes.iter().enumerate();
        let nodes = nodes.map(|(index, node)| Limited(node.clone(), Arc::new(Mutex::new(limits(index)))));
        let build = Coordinator::builder().custom_nodes(nodes).clock(bench.clock.clone()).ttl(TTL).build();
        if !is_acquired {
            assert!(matches!(build, Err(ConfigError::TtlTooShortForNode { .. })), "{build:?}");
            continue;
        }
        let client = build.unwrap();
        let lease = client.lock("r").acquire().await.unwrap();
        assert_eq!(bench.keys(), count - lies, "they are not asked for their votes");
        // Also by repairs.
        bench.pass(TTL / 4).await;
        lease.renew().await.unwrap();
        bench.settle().await;
        assert_eq!(bench.keys(), count - lies, "nor does a renewal store the key there");
        lease.release().await.unwrap();
        bench.nodes[count - 1].disconnect();
        let error = client.lock("r").wait(Wait::Never).acquire().await.unwrap_err();
        assert!(error.to_string().contains("it keeps keys for at least"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_round_uses_the_timeout_of_a_node_unless_one_is_set() {
    let (slow, very) = (TTL / 20, TTL / 5);
    for (own, set, acquired) in [
        (None, Some(LIMIT), false),
        (Some(very), None, true),
        (Some(LIMIT), None, false),
        (Some(very), Some(LIMIT), false),
    ] {
        let bench = bench(3);
        let own = own.map_or_else(NodeLimits::default, |own| NodeLimits::default().time_limit(own));
        let nodes = bench.nodes.iter().map(|node| Limited(node.clone(), Arc::new(Mutex::new(own))));
        let mut builder = Coordinator::builder().custom_nodes(nodes).clock(bench.clock.clone()).ttl(TTL);
        if let Some(set) = set {
            builder = builder.node_timeout(set);
        }
        let client = builder.build().unwrap();
        bench.delay(slow, slow);
        let got = client.lock("r").wait(Wait::Never).acquire().await;
        assert_eq!(got.is_ok(), acquired, "{own:?} and {set:?}: {got:?}");
    }
}

/// A node whose locks live as long as a session, which heartbeats keep alive.
fn session(node: &MemoryNode, last_heartbeat: Arc<Mutex<Option<Moment>>>) -> WrappedNode {
    WrappedNode::new(node.clone()).on_request(move |request, responder, inner| {
        let last_heartbeat = last_heartbeat.clone();
        let responder = responder.map(move |answer| {
            let heartbeat = *last_heartbeat.lock().unwrap();
            answer.map(|answer| match heartbeat {
                Some(heartbeat) => answer.counting_from(heartbeat),
                None => answer,
            })
        });
        inner.ask(request, responder);
    })
}

/// A node that lies, and answers first.
#[tokio::test(start_paused = true)]
async fn i7_one_node_whose_grants_begin_too_early_ends_no_lease_of_the_others() {
    for (count, is_silent) in [(3, false), (5, false), (5, true)] {
        let bench = bench(count);
        bench.pass(Duration::from_secs(60)).await;
        let early = |index| Arc::new(Mutex::new((index == 0).then_some(Moment::ORIGIN)));
        let nodes = bench.nodes.iter().enumerate().map(|(index, node)| session(node, early(index)));
        let client = client_of(&bench, nodes);
        let delays = bench.nodes.iter().zip(0_u32..);
        delays.for_each(|(node, place)| node.delay(MS * place, MS * place));
        bench.nodes[count - 1].lose_requests(is_silent);
        let lease = lock_of(&client).acquire().await.unwrap();
        bench.pass(TTL * 5).await;
        assert_eq!(lease.check(), Ok(()), "{count} nodes, one of them silent: {is_silent}");
        lease.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn i7_validity_counts_from_the_earliest_time_of_a_quorum() {
    let earlier = Duration::from_secs(3);
    // The number of session-based nodes out of five.
    for (sessions, behind) in [(0, false), (2, false), (3, true), (5, true)] {
        let bench = bench(5);
        bench.pass(Duration::from_secs(60)).await;
        let last_heartbeats: Vec<_> =
            (0..5).map(|index| Arc::new(Mutex::new((index < sessions).then(|| bench.clock.now())))).collect();
        let nodes = bench.nodes.iter().zip(&last_heartbeats);
        let nodes: Vec<_> = nodes.map(|(node, last)| session(node, last.clone())).collect();
        let client = client_of(&bench, nodes);
        bench.pass(earlier).await;
        let left = if behind { VALIDITY.checked_sub(earlier).unwrap() } else { VALIDITY };
        let lease = lock_of(&client).acquire().await.unwrap();
        bench.pass(MS).await;
        assert_eq!(lease.remaining(), left.checked_sub(MS).unwrap(), "with {sessions} sessions");
        // A renewal is only as good as the last heartbeat.
        lease.renew().await.unwrap();
        assert!(lease.remaining() <= left, "with {sessions} sessions");
        let now = bench.clock.now();
        for last in &last_heartbeats[..sessions] {
            *last.lock().unwrap() = Some(now);
        }
        lease.renew().await.unwrap();
        assert_eq!(lease.remaining(), VALIDITY, "with {sessions} sessions");
    }
}

/// As on a session that is much shorter than the TTL.
#[tokio::test(start_paused = true)]
async fn a_lease_that_counts_from_long_ago_is_renewed_before_it_ends() {
    let bench = bench(1);
    bench.pass(Duration::from_secs(60)).await;
    let clock = bench.clock.clone();
    let node = WrappedNode::new(bench.nodes[0].clone()).on_request(move |request, responder, inner| {
        let clock = clock.clone();
        let early = move |answer: Response| answer.counting_from(clock.now().back(TTL * 4 / 5));
        inner.ask(request, responder.map(move |answer| answer.map(early)));
    });
    let client = client_of(&bench, [node]);
    let lease = lock_of(&client).acquire().await.unwrap();
    for _ in 0..50 {
        bench.pass(TTL / 10).await;
        assert_eq!(lease.check(), Ok(()));
    }
}

/// Why three nodes of which the second has these capabilities are refused.
fn refused_second(capabilities: Capabilities) -> ConfigError {
    let nodes = bench(3).nodes.into_iter().enumerate();
    let nodes =
        nodes.map(|(index, node)| if index == 1 { node.with_capabilities(capabilities) } else { node });
    Coordinator::builder().custom_nodes(nodes).build().unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn a_node_of_one_host_is_single_or_refused() {
    let here = Capabilities::all().of_one_host();
    let findings = with_one_able_to(&bench(1), here).doctor().await.findings;
    let of = |check| findings.iter().find(|finding| finding.check == check);
    assert!(of(Check::OneHost).is_some() && of(Check::OneNode).is_none(), "{findings:#?}");
    assert_eq!(refused_second(here), ConfigError::OneHostOfSeveral { name: "node-2".into() });
}

#[tokio::test(start_paused = true)]
async fn a_node_shared_with_other_programs_is_single_or_refused() {
    let shared = Capabilities::all().shared_with_others();
    assert!(with_one_able_to(&bench(1), shared).lock("a").acquire().await.is_ok());
    assert_eq!(refused_second(shared), ConfigError::SharedStoreOfSeveral { name: "node-2".into() });
}

#[tokio::test(start_paused = true)]
async fn a_single_node_warns_unless_it_is_several_servers() {
    for (capabilities, warned) in [
        (Capabilities::all(), Some("may forget")),
        (Capabilities::all().durable(), Some("while it is down")),
        (Capabilities::all().by_consensus(), None),
    ] {
        let bench = bench(1);
        let client = with_one_able_to(&bench, capabilities);
        let examination = client.doctor().await;
        let found = examination.findings.iter().find(|finding| finding.check == Check::OneNode);
        match warned {
            Some(words) => assert!(found.unwrap().evidence.contains(words), "{found:?}"),
            None => assert!(found.is_none(), "{found:?}"),
        }
    }
}
