//! The library in Redisson's layout beside Redisson's own scripts over the client crate, alternating, on one server:
//! cycles of a free lock, plain and fenced, and the time from a release to the next holder in another process.
//! `cargo bench --bench redisson`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    missing_docs,
    reason = "a benchmark fails by panicking, and its counts are small numbers"
)]

use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use quorlock::protocol::Moment;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock::{Coordinator, Fencing, RestartGuard, Wait};
use quorlock_testkit::Servers;
use redis::aio::MultiplexedConnection;
use redis::{Client, Value};

const ROUNDS: usize = 10;
const CYCLES: usize = 1000;
const TASKS: usize = 64;
const TIMES: usize = 500;

const LOCK: &str = "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
     redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end \
     return redis.call('pttl', KEYS[1])";
const FENCED: &str = "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
     redis.call('incr', KEYS[2]) redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) \
     return {-1, redis.call('get', KEYS[2])} end return {redis.call('pttl', KEYS[1]), -1}";
const UNLOCK: &str = "if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end \
     if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[2]) return 0 end \
     redis.call('del', KEYS[1]) redis.call(ARGV[4], KEYS[2], ARGV[1]) redis.call('set', KEYS[3], 1, 'px', ARGV[5]) return 1";

fn main() {
    // One thread: with more, chance decides on which of them a connection is driven, and that is most of a cycle.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(measure());
}

async fn measure() {
    let servers = Servers::start(1).await.unwrap();
    println!("on {}", servers.kind());
    let url = servers[0].url();
    for fencing in [Fencing::Off, Fencing::On] {
        cycles(&url, fencing).await;
    }
    handovers(&url).await;
}

fn now() -> Moment {
    SystemClock::default().now()
}

fn client(url: &str) -> Coordinator {
    let builder = Coordinator::builder().nodes([format!("{url}?layout=redisson")]);
    builder.restart_guard(RestartGuard::Off).build().unwrap()
}

/// Prints the median of each side, and their relation.
fn compare(what: &str, ours: &mut [Duration], theirs: &mut [Duration]) {
    ours.sort_unstable();
    theirs.sort_unstable();
    let micros = |time: &Duration| time.as_secs_f64() * 1e6;
    let [[ours, late], [theirs, theirs_late]] =
        [ours, theirs].map(|all| [micros(&all[all.len() / 2]), micros(&all[all.len() * 99 / 100])]);
    println!(
        "{what}: {ours:.0} us, by hand {theirs:.0} us, x {:.2} (p99 {late:.0} and {theirs_late:.0} us)",
        ours / theirs
    );
}

async fn cycles(url: &str, fencing: Fencing) {
    let (client, hand) = (client(url), Hand::connect(url).await);
    let (kind, fenced) = if fencing == Fencing::On { ("fenced", true) } else { ("plain", false) };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let lock = client.lock("bench/ours").fencing(fencing);
        for _ in 0..CYCLES {
            let began = now();
            lock.acquire().await.unwrap().release().await.unwrap();
            ours.push(now().since(began));
            let began = now();
            hand.lock("bench/hand", fenced).await;
            hand.unlock("bench/hand").await;
            theirs.push(now().since(began));
        }
    }
    compare(&format!("{kind}, a cycle"), &mut ours, &mut theirs);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = now();
        join_all((0..TASKS).map(|task| {
            let lock = client.lock(format!("bench/ours/{task}")).fencing(fencing);
            tokio::spawn(async move {
                for _ in 0..100 {
                    lock.acquire().await.unwrap().release().await.unwrap();
                }
            })
        }))
        .await;
        ours.push(now().since(began) / 6_400);
        let began = now();
        join_all((0..TASKS).map(|task| {
            let (hand, name) = (hand.clone(), format!("bench/hand/{task}"));
            tokio::spawn(async move {
                for _ in 0..100 {
                    hand.lock(&name, fenced).await;
                    hand.unlock(&name).await;
                }
            })
        }))
        .await;
        theirs.push(now().since(began) / 6_400);
    }
    compare(&format!("{kind}, a cycle of 64 tasks' together"), &mut ours, &mut theirs);
}

/// From before the release to the return of the waiter's call, between two processes.
async fn handovers(url: &str) {
    let processes = [client(url), client(url)];
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for at in 0..TIMES {
        let [lock, next] = [0, 1].map(|side| {
            let lock = processes[(at + side) % 2].lock("bench/pass").fencing(Fencing::Off);
            lock.wait(Wait::Forever)
        });
        let held = lock.acquire().await.unwrap();
        let waiting = tokio::spawn(async move {
            let lease = next.acquire().await.unwrap();
            let got = now();
            lease.release().await.unwrap();
            got
        });
        pause().await;
        let began = now();
        held.release().await.unwrap();
        ours.push(waiting.await.unwrap().since(began));

        let [holder, waiter] = [Hand::connect(url).await, Hand::connect(url).await];
        let mut ear = Client::open(url).unwrap().get_async_pubsub().await.unwrap();
        ear.subscribe("redisson_lock__channel:{bench/by}").await.unwrap();
        holder.lock("bench/by", false).await;
        let waiting = tokio::spawn(async move {
            ear.on_message().next().await.unwrap();
            waiter.lock("bench/by", false).await;
            let got = now();
            waiter.unlock("bench/by").await;
            got
        });
        pause().await;
        let began = now();
        holder.unlock("bench/by").await;
        theirs.push(waiting.await.unwrap().since(began));
    }
    compare("a hand-over between processes", &mut ours, &mut theirs);
}

/// Long enough for a waiter to be refused.
async fn pause() {
    SystemClock::default().sleep_until(now() + Duration::from_millis(5)).await;
}

/// Redisson's scripts by hand.
#[derive(Clone)]
struct Hand {
    connection: MultiplexedConnection,
    hashes: [String; 3],
    owner: String,
}

impl Hand {
    async fn connect(url: &str) -> Hand {
        let mut connection = Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
        let mut hashes = [const { String::new() }; 3];
        for (hash, script) in hashes.iter_mut().zip([LOCK, FENCED, UNLOCK]) {
            let load = redis::cmd("SCRIPT").arg("LOAD").arg(script).clone();
            *hash = load.query_async(&mut connection).await.unwrap();
        }
        let owner = format!("8743c9c0-0795-4907-87fd-6c719a6b4586:{:?}", now());
        Hand { connection, hashes, owner }
    }

    async fn run(&self, script: usize, keys: &[String], arguments: &[&str]) -> Value {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.hashes[script]).arg(keys.len()).arg(keys).arg(arguments);
        command.query_async(&mut self.connection.clone()).await.unwrap()
    }

    async fn lock(&self, name: &str, fenced: bool) {
        let (script, keys) = if fenced {
            (1, vec![name.to_owned(), format!("redisson_lock_token:{{{name}}}")])
        } else {
            (0, vec![name.to_owned()])
        };
        let answer = self.run(script, &keys, &["30000", &self.owner]).await;
        let granted =
            if let Value::Array(parts) = &answer { parts[0] == Value::Int(-1) } else { answer == Value::Nil };
        assert!(granted, "it is held: {answer:?}");
    }

    async fn unlock(&self, name: &str) {
        let keys = [
            name.to_owned(),
            format!("redisson_lock__channel:{{{name}}}"),
            format!("redisson_unlock_latch:{{{name}}}:{}", self.owner),
        ];
        let answer = self.run(2, &keys, &["0", "30000", &self.owner, "PUBLISH", "18000"]).await;
        assert_eq!(answer, Value::Int(1), "not unlocked");
    }
}
