//! Fencing tokens in random histories: clients that crash, give up and are delayed, keys that disappear
//! early, nodes that lose their data, clocks that are wrong. Each run is reproducible from its seed,
//! which a failure prints: `QUORLOCK_SEED=7 cargo test --test memory fencing_histories`.

use std::cmp::Ordering;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::{
    Coordinator, FencingToken, RestartGuard, Wait,
    node::{Responder, SharedRequest, ask},
    runtime::{Clock, Entropy},
};
use quorlock_testkit::{MemoryNode, SeededEntropy, SkewedClock, TokioClock, WrappedNode};
use tokio::sync::mpsc::unbounded_channel;

/// Also the longest TTL of the deployment; clocks may differ by half of it.
const TTL: Duration = Duration::from_secs(1);
const CLIENTS: usize = 4;
/// Tasks of one client, which hand the lock off to each other.
const TASKS: usize = 2;
const RUN: Duration = Duration::from_secs(60);

/// The faults of a run.
#[derive(Clone, Copy)]
struct Troubles {
    /// Keys end early: clocks of nodes jump, an operator deletes them.
    keys_vanish: bool,
    /// Nodes lose all their data when they restart.
    nodes_forget: bool,
    /// How far calendars are off, in either direction.
    calendars: Duration,
}

#[test]
fn numbers_grow_in_grant_order_whatever_the_calendars() {
    let troubles = Troubles { keys_vanish: false, nodes_forget: false, calendars: 86_400 * SECOND };
    every_history(troubles, History::grows_in_order_of_grants);
}

#[test]
fn numbers_grow_from_one_grant_to_the_next_request_though_keys_vanish() {
    let troubles = Troubles { keys_vanish: true, nodes_forget: false, calendars: 86_400 * SECOND };
    every_history(troubles, History::grows_from_grant_to_request);
}

#[test]
fn volatile_nodes_keep_the_order_if_calendars_agree() {
    let troubles = Troubles { keys_vanish: false, nodes_forget: true, calendars: TTL / 4 };
    every_history(troubles, History::grows_in_order_of_grants);
}

#[test]
fn volatile_nodes_lose_the_order_if_calendars_differ() {
    let troubles = Troubles { keys_vanish: false, nodes_forget: true, calendars: 60 * SECOND };
    let broken = seeds().find(|seed| run(*seed, troubles).grows_in_order_of_grants().is_err());
    assert!(broken.is_some(), "the bound is not needed, or the check does not detect anything");
}

fn every_history(troubles: Troubles, keeps: fn(&History) -> Result<(), String>) {
    let mut grants = 0;
    for seed in seeds() {
        let history = run(seed, troubles);
        keeps(&history).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        grants += history.grants.len();
    }
    println!("{grants} grants");
    assert!(grants > 100, "{grants} grants are too few to prove anything");
}

const SECOND: Duration = Duration::from_secs(1);

/// The first ten, the number in `QUORLOCK_SEEDS`, or the one in `QUORLOCK_SEED`.
fn seeds() -> impl Iterator<Item = u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a whole number"));
    number("QUORLOCK_SEED").map_or(0..number("QUORLOCK_SEEDS").unwrap_or(10), |seed| seed..seed + 1)
}

/// A grant: the client, the number, and when.
#[derive(Default)]
struct History {
    grants: Vec<Grant>,
}

#[derive(Clone, Copy)]
struct Grant {
    client: usize,
    asked: Moment,
    granted: Moment,
    fence: FencingToken,
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Grant { client, asked, granted, fence } = self;
        write!(f, "{fence} to client {client}, asked for at {asked:?}, granted at {granted:?}")
    }
}

impl History {
    /// Whether every grant has a larger number than all earlier grants.
    fn grows_in_order_of_grants(&self) -> Result<(), String> {
        self.grants.is_sorted_by(|one, next| one.fence < next.fence).then_some(()).ok_or_else(|| {
            let wrong = self
                .grants
                .windows(2)
                .find(|pair| pair.first().map(|g| g.fence) >= pair.last().map(|g| g.fence));
            wrong
                .map(|pair| pair.iter().map(ToString::to_string).collect::<Vec<_>>().join("; then "))
                .unwrap_or_default()
        })
    }

    /// Whether every grant has a larger number than all that were granted before it was requested, and
    /// no two are equal.
    fn grows_from_grant_to_request(&self) -> Result<(), String> {
        for (index, one) in self.grants.iter().enumerate() {
            for other in self.grants.iter().skip(index + 1) {
                let right = match one.fence.cmp(&other.fence) {
                    Ordering::Less => other.granted > one.asked,
                    Ordering::Greater => one.granted > other.asked,
                    Ordering::Equal => false,
                };
                if !right {
                    return Err(format!("{one}; and {other}"));
                }
            }
        }
        Ok(())
    }
}

fn run(seed: u64, troubles: Troubles) -> History {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(World::new(seed, troubles).run())
}

struct World {
    clock: Arc<dyn Clock>,
    chance: Arc<Chance>,
    troubles: Troubles,
    nodes: Vec<MemoryNode>,
    history: Arc<Mutex<History>>,
}

impl World {
    fn new(seed: u64, troubles: Troubles) -> World {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let chance = Arc::new(Chance(SeededEntropy::new(seed)));
        let node = |number| {
            let own = calendar(&clock, &chance, troubles.calendars);
            MemoryNode::with_own_clock(format!("node-{number}"), clock.clone(), own)
        };
        let nodes = (1..=5).map(node).collect();
        World { clock, chance, troubles, nodes, history: Arc::default() }
    }

    async fn run(self) -> History {
        let end = self.clock.now() + RUN;
        let clients: Vec<_> = (0..CLIENTS).map(|number| tokio::spawn(self.client(number, end))).collect();
        while self.clock.now() < end {
            self.clock.sleep_until(self.clock.now() + self.chance.up_to(SECOND)).await;
            self.error();
        }
        for client in clients {
            client.await.unwrap();
        }
        std::mem::take(&mut *self.history.lock().unwrap())
    }

    /// Injects one fault, or repairs one.
    fn error(&self) {
        let Some(node) = self.nodes.get(self.chance.below(5)) else { return };
        match self.chance.below(6) {
            0 => node.hang(),
            1 | 2 => node.resume(),
            3 if self.troubles.nodes_forget => node.restart_empty(),
            3 => node.restart_with_data(),
            4 if self.troubles.nodes_forget && self.chance.below(4) == 0 => {
                self.nodes.iter().for_each(MemoryNode::restart_empty);
            }
            5 if self.troubles.keys_vanish => {
                let some = self.chance.below(6);
                self.nodes.iter().take(some).for_each(|node| node.remove("r"));
            }
            _ => {}
        }
    }

    /// A program that uses the lock, crashes now and then, and is restarted.
    fn client(&self, number: usize, end: Moment) -> impl Future<Output = ()> + Send + use<> {
        let (clock, chance, history) = (self.clock.clone(), self.chance.clone(), self.history.clone());
        let (nodes, troubles) = (self.nodes.clone(), self.troubles);
        async move {
            while clock.now() < end {
                let crashed = Arc::new(AtomicBool::new(false));
                let wires = nodes.iter().map(|node| wire(node, &clock, &chance, &crashed));
                let guard = if troubles.nodes_forget { RestartGuard::On } else { RestartGuard::Off };
                let client = Coordinator::builder()
                    .custom_nodes(wires)
                    .clock(calendar(&clock, &chance, troubles.calendars))
                    .entropy(SeededEntropy::new(chance.0.next_u64()))
                    .ttl(TTL)
                    .max_ttl(TTL)
                    .restart_guard(guard)
                    .build()
                    .unwrap();
                let until = end.min(clock.now() + chance.up_to(20 * SECOND));
                let tasks = (0..TASKS).map(|_| {
                    let (client, clock, chance) = (client.clone(), clock.clone(), chance.clone());
                    let history = history.clone();
                    async move { use_lock(number, &client, &*clock, &chance, &history, until).await }
                });
                futures::future::join_all(tasks).await;
                // From here on its requests, and the answers to them, are lost.
                crashed.store(true, Relaxed);
            }
        }
    }
}

async fn use_lock(
    number: usize,
    client: &Coordinator,
    clock: &dyn Clock,
    chance: &Chance,
    history: &Mutex<History>,
    until: Moment,
) {
    while clock.now() < until {
        clock.sleep_until(clock.now() + chance.up_to(SECOND / 10)).await;
        let asked = clock.now();
        let lock = client.lock("r").wait(Wait::UpTo(chance.up_to(2 * SECOND)));
        let patience = chance.up_to(4 * SECOND);
        let lease = tokio::select! {
            lease = lock.acquire() => lease,
            () = clock.sleep_until(asked + patience) => continue,
        };
        let Ok(lease) = lease else { continue };
        let granted = clock.now();
        let fence = lease.fencing_token();
        history.lock().unwrap().grants.push(Grant { client: number, asked, granted, fence });
        tokio::select! {
            _ = lease.lost() => {}
            () = clock.sleep_until(granted + chance.up_to(SECOND / 4)) => {}
        }
        if chance.below(2) == 0 {
            drop(lease.release().await);
        }
    }
}

/// Deterministic random numbers from a seed.
struct Chance(SeededEntropy);

impl Chance {
    fn below(&self, bound: usize) -> usize {
        usize::try_from(self.0.next_u64() % u64::try_from(bound).unwrap()).unwrap()
    }

    fn up_to(&self, longest: Duration) -> Duration {
        longest.mul_f64(f64::from(u32::try_from(self.below(10_001)).unwrap()) / 10_000.0)
    }
}

/// A clock whose calendar is off by at most this much.
fn calendar(clock: &Arc<dyn Clock>, chance: &Chance, wrong_by: Duration) -> Arc<dyn Clock> {
    let skewed = SkewedClock::new(clock.clone(), 1.0);
    let by = chance.up_to(wrong_by);
    if chance.below(2) == 0 {
        skewed.calendar_forward(by);
    } else {
        skewed.calendar_back(by);
    }
    Arc::new(skewed)
}

/// A client's connection to a node: ordered, with a delay.
fn wire(
    node: &MemoryNode,
    clock: &Arc<dyn Clock>,
    chance: &Arc<Chance>,
    crashed: &Arc<AtomicBool>,
) -> WrappedNode {
    let (sent, mut arriving) = unbounded_channel::<(SharedRequest, Responder)>();
    let (server, clock, chance, crashed) = (node.clone(), clock.clone(), chance.clone(), crashed.clone());
    tokio::spawn(async move {
        while let Some((request, reply)) = arriving.recv().await {
            if crashed.load(Relaxed) {
                continue;
            }
            clock.sleep_until(clock.now() + latency(&chance)).await;
            let (server, clock, back) = (server.clone(), clock.clone(), latency(&chance));
            // Sent immediately, so that requests keep their order; the answer is delayed.
            let mut answer = Box::pin(async move { ask(&server, request).await });
            let now = futures::poll!(answer.as_mut());
            tokio::spawn(async move {
                let answer = match now {
                    std::task::Poll::Ready(answer) => answer,
                    std::task::Poll::Pending => answer.await,
                };
                clock.sleep_until(clock.now() + back).await;
                reply.send(answer);
            });
        }
    });
    // The connection lives as long as its node.
    WrappedNode::new(node.clone()).on_request(move |request, responder, _| {
        drop(sent.send((request, responder)));
    })
}

/// A delay: mostly short, sometimes longer than a round waits, sometimes longer than the TTL.
fn latency(chance: &Chance) -> Duration {
    match chance.below(100) {
        0 => chance.up_to(3 * TTL),
        1..5 => chance.up_to(TTL / 5),
        _ => chance.up_to(Duration::from_millis(2)),
    }
}
