//! Measures what locks with single-use names leave on the servers: a million names on five real servers.
//!
//! Prints the number of keys and a server's memory every five seconds. Both grow until each hash slot has its fencing
//! counter, and then stay constant. `cargo bench --bench names` takes a minute or two; `NAMES` in the environment
//! changes how many. Exits with an error if the last row is more than 10 % above that at a quarter of the names.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    unreachable_pub,
    missing_docs,
    reason = "a benchmark fails by panicking, and its counts are small numbers"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quorlock::{
    Coordinator,
    runtime::{Clock, SystemClock},
};
use quorlock_testkit::Servers;
use tools::{five_servers, setting};

mod tools;

/// Clients that use names, in turn.
const TASKS: usize = 16;
const TTL: Duration = Duration::from_secs(5);
const BETWEEN_ROWS: Duration = Duration::from_secs(5);

#[tokio::main(worker_threads = 2)]
async fn main() {
    let names = setting("NAMES", 1_000_000);
    let servers = five_servers().await;
    let clock = SystemClock::default();
    let client = Coordinator::builder().nodes(servers.urls()).ttl(TTL).max_ttl(TTL).build().unwrap();
    client.lock("warm").acquire().await.unwrap().release().await.unwrap();
    let (began, used) = (clock.now(), Arc::new(AtomicUsize::new(0)));
    println!("{:>10}{:>12}{:>12}{:>22}", "seconds", "names used", "keys", "MB used by a server");
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (client, used) = (client.clone(), used.clone());
            tokio::spawn(async move {
                for number in 0..names / TASKS {
                    let lease = client.lock(format!("name-{task}-{number}")).acquire().await.unwrap();
                    lease.release().await.unwrap();
                    used.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let mut rows: Vec<(usize, f64)> = Vec::new();
    for row in 1_u32.. {
        clock.sleep_until(began + BETWEEN_ROWS * row).await;
        let (keys, bytes) = stored(&servers).await;
        let (since, used, megabytes) = (clock.now().since(began), used.load(Ordering::Relaxed), bytes / 1e6);
        println!("{:>10}{used:>12}{keys:>12}{megabytes:>22.1}", since.as_secs());
        rows.push((used, megabytes));
        if tasks.iter().all(tokio::task::JoinHandle::is_finished) {
            break;
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    let flat = rows.iter().filter(|(used, _)| *used >= names / 4).map(|(_, megabytes)| *megabytes);
    if let [first, .., last] = flat.collect::<Vec<_>>()[..] {
        assert!(last < first * 1.1, "{last:.1} MB at the end, and {first:.1} MB at a quarter");
    }
    client.close(Duration::from_secs(1)).await;
}

/// The keys of the first server, and its memory in bytes.
async fn stored(servers: &Servers) -> (u64, f64) {
    let server = servers.iter().next().unwrap();
    let keys = server.command(&["DBSIZE"]).await.unwrap().to_string();
    let memory = server.command(&["INFO", "memory"]).await.unwrap().to_string();
    let used = memory.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse();
    let digits: String = keys.chars().filter(char::is_ascii_digit).collect();
    (digits.parse().unwrap(), used.unwrap())
}
