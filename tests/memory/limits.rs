//! The default node timeouts: docs/adr/0007-leases-and-timeouts.md.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use quorlock::{
    AcquireError, Coordinator, RestartGuard, Wait,
    node::Node,
    redis::{Address, Endpoint},
    runtime::Clock,
    transport::{Dial, Stream},
};
use quorlock_testkit::{BuiltinServer, MemoryNode, TokioClock};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::common::{Bench, MS, TTL, another_by_default, bench_by_default, passing};

fn bench(nodes: usize) -> Bench {
    bench_by_default(nodes, |builder| builder)
}

/// A node that reports how long it took to connect.
#[derive(Clone, Debug)]
struct Measured {
    node: MemoryNode,
    round_trip: Duration,
}

impl Node for Measured {
    quorlock::node::forward_node!(self => &self.node; name ask capabilities observe);

    fn round_trip(&self) -> Option<Duration> {
        Some(self.round_trip)
    }
}

#[tokio::test(start_paused = true)]
async fn a_free_lock_takes_one_try_at_round_trips_up_to_a_tenth_ttl() {
    let ttl = Duration::from_secs(30);
    for thousandths in [0, 1, 5, 25, 50, 75, 100] {
        let bench = bench(5);
        let way = ttl / 1_000 * thousandths;
        let far = bench.nodes.iter().map(|node| {
            node.delay(way / 2, way / 2);
            Measured { node: node.clone(), round_trip: way }
        });
        let far: Vec<_> = far.collect();
        let client = another_by_default(&bench.clock, &[], |builder| builder.custom_nodes(far).ttl(ttl));
        let before = bench.clock.now();
        let lease = client.lock("r").try_acquire().await.unwrap().expect("it is free");
        assert!(bench.clock.now().since(before) <= way + MS, "one round trip of {way:?}");
        lease.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_unmeasured_node_has_a_timeout_of_1_s() {
    let bench = bench(3);
    bench.delay(450 * MS, 450 * MS);
    assert!(bench.lock().try_acquire().await.unwrap().is_some());

    let hung = self::bench(3);
    hung.nodes[1..].iter().for_each(MemoryNode::hang);
    let before = hung.clock.now();
    let error = hung.lock().try_acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::Unavailable { .. }), "{error}");
    let took = hung.clock.now().since(before);
    assert!(took >= 1_000 * MS && took < 1_010 * MS, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_first_caller_waits_for_connections_no_longer_than_for_its_lock() {
    let seconds = Duration::from_secs;
    for (wait, most) in [(Wait::Never, 5), (Wait::UpTo(500 * MS), 6), (Wait::UpTo(seconds(7)), 8)] {
        let bench = bench(1);
        bench.nodes[0].connecting();
        let before = bench.clock.now();
        bench.lock().wait(wait).acquire().await.unwrap_err();
        let took = bench.clock.now().since(before);
        assert!(took >= seconds(4) && took <= seconds(most) + 10 * MS, "{took:?} of {wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hung_preferred_node_delays_a_waiter_only_briefly() {
    let claim = |key: &str| quorlock::protocol::Claim::new(key.into(), quorlock::Token::new(1, ""));
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    let client = another_by_default(&bench.clock, &bench.nodes, |builder| builder);
    let next = passing(client.lock("r").wait(Wait::UpTo(TTL)));
    bench.pass(20 * MS).await;
    bench.nodes[claim("r").preferred_node(5)].hang();
    let before = bench.clock.now();
    lease.release().await.unwrap();
    next.await.unwrap().unwrap();
    let took = bench.clock.now().since(before);
    assert!(took <= 60 * MS, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_contested_lock_is_given_up_soon_with_hung_nodes() {
    let bench = bench(5);
    bench.nodes[3..].iter().for_each(MemoryNode::hang);
    bench.nodes[0].set_data("r", "another client", quorlock::node::Expiry::In(TTL));
    let before = bench.clock.now();
    let tried = bench.lock().try_acquire().await.unwrap();
    assert!(tried.is_none(), "one refuses, two hang");
    let took = bench.clock.now().since(before);
    // It retries, since the lock may be free; even one timeout each would take a second.
    assert!(took <= 500 * MS, "{took:?}");
}

/// Connects to servers at this distance.
#[derive(Debug)]
struct Way {
    clock: Arc<dyn Clock>,
    servers: Vec<BuiltinServer>,
    round_trip: Duration,
    /// The servers that never answer.
    hung: usize,
}

impl Dial for Way {
    fn dial(&self, address: &Address) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let Endpoint::Tcp { port, .. } = *address.endpoint() else { unreachable!("the servers have ports") };
        let index = usize::from(port) - 1;
        let (server, clock, way) = (self.servers[index].clone(), self.clock.clone(), self.round_trip / 2);
        let hangs = index < self.hung;
        Box::pin(async move {
            clock.sleep_until(clock.now() + way * 2).await;
            let (near, there) = tokio::io::duplex(1 << 16);
            let (here, far) = tokio::io::duplex(1 << 16);
            let ((from_near, to_near), (from_far, to_far)) =
                (tokio::io::split(there), tokio::io::split(here));
            drop(tokio::spawn(carry(from_near, to_far, clock.clone(), way)));
            drop(tokio::spawn(carry(from_far, to_near, clock, way)));
            drop(tokio::spawn(async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                server.serve_stream(far).await
            }));
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    clock: Arc<dyn Clock>,
    way: Duration,
) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        clock.sleep_until(clock.now() + way).await;
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

/// A client of five servers that has not connected yet.
fn cold(round_trip: Duration, hung: usize) -> (Arc<dyn Clock>, Coordinator) {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let servers = (0..5).map(|index| BuiltinServer::simulated(clock.clone(), format!("server-{index}")));
    let way = Way { clock: clock.clone(), servers: servers.collect(), round_trip, hung };
    let builder = Coordinator::builder()
        .nodes((1..=5).map(|port| format!("redis://h{port}:{port}")))
        .dial(way)
        .clock(clock.clone())
        .restart_guard(RestartGuard::Off);
    (clock, builder.build().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_cold_start_acquires_a_lock_in_three_round_trips() {
    for round_trip in [10, 60, 150, 300, 750, 1_000].map(|millis| millis * MS) {
        let (clock, coordinator) = cold(round_trip, 0);
        let before = clock.now();
        let lease = coordinator.lock("r").try_acquire().await.unwrap().expect("it is free");
        let took = clock.now().since(before);
        assert!(took <= round_trip * 3 + 10 * MS, "{took:?} of {round_trip:?} each");
        lease.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_minority_hung_from_the_start_costs_nothing() {
    let (clock, coordinator) = cold(20 * MS, 2);
    let before = clock.now();
    let lease = coordinator.lock("r").try_acquire().await.unwrap().expect("it is free");
    lease.release().await.unwrap();
    let took = clock.now().since(before);
    assert!(took <= 90 * MS, "three round trips, and one for the release: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_quorum_hung_from_the_start_fails_after_two_seconds() {
    let (clock, coordinator) = cold(20 * MS, 3);
    let before = clock.now();
    let error = coordinator.lock("r").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("within 2s"), "{error}");
    let took = clock.now().since(before);
    assert!(took >= 2_000 * MS && took <= 2_110 * MS, "{took:?}");
}
