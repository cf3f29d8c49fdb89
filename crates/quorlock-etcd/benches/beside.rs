//! The library on etcd beside the same transactions by hand, alternating, on the same cluster of three members:
//! `QUORLOCK_ETCD=.tools/etcd cargo bench -p quorlock-etcd`, with `-- cycles`, `-- handovers` or `-- held` for one part.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a bench")]

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use quorlock::node::Seams;
use quorlock::protocol::Moment;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock::{Coordinator, RestartGuard, Wait};
use quorlock_etcd::EtcdNode;
use quorlock_testkit::{EtcdCluster, EtcdPrograms};

use by_hand::Hand;

#[path = "beside/by_hand.rs"]
mod by_hand;

const ROUNDS: usize = 5;
const CYCLES: usize = 200;
const TASKS: usize = 64;
const TTL: Duration = Duration::from_secs(10);

fn now() -> Moment {
    SystemClock::default().now()
}

fn client(cluster: &EtcdCluster) -> Coordinator {
    let node = EtcdNode::new(&cluster.url(), &Seams::default()).unwrap();
    let builder = Coordinator::builder().custom_nodes([node]).ttl(TTL);
    builder.restart_guard(RestartGuard::Off).build().unwrap()
}

/// Prints the median of each side, and their relation.
fn compare(what: &str, ours: &mut [Duration], theirs: &mut [Duration]) {
    ours.sort_unstable();
    theirs.sort_unstable();
    let [ours, theirs] = [ours, theirs].map(|all| all[all.len() / 2].as_secs_f64() * 1e3);
    println!("{what}: {ours:.3} ms, by hand {theirs:.3} ms, x {:.2}", ours / theirs);
}

async fn cycles(cluster: &EtcdCluster, hand: &Hand) {
    let client = client(cluster);
    let lock = client.lock("bench/cycle");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for _ in 0..CYCLES {
            let began = now();
            lock.acquire().await.unwrap().release().await.unwrap();
            ours.push(now().since(began));
            let began = now();
            hand.cycle("bench/hand").await;
            theirs.push(now().since(began));
        }
    }
    compare("a cycle", &mut ours, &mut theirs);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = now();
        join_all((0..TASKS).map(|task| {
            let lock = client.lock(format!("bench/ours/{task}"));
            tokio::spawn(async move {
                for _ in 0..40 {
                    lock.acquire().await.unwrap().release().await.unwrap();
                }
            })
        }))
        .await;
        ours.push(now().since(began));
        let began = now();
        join_all((0..TASKS).map(|task| {
            let (hand, name) = (hand.clone(), format!("bench/hand/{task}"));
            tokio::spawn(async move {
                for _ in 0..40 {
                    hand.cycle(&name).await;
                }
            })
        }))
        .await;
        theirs.push(now().since(began));
    }
    let rate = |time: &Duration| 64.0 * 40.0 / time.as_secs_f64();
    compare("64 tasks, 40 cycles each", &mut ours, &mut theirs);
    let [one, other] = [&ours, &theirs].map(|all| rate(&all[all.len() / 2]));
    println!("64 tasks: {one:.0} cycles/s, by hand {other:.0}, x {:.2}", one / other);
}

/// From before the release to the return of the waiter's call, between two processes.
async fn handovers(cluster: &EtcdCluster, endpoint: &str) {
    const TIMES: usize = 200;
    let processes = [client(cluster), client(cluster)];
    let hands = [Hand::connect(endpoint).await, Hand::connect(endpoint).await];
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut held = processes[0].lock("bench/pass").acquire().await.unwrap();
    let mut key = hands[0].enter("bench/by").await;
    for at in 0..TIMES {
        let next = &processes[(at + 1) % 2];
        let lock = next.lock("bench/pass").wait(Wait::Forever);
        let waiting = tokio::spawn(async move {
            let lease = lock.acquire().await.unwrap();
            (lease, now())
        });
        // Its place is there, and watched, when another process sees it.
        let queue = processes[at % 2].lock("bench/pass");
        while queue.waiters().await.unwrap().waiters.is_empty() {
            SystemClock::default().sleep_until(now() + Duration::from_millis(2)).await;
        }
        let began = now();
        held.release().await.unwrap();
        let (lease, got) = waiting.await.unwrap();
        held = lease;
        ours.push(got.since(began));
        let hand = hands[(at + 1) % 2].clone();
        let before = key.clone();
        let (watches, ready) = tokio::sync::oneshot::channel();
        let waiting = tokio::spawn(async move {
            let key = hand.enter("bench/by").await;
            hand.wait_for_deletion(&before, watches).await;
            hand.take(&key).await;
            (key, now())
        });
        ready.await.unwrap();
        let began = now();
        hands[at % 2].delete(&key).await;
        let (next, got) = waiting.await.unwrap();
        key = next;
        theirs.push(got.since(began));
    }
    compare("a hand-over between processes", &mut ours, &mut theirs);
}

/// Go's mutex between two sessions, for comparison.
fn go(programs: &EtcdPrograms, cluster: &EtcdCluster) {
    let mutex = programs.program("mutex");
    if !mutex.is_file() {
        return println!("Go's mutex was not built");
    }
    let folder = tempfile::tempdir().unwrap();
    let counter = folder.path().join("counter");
    std::fs::write(&counter, "0").unwrap();
    let mut go = Command::new(mutex);
    go.args([&cluster.endpoints(), "bench/go", "2", "200"]).args([&counter, &folder.path().join("log")]);
    let output = go.output().unwrap();
    println!(
        "Go's mutex, two sessions: sections, wait in ms (p50, p99): {}",
        String::from_utf8_lossy(&output.stdout).trim()
    );
}

/// The processor time of this process.
fn processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    Duration::from_millis(10 * (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()))
}

async fn held(cluster: &EtcdCluster) {
    let client = client(cluster);
    let began = now();
    let leases = join_all((0..10_000).map(|number| {
        let lock = client.lock(format!("bench/held/{number}")).ttl(Duration::from_secs(30));
        async move { lock.acquire().await.unwrap() }
    }))
    .await;
    println!("10,000 taken in {:?}", now().since(began));
    let (before, began) = (processor(), now());
    SystemClock::default().sleep_until(began + Duration::from_secs(60)).await;
    let (used, passed) = (processor().saturating_sub(before), now().since(began));
    let share = used.as_secs_f64() / passed.as_secs_f64() * 100.0;
    println!("10,000 held for {passed:?}: {used:?} of processor time, {share:.2} % of a core");
    assert!(leases.iter().all(|lease| lease.check().is_ok()));
    let began = now();
    join_all(leases.into_iter().map(quorlock::Lease::release)).await;
    println!("10,000 released in {:?}", now().since(began));
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let programs = match EtcdPrograms::find() {
            Ok(programs) => programs,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let cluster = programs.start(3).await.unwrap();
        let endpoint = cluster.address(0).to_string();
        let hand = Hand::connect(&endpoint).await;
        println!("{programs}, three members");
        let parts: Vec<String> = std::env::args().skip(1).filter(|part| !part.starts_with('-')).collect();
        let wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
        if wanted("cycles") {
            cycles(&cluster, &hand).await;
        }
        if wanted("handovers") {
            handovers(&cluster, &endpoint).await;
            go(&programs, &cluster);
        }
        if wanted("held") {
            held(&cluster).await;
        }
        drop(Arc::new(cluster));
    });
}
