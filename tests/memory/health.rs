//! The health of the nodes, as programs see it: real Redis nodes over simulated servers, on paused
//! time.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use quorlock::{
    Coordinator, Lock, RestartGuard, Wait,
    health::{Health, NodeHealth, NodeStatus},
    redis::Address,
    runtime::Clock,
    transport::{Dial, Stream},
};
use quorlock_testkit::builtin::Memory;
use quorlock_testkit::{BuiltinServer, SeededEntropy, TokioClock};
use tokio::task::JoinHandle;

const TTL: Duration = Duration::from_secs(10);
/// The longest TTL plus 1 %, and the resolution of timers.
const QUARANTINE: Duration = Duration::from_millis(10_103);

/// Three servers behind addresses `a`, `b` and `c`.
#[derive(Clone)]
struct World {
    clock: Arc<dyn Clock>,
    places: Arc<Mutex<Vec<Place>>>,
}

/// The server at one address.
struct Place {
    server: BuiltinServer,
    /// Whether it accepts connections.
    up: bool,
    /// Whether the server has stopped reading its requests.
    stuck: bool,
    serving: Vec<JoinHandle<()>>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

impl World {
    fn new() -> World {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let place = |id: &str| Place {
            server: BuiltinServer::simulated(Arc::clone(&clock), id),
            up: true,
            stuck: false,
            serving: Vec::new(),
        };
        World { places: Arc::new(Mutex::new(["a1", "b1", "c1"].map(place).into())), clock }
    }

    fn client(&self, guard: RestartGuard) -> Coordinator {
        let builder = Coordinator::builder().nodes(["a", "b", "c"]).clock(Arc::clone(&self.clock));
        let builder = builder.entropy(SeededEntropy::new(1)).dial(self.clone()).restart_guard(guard);
        builder.ttl(TTL).max_ttl(TTL).build().unwrap()
    }

    /// Cuts all connections to the server, which then accepts no new ones.
    fn kill(&self, index: usize) {
        let place = &mut self.places.lock().unwrap()[index];
        place.up = false;
        place.serving.drain(..).for_each(|serving| serving.abort());
    }

    fn restart(&self, index: usize, id: &str) {
        let place = &mut self.places.lock().unwrap()[index];
        place.server = place.server.restarted(id, Memory::Lost);
        place.up = true;
    }

    async fn pass(&self, time: Duration) {
        self.clock.sleep_until(self.clock.now() + time).await;
    }
}

impl Dial for World {
    fn dial(&self, address: &Address) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let name = address.to_string();
        let index = ["://a", "://b", "://c"].iter().position(|host| name.contains(host)).unwrap();
        let place = &mut self.places.lock().unwrap()[index];
        if !place.up {
            return Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) });
        }
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (server, world) = (place.server.clone(), self.clone());
        place.serving.push(tokio::spawn(async move {
            let theirs = Deafened { stream: theirs, world, index };
            drop(server.serve_stream(theirs).await);
        }));
        Box::pin(async { Ok(Box::new(ours) as Box<dyn Stream>) })
    }
}

/// A server's end of a connection, which may stop reading.
struct Deafened {
    stream: tokio::io::DuplexStream,
    world: World,
    index: usize,
}

mod io_impl {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::{Deafened, io};

    impl AsyncRead for Deafened {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let read = Pin::new(&mut self.stream).poll_read(context, buffer);
            if self.world.places.lock().unwrap()[self.index].stuck {
                buffer.clear();
                return Poll::Pending;
            }
            read
        }
    }

    impl AsyncWrite for Deafened {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.stream).poll_write(context, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(context)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(context)
        }
    }
}

fn lock(coordinator: &Coordinator) -> Lock {
    coordinator.lock("r").wait(Wait::Never)
}

/// Waits until the node at `index` has the status `wanted`, with a deadline.
async fn until(health: &mut Health, index: usize, wanted: impl Fn(&NodeStatus) -> bool) -> NodeHealth {
    let found = async {
        loop {
            let nodes = health.changed().await.expect("the coordinator still exists");
            if wanted(&nodes[index].status) {
                return nodes[index].clone();
            }
        }
    };
    let clock = TokioClock::new();
    tokio::select! {
        found = found => found,
        () = clock.sleep_until(clock.now() + TTL * 10) => panic!("the change is not reported"),
    }
}

fn is_connected(condition: &NodeStatus) -> bool {
    *condition == NodeStatus::Connected
}

#[tokio::test(start_paused = true)]
async fn health_is_unknown_before_contact_and_makes_none() {
    let world = World::new();
    let client = world.client(RestartGuard::Off);
    let mut health = client.health();
    world.pass(TTL).await;
    assert_eq!(health.changed().now_or_never(), None, "nothing has changed");
    assert!(health.now().iter().all(|node| node.status == NodeStatus::Unknown), "{:?}", health.now());
    assert!(
        world.places.lock().unwrap().iter().all(|place| place.serving.is_empty()),
        "no connection was opened"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_is_seen_to_connect_disconnect_and_restart() {
    let world = World::new();
    let client = world.client(RestartGuard::Off);
    let mut health = client.health();
    drop(lock(&client).acquire().await.unwrap());
    let node = until(&mut health, 0, is_connected).await;
    assert_eq!(&*node.identity.unwrap().id, "a1");
    assert_eq!(node.restarts, 0);

    world.kill(0);
    let node = until(&mut health, 0, |condition| matches!(condition, NodeStatus::Unreachable { .. })).await;
    assert_eq!(&*node.identity.unwrap().id, "a1", "the last identity is kept");
    world.pass(TTL).await;
    assert_eq!(
        health.now()[0].lasted / 1000,
        TTL / 1000,
        "since the connection ended: {:?}",
        health.now()[0]
    );

    world.restart(0, "a2");
    let node = until(&mut health, 0, is_connected).await;
    assert_eq!((&*node.identity.unwrap().id, node.restarts), ("a2", 1));
    assert!(is_connected(&health.now()[1].status), "the others are not affected");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_quarantine_is_reported_by_a_timer() {
    let world = World::new();
    let client = world.client(RestartGuard::On);
    let mut health = client.health();
    let start = world.clock.now();
    lock(&client).acquire().await.unwrap_err();
    let quarantined = |condition: &NodeStatus| matches!(condition, NodeStatus::Quarantined { .. });
    let node = until(&mut health, 0, quarantined).await;
    let NodeStatus::Quarantined { left } = node.status else { unreachable!() };
    assert!(left > QUARANTINE - Duration::from_secs(2) && left <= QUARANTINE, "{left:?}");
    until(&mut health, 0, is_connected).await;
    let waited = world.clock.now().since(start);
    assert!(waited >= left && waited <= QUARANTINE, "reported when it ended: {waited:?} of {left:?}");
    assert!(lock(&client).acquire().await.is_ok(), "and its vote counts");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_answering_is_stalled_until_it_resumes() {
    let world = World::new();
    let client = world.client(RestartGuard::Off);
    let mut health = client.health();
    drop(lock(&client).acquire().await.unwrap());
    world.pass(TTL).await;
    world.places.lock().unwrap()[2].stuck = true;
    drop(lock(&client).acquire().await.unwrap());
    let node = until(&mut health, 2, |condition| matches!(condition, NodeStatus::Stalled { .. })).await;
    assert!(node.to_string().ends_with("not responding: it has not answered for more than 1s"), "{node}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_does_not_miss_a_change() {
    let world = World::new();
    let client = world.client(RestartGuard::Off);
    let mut health = client.health();
    drop(lock(&client).acquire().await.unwrap());
    world.pass(TTL).await;
    let nodes = health.changed().now_or_never().expect("they have connected").unwrap();
    assert!(nodes.iter().all(|node| is_connected(&node.status)), "{nodes:?}");
    assert!(health.changed().now_or_never().is_none(), "the change was reported before");
    world.kill(1);
    // Dropped while it waits, and right before the change is reported.
    assert!(health.changed().now_or_never().is_none());
    world.pass(Duration::from_millis(10)).await;
    let nodes = health.changed().now_or_never().expect("the change is reported now").unwrap();
    assert!(!is_connected(&nodes[1].status), "{nodes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stays_down_is_no_news() {
    let world = World::new();
    let client = world.client(RestartGuard::Off);
    (0..3).for_each(|index| world.kill(index));
    lock(&client).acquire().await.unwrap_err();
    let mut health = client.health();
    world.pass(TTL * 6).await;
    assert_eq!(health.changed().now_or_never(), None, "repeated dials are no change");
}

#[tokio::test(start_paused = true)]
async fn the_watch_ends_with_the_coordinator() {
    let world = World::new();
    let client = world.client(RestartGuard::Off);
    drop(lock(&client).acquire().await.unwrap());
    let mut health = client.health();
    let waiting = tokio::spawn(async move { while health.changed().await.is_some() {} });
    world.pass(Duration::from_millis(10)).await;
    assert!(!waiting.is_finished());
    drop(client);
    waiting.await.unwrap();
    world.pass(TTL).await;
    let gone = |place: &Place| place.serving.iter().all(JoinHandle::is_finished);
    assert!(world.places.lock().unwrap().iter().all(gone), "connections are closed");
}

/// In a separate runtime, which ends while a node is connected.
#[cfg(feature = "metrics")]
#[test]
fn connections_restarts_and_quarantines_are_counted() {
    use metrics_exporter_prometheus::PrometheusBuilder;

    let recorder = PrometheusBuilder::new().build_recorder();
    let count = |line: &str| {
        let text = recorder.handle().render();
        let found = text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse::<f64>().ok());
        found.unwrap_or_else(|| panic!("no {line} in {text}"))
    };
    let node = |metric: &str| count(&format!("quorlock_node_{metric}{{node=\"redis://a:6379\"}}"));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = World::new();
        let client = metrics::with_local_recorder(&recorder, || world.client(RestartGuard::On));
        let mut health = client.health();
        lock(&client).acquire().await.unwrap_err();
        until(&mut health, 0, is_connected).await;
        assert_eq!((node("up"), node("connects_total"), node("restarts_total")), (1.0, 1.0, 0.0));
        world.kill(0);
        until(&mut health, 0, |condition| matches!(condition, NodeStatus::Unreachable { .. })).await;
        assert_eq!(node("up"), 0.0);
        world.restart(0, "a2");
        until(&mut health, 0, is_connected).await;
        assert_eq!((node("up"), node("connects_total"), node("restarts_total")), (1.0, 2.0, 1.0));
        let ends = node("quarantine_end_timestamp_seconds") - world.clock.wall().as_secs_f64();
        assert!(ends.abs() < 2.0, "it has just ended: {ends}");
        world.places.lock().unwrap()[0].stuck = true;
        drop(lock(&client).acquire().await.unwrap());
        until(&mut health, 0, |condition| matches!(condition, NodeStatus::Stalled { .. })).await;
        assert_eq!((node("up"), node("stalls_total")), (0.0, 1.0));
        let second = metrics::with_local_recorder(&recorder, || world.client(RestartGuard::Off));
        world.places.lock().unwrap()[0].stuck = false;
        drop(lock(&second).acquire().await.unwrap());
        assert_eq!(node("up"), 1.0, "one of the two coordinators is connected");
        // It is connected when its runtime ends.
        std::mem::forget(second);
    });
    drop(runtime);
    for name in ["a", "b", "c"] {
        assert_eq!(count(&format!("quorlock_node_up{{node=\"redis://{name}:6379\"}}")), 0.0, "{name}");
    }
}
