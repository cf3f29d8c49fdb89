//! The additional client of `--beside`, which contends with the processes.

use std::time::Duration;

use futures::future::join_all;
use quorlock::{
    Coordinator, Lock, Wait,
    runtime::{Clock as _, Entropy as _, SystemClock, SystemEntropy},
};

use super::{HOLD, TTL};

/// An additional client that contends with the processes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Beside {
    Plain,
    Writer,
    Shared,
    Several,
    /// Several locks, the second of which is wanted as much as the first.
    Busy,
}

impl Beside {
    pub(crate) fn named(word: &str) -> Beside {
        match word {
            "plain" => Beside::Plain,
            "writer" => Beside::Writer,
            "shared" => Beside::Shared,
            "several" => Beside::Several,
            "busy" => Beside::Busy,
            _ => panic!("`{word}` is none of plain, writer, shared, several and busy"),
        }
    }

    /// What it waited for each of its grants; printed at the end.
    pub(crate) async fn want(
        self,
        urls: Vec<String>,
        name: String,
        (window, hold): (Duration, Duration),
        processes: usize,
    ) -> Vec<Duration> {
        let client = client(&urls);
        let another = format!("{name} and another");
        match self {
            Beside::Plain => want_plainly(urls, name, window).await,
            Beside::Writer => want(&client, client.lock(&name), window).await,
            Beside::Shared => want(&client, client.lock(&name).shared(), window).await,
            Beside::Several => want(&client, client.lock_all([name, another]), window).await,
            Beside::Busy => {
                let others: Vec<_> = (0..processes)
                    .map(|_| tokio::spawn(hold_always(urls.clone(), another.clone(), hold)))
                    .collect();
                let waits = want(&client, client.lock_all([name, another]), window).await;
                others.iter().for_each(tokio::task::JoinHandle::abort);
                waits
            }
        }
    }
}

fn client(urls: &[String]) -> Coordinator {
    Coordinator::builder().nodes(urls).ttl(TTL).max_ttl(TTL).build().unwrap()
}

/// Holds the lock, and wants it again immediately.
async fn hold_always(urls: Vec<String>, name: String, hold: Duration) {
    let (client, clock) = (client(&urls), SystemClock::default());
    let lock = client.lock(name).wait(Wait::Forever);
    loop {
        let lease = lock.acquire().await.unwrap();
        clock.sleep_until(clock.now() + hold).await;
        lease.release().await.unwrap();
    }
}

/// Acquires and releases the lock for the length of the window, and returns the waits.
async fn want<K>(client: &Coordinator, lock: Lock<K>, window: Duration) -> Vec<Duration> {
    let lock = lock.wait(Wait::Forever);
    let (clock, entropy) = (SystemClock::default(), SystemEntropy::default());
    let end = clock.now() + window;
    let (mut waits, mut since) = (Vec::new(), None);
    let loops = async {
        loop {
            let began = *since.insert(clock.now());
            let lease = lock.acquire().await.unwrap();
            waits.push(clock.now().since(began));
            since = None;
            clock.sleep_until(clock.now() + HOLD).await;
            lease.release().await.unwrap();
            clock.sleep_until(clock.now() + Duration::from_millis(entropy.next_u64() % 200)).await;
        }
    };
    tokio::select! {
        () = loops => {}
        () = clock.sleep_until(end) => {}
    }
    waits.extend(since.map(|began| clock.now().since(began)));
    client.close(Duration::from_secs(1)).await;
    waits
}

/// Redlock by hand, without a queue: returns how long it waited for each of its grants.
async fn want_plainly(urls: Vec<String>, name: String, window: Duration) -> Vec<Duration> {
    let connect = async |url: &String| {
        redis::Client::open(url.as_str()).unwrap().get_multiplexed_async_connection().await.unwrap()
    };
    let nodes = join_all(urls.iter().map(connect)).await;
    let (clock, entropy) = (SystemClock::default(), SystemEntropy::default());
    let end = clock.now() + window;
    let (mut since, mut waits) = (clock.now(), Vec::new());
    while clock.now() < end {
        let token = format!("{:032x}", entropy.next_u128());
        let set = async |mut node: redis::aio::MultiplexedConnection| {
            let mut set = redis::cmd("SET");
            set.arg(&name).arg(&token).arg("NX").arg("PX").arg(5_000);
            set.query_async::<Option<String>>(&mut node).await.unwrap().is_some()
        };
        let granted = join_all(nodes.iter().cloned().map(set)).await.into_iter().filter(|set| *set).count();
        let has = granted > nodes.len() / 2;
        if has {
            waits.push(clock.now().since(since));
            clock.sleep_until(clock.now() + HOLD).await;
            since = clock.now();
        }
        let free = async |mut node: redis::aio::MultiplexedConnection| {
            let script = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
            let mut free = redis::cmd("EVAL");
            free.arg(script).arg(1).arg(&name).arg(&token);
            free.query_async::<i64>(&mut node).await.unwrap();
        };
        join_all(nodes.iter().cloned().map(free)).await;
        clock.sleep_until(clock.now() + Duration::from_millis(entropy.next_u64() % 200)).await;
    }
    waits.push(clock.now().since(since));
    waits
}
