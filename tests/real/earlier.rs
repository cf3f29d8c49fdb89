//! Clients from before the queue (ADR 25) and current ones in one deployment, as during a rolling
//! upgrade: no client is stranded, and no two hold a lock.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use quorlock::protocol::{Claim, Token, preferred_node};
use quorlock::{
    Coordinator, Wait,
    runtime::{Clock as _, Entropy, SystemClock},
};
use quorlock_testkit::{SeededEntropy, Servers, eventually};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Script, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::offers::{client, published};
use crate::world::DEADLINE;

const TTL_MILLIS: u64 = 2_000;
const KEY: &str = "locks:r";
/// How many times each client acquires the lock.
const GRANTS: usize = 15;

/// The scripts of that version.
struct Scripts {
    acquire: Script,
    write_back: Script,
    cancel: Script,
    release: Script,
}

impl Scripts {
    fn new() -> Scripts {
        let fence = include_str!("earlier/fence.lua");
        Scripts {
            acquire: Script::new(&[fence, include_str!("earlier/acquire.lua")].concat()),
            write_back: Script::new(&[fence, include_str!("earlier/write_back.lua")].concat()),
            cancel: Script::new(include_str!("earlier/cancel.lua")),
            release: Script::new(include_str!("earlier/release.lua")),
        }
    }
}

/// A client from before the queue: it asks the preferred node first, waits until that reports a change,
/// and asks again once a second. It uses no queue and no inbox. Of the notified clients, the one that
/// the node refused first asks all nodes, and the others hold back.
struct Earlier {
    nodes: Vec<MultiplexedConnection>,
    /// The nodes that have reported a change.
    changes: UnboundedReceiver<usize>,
    scripts: Scripts,
    entropy: SeededEntropy,
    clock: SystemClock,
}

/// The answer of a node.
enum Answer {
    Granted(u64),
    Refused { first: Vec<u8> },
    Free,
}

impl Earlier {
    async fn connect(servers: &Servers, seed: u64) -> Earlier {
        let (notify, changes) = unbounded_channel();
        let connect = async |(node, url): (usize, String)| {
            let notify = notify.clone();
            let config = AsyncConnectionConfig::new().set_push_sender(move |_| notify.send(node));
            let client = Client::open(format!("{url}?protocol=resp3")).unwrap();
            let mut node = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
            let tracking = redis::cmd("CLIENT").arg("TRACKING").arg("ON").arg("NOLOOP").to_owned();
            tracking.exec_async(&mut node).await.unwrap();
            node
        };
        let nodes = join_all(servers.urls().into_iter().enumerate().map(connect)).await;
        let (entropy, clock) = (SeededEntropy::new(seed), SystemClock::default());
        Earlier { nodes, changes, scripts: Scripts::new(), entropy, clock }
    }

    /// Waits for the lock. Returns its token and number.
    async fn acquire(&mut self) -> (Claim, u64) {
        let preferred = preferred_node(KEY, self.nodes.len());
        let needed = self.nodes.len() / 2 + 1;
        let mut all = true;
        loop {
            while self.changes.try_recv().is_ok() {}
            let claim = Claim::new(KEY.into(), Token::new(self.entropy.next_u128(), "earlier:1"));
            let asked = self.clock.now();
            let hint = u64::try_from(self.clock.wall().as_micros()).unwrap();
            let everywhere: Vec<usize> = (0..self.nodes.len()).collect();
            let mut answers = Vec::new();
            if !all {
                answers = self.ask(&[preferred], &claim, hint).await;
            }
            if all || matches!(answers[..], [(_, Answer::Granted(_))]) {
                let rest: Vec<usize> =
                    everywhere.iter().copied().filter(|node| all || *node != preferred).collect();
                answers.extend(self.ask(&rest, &claim, hint).await);
            }
            let numbers: Vec<u64> = answers
                .iter()
                .filter_map(
                    |(_, answers)| if let Answer::Granted(number) = answers { Some(*number) } else { None },
                )
                .collect();
            if numbers.len() >= needed {
                let largest = numbers.iter().copied().max().unwrap();
                let agrees = numbers.iter().filter(|number| **number == largest).count() >= needed;
                if agrees || self.write_back(&claim, largest).await >= needed {
                    return (claim, largest);
                }
            }
            let first = answers.iter().find_map(|(node, answers)| match answers {
                Answer::Refused { first } if *node == preferred => Some(first == claim.token().as_bytes()),
                Answer::Refused { .. } | Answer::Granted(_) | Answer::Free => None,
            });
            let (was_split, by_one) = (!numbers.is_empty(), answers.len() == 1);
            let took = self.clock.now().since(asked);
            for (node, _) in answers {
                self.cancel(node, &claim).await;
            }
            all = self.rest(was_split, if by_one { 1 } else { needed }).await && first == Some(true);
            if first == Some(false) {
                self.clock.sleep_until(self.clock.now() + took).await;
            }
        }
    }

    /// Waits until `wanted` nodes have reported a change, or for a heartbeat. Returns whether they
    /// have.
    async fn rest(&mut self, was_split: bool, wanted: usize) -> bool {
        let pause =
            if was_split { self.entropy.next_u64() % 100 } else { 500 + self.entropy.next_u64() % 1_000 };
        let end = self.clock.now() + Duration::from_millis(pause);
        let mut notified = BTreeSet::new();
        while notified.len() < wanted {
            tokio::select! {
                node = self.changes.recv() => notified.insert(node.unwrap()),
                () = self.clock.sleep_until(end) => return false,
            };
        }
        true
    }

    async fn ask(&self, nodes: &[usize], claim: &Claim, hint: u64) -> Vec<(usize, Answer)> {
        let ask = async |node: &usize| {
            let mut invocation = self.scripts.acquire.key(KEY);
            invocation.arg(claim.token().as_bytes()).arg(TTL_MILLIS).arg(claim.tombstone());
            invocation.arg(claim.want_mark()).arg(claim.fence_counter()).arg(hint).arg(1_000_000);
            let answers: Vec<Value> = invocation.invoke_async(&mut self.nodes[*node].clone()).await.unwrap();
            let answers = match &answers[..] {
                [Value::BulkString(word), Value::Int(number)] if word == b"granted" => {
                    Answer::Granted((*number).try_into().unwrap())
                }
                [Value::BulkString(word), .., Value::BulkString(first)] if word == b"held" => {
                    Answer::Refused { first: first.clone() }
                }
                [Value::BulkString(word)] if word == b"free" => Answer::Free,
                other => panic!("{other:?}"),
            };
            (*node, answers)
        };
        join_all(nodes.iter().map(ask)).await
    }

    async fn write_back(&self, claim: &Claim, number: u64) -> usize {
        let write = async |node: &MultiplexedConnection| {
            let mut invocation = self.scripts.write_back.key(KEY);
            invocation.arg(claim.token().as_bytes()).arg(claim.fence_counter()).arg(number);
            let answers: Vec<Value> = invocation.invoke_async(&mut node.clone()).await.unwrap();
            answers.first() == Some(&Value::BulkString(b"granted".to_vec()))
        };
        join_all(self.nodes.iter().map(write)).await.into_iter().filter(|written| *written).count()
    }

    async fn cancel(&self, node: usize, claim: &Claim) {
        let mut invocation = self.scripts.cancel.key(KEY);
        invocation.arg(claim.token().as_bytes()).arg(TTL_MILLIS).arg(claim.tombstone());
        invocation.invoke_async::<()>(&mut self.nodes[node].clone()).await.unwrap();
    }

    async fn release(&self, claim: &Claim) {
        let release = async |node: &MultiplexedConnection| {
            let mut invocation = self.scripts.release.key(KEY);
            invocation.arg(claim.token().as_bytes()).arg(claim.want_mark());
            invocation.invoke_async::<()>(&mut node.clone()).await.unwrap();
        };
        join_all(self.nodes.iter().map(release)).await;
    }
}

/// The critical section.
#[derive(Default)]
struct Room {
    taken: AtomicBool,
    numbers: Mutex<Vec<u64>>,
    /// Runs until every client is done; clients that are done early leave more turns to the others.
    over: AtomicBool,
}

impl Room {
    async fn visit(&self, number: u64) {
        assert!(!self.taken.swap(true, Ordering::SeqCst), "two hold the lock");
        self.numbers.lock().unwrap().push(number);
        let clock = SystemClock::default();
        clock.sleep_until(clock.now() + Duration::from_millis(2)).await;
        assert!(self.taken.swap(false, Ordering::SeqCst), "two hold the lock");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_from_before_the_queue_and_current_ones_exclude_each_other() {
    let servers = Servers::start(5).await.unwrap();
    if !servers.kind().is_real() {
        return println!("skipped: {} cannot run the earlier scripts", servers.kind());
    }
    let first = client(&servers, None);
    let votes = async || {
        let lock = first.lock("r").wait(Wait::UpTo(DEADLINE));
        lock.try_acquire().await.is_ok_and(|lease| lease.is_some())
    };
    eventually("a vote", DEADLINE, votes).await.unwrap();

    let room = Arc::new(Room::default());
    let mut tasks = Vec::new();
    let mut served: Vec<(String, Arc<AtomicUsize>)> = Vec::new();
    for number in 0..4 {
        let (client, room, count) = (client(&servers, None), room.clone(), Arc::<AtomicUsize>::default());
        served.push((format!("today {number}"), count.clone()));
        tasks.push(tokio::spawn(async move { work_today(&client, &room, &count).await }));
    }
    for number in 0..2 {
        let mut client = Earlier::connect(&servers, number).await;
        let (room, count) = (room.clone(), Arc::<AtomicUsize>::default());
        served.push((format!("earlier {number}"), count.clone()));
        tasks.push(tokio::spawn(async move {
            while !room.over.load(Ordering::SeqCst) {
                let (claim, number) = client.acquire().await;
                room.visit(number).await;
                client.release(&claim).await;
                count.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    let all_served = async || {
        assert!(tasks.iter().all(|task| !task.is_finished()), "a client has failed");
        served.iter().all(|(_, count)| count.load(Ordering::SeqCst) >= GRANTS)
    };
    let outcome = eventually("all are served", DEADLINE * 2, all_served).await;
    println!("served: {served:?}");
    outcome.unwrap();
    room.over.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    assert!(published(&servers[0]).await > 0, "current clients offer it to each other meanwhile");
    let numbers = room.numbers.lock().unwrap();
    assert!(numbers.is_sorted_by(|one, next| one < next), "fencing tokens increase");
}

async fn work_today(client: &Coordinator, room: &Room, count: &AtomicUsize) {
    while !room.over.load(Ordering::SeqCst) {
        let lease = client.lock("r").wait(Wait::UpTo(DEADLINE)).acquire().await.unwrap();
        room.visit(lease.fencing_token().unwrap().get()).await;
        lease.release().await.unwrap();
        count.fetch_add(1, Ordering::SeqCst);
    }
}
