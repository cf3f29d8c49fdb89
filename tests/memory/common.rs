//! Five nodes in memory on the runtime's paused time, and a coordinator over them.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use quorlock::lock::{Fenced, Single};
use quorlock::node::{ConnectionState, Hint, Node, StatusListener, forward_node};
use quorlock::runtime::{Clock, Mutex};
use quorlock::{AcquireError, Builder, Coordinator, Lease, Lock, Wait};
use quorlock_testkit::{MemoryNode, SeededEntropy, SkewedClock, TokioClock, WrappedNode, memory_nodes_on};
use tokio::task::JoinHandle;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const TTL: Duration = Duration::from_secs(10);
/// The TTL minus 1 % and 2 ms.
pub(crate) const VALIDITY: Duration = Duration::from_millis(9_898);
/// How long a round waits for a node in these tests.
pub(crate) const LIMIT: Duration = Duration::from_millis(50);
/// Longer than that.
pub(crate) const LATE: Duration = Duration::from_millis(80);

thread_local! {
    /// Each test has a thread of its own, so its seeds are the same in every run.
    static SEED: Cell<u64> = const { Cell::new(1) };
}

pub(crate) struct Bench {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) nodes: Vec<MemoryNode>,
    pub(crate) coordinator: Coordinator,
}

pub(crate) fn bench(nodes: usize) -> Bench {
    bench_with(nodes, |builder| builder)
}

pub(crate) fn bench_with(nodes: usize, set: impl FnOnce(Builder) -> Builder) -> Bench {
    bench_by_default(nodes, |builder| set(builder.node_timeout(LIMIT)))
}

/// With the default node timeouts.
pub(crate) fn bench_by_default(nodes: usize, set: impl FnOnce(Builder) -> Builder) -> Bench {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let nodes = memory_nodes_on(&clock, nodes);
    let coordinator = another_by_default(&clock, &nodes, set);
    Bench { clock, nodes, coordinator }
}

/// A node that promises hints and sends none, as over a connection whose end is unnoticed.
pub(crate) fn without_hints(node: MemoryNode) -> WrappedNode {
    WrappedNode::new(node).on_listen(|listener, _| listener.on_hint(Hint::Subscribed))
}

/// A node whose connection is in the state that a test [reports](ReportedNode::report).
#[derive(Clone, Debug)]
pub(crate) struct ReportedNode {
    node: MemoryNode,
    observer: Arc<Mutex<Option<Arc<dyn StatusListener>>>>,
}

impl ReportedNode {
    pub(crate) fn new(node: MemoryNode) -> ReportedNode {
        ReportedNode { node, observer: Arc::default() }
    }

    pub(crate) fn report(&self, state: ConnectionState) {
        self.observer.lock().as_ref().expect("a coordinator observes it").on_status(state);
    }
}

impl Node for ReportedNode {
    forward_node!(self => &self.node; name ask ready round_trip capabilities limits grant_age listen facts examine list_keys);

    fn observe(&self, observer: Arc<dyn StatusListener>) {
        *self.observer.lock() = Some(observer);
    }
}

/// Another client of the same nodes.
pub(crate) fn another(
    clock: &Arc<dyn Clock>,
    nodes: &[MemoryNode],
    set: impl FnOnce(Builder) -> Builder,
) -> Coordinator {
    another_by_default(clock, nodes, |builder| set(builder.node_timeout(LIMIT)))
}

/// Another process.
pub(crate) fn client(bench: &Bench) -> Coordinator {
    another(&bench.clock, &bench.nodes, |builder| builder)
}

/// Another process, whose clock the test sets forward, as if it had been suspended.
pub(crate) fn suspendable(bench: &Bench) -> (Arc<SkewedClock>, Coordinator) {
    let clock = Arc::new(SkewedClock::new(bench.clock.clone(), 1.0));
    let client = another(&bench.clock, &bench.nodes, |builder| builder.clock(clock.clone()));
    (clock, client)
}

/// Another process, which sees the nodes as these, with the default node timeouts.
pub(crate) fn client_of<N: Node>(bench: &Bench, nodes: impl IntoIterator<Item = N>) -> Coordinator {
    another_by_default(&bench.clock, &[], |builder| builder.custom_nodes(nodes))
}

/// A process that the nodes notify of nothing, as real servers do of what it has changed itself.
pub(crate) fn unnotified(bench: &Bench) -> Coordinator {
    client_of(bench, bench.nodes.iter().cloned().map(without_hints))
}

/// The same, with the default node timeouts.
pub(crate) fn another_by_default(
    clock: &Arc<dyn Clock>,
    nodes: &[MemoryNode],
    set: impl FnOnce(Builder) -> Builder,
) -> Coordinator {
    // Two clients with one seed would draw the same tokens.
    let seed = SEED.with(|seed| seed.replace(seed.get() + 1));
    let builder = Coordinator::builder()
        .custom_nodes(nodes.to_vec())
        .clock(clock.clone())
        .entropy(SeededEntropy::new(seed))
        .ttl(TTL);
    set(builder).build().unwrap()
}

/// The lock of these tests, which waits as long as it takes.
pub(crate) fn forever(coordinator: &Coordinator) -> Lock {
    coordinator.lock("r").ttl(TTL).wait(Wait::Forever)
}

/// Counts the requests of all kinds to these nodes.
pub(crate) fn asked(nodes: &[MemoryNode]) -> usize {
    nodes.iter().map(|node| node.requests().total()).sum()
}

/// A task that acquires, and returns its lease.
pub(crate) type Acquiring<K = Single, F = Fenced> = JoinHandle<Result<Lease<K, F>, AcquireError>>;

/// Acquires in a task of its own.
pub(crate) fn acquiring<K: 'static, F: 'static>(lock: Lock<K, F>) -> Acquiring<K, F> {
    tokio::spawn(async move { lock.acquire().await })
}

/// The same, in a task that drops its lease as soon as it has it.
pub(crate) fn passing<K: 'static, F: 'static>(lock: Lock<K, F>) -> JoinHandle<Result<(), AcquireError>> {
    tokio::spawn(async move { lock.acquire().await.map(drop) })
}

/// Tasks that hold a lock one after the other.
#[derive(Default)]
pub(crate) struct Turns {
    order: Arc<Mutex<Vec<usize>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Turns {
    /// Acquires in a task of its own, which then holds the lock for this long.
    pub(crate) fn join<K: 'static, F: 'static>(&mut self, bench: &Bench, lock: Lock<K, F>, hold: Duration) {
        let (number, order, clock) = (self.tasks.len(), self.order.clone(), bench.clock.clone());
        self.tasks.push(tokio::spawn(async move {
            let lease = lock.acquire().await.unwrap();
            order.lock().push(number);
            clock.sleep_until(clock.now() + hold).await;
            lease.release().await.unwrap();
        }));
    }

    /// Waits until all have held it, and returns in which order they did, by the order in which they came.
    pub(crate) async fn order(self) -> Vec<usize> {
        for task in self.tasks {
            task.await.unwrap();
        }
        std::mem::take(&mut *self.order.lock())
    }
}

impl Bench {
    pub(crate) fn lock(&self) -> Lock {
        self.coordinator.lock("r").ttl(TTL).wait(Wait::Never)
    }

    /// Acquires in a task of its own, which has asked the nodes by the time this returns.
    pub(crate) async fn waiting<K: 'static, F: 'static>(&self, lock: Lock<K, F>) -> Acquiring<K, F> {
        let waiting = acquiring(lock);
        self.settle().await;
        waiting
    }

    /// Counts the nodes on which the resource is locked.
    pub(crate) fn keys(&self) -> usize {
        self.nodes.iter().filter(|node| node.holder("r").is_some()).count()
    }

    /// Sets how long later requests take to arrive at each node, and their responses to come back.
    pub(crate) fn delay(&self, request: Duration, reply: Duration) {
        self.nodes.iter().for_each(|node| node.delay(request, reply));
    }

    pub(crate) async fn pass(&self, time: Duration) {
        self.clock.sleep_until(self.clock.now() + time).await;
    }

    /// Runs everything that needs no time to pass.
    pub(crate) async fn settle(&self) {
        self.pass(Duration::from_millis(1)).await;
    }
}
