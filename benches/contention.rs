//! What waiting costs: one lock, holds of a millisecond, five real servers; many tasks of one
//! process, and many clients with connections of their own, as in many processes.
//!
//! Prints grants a second, the time from a release to the next holder, requests for each grant,
//! and how evenly the waiters were served. `cargo bench --bench contention`
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "a benchmark fails by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hdrhistogram::Histogram;
use quorlock::protocol::Moment;
use quorlock::{Clock, Coordinator, RestartGuard, SystemClock, Wait};
use quorlock_testkit::Servers;

const HOLD: Duration = Duration::from_millis(1);
const GRANTS: usize = 1_500;

struct Case {
    clients: usize,
    tasks: usize,
}

const CASES: [Case; 6] = [
    Case { clients: 1, tasks: 8 },
    Case { clients: 1, tasks: 32 },
    Case { clients: 1, tasks: 128 },
    Case { clients: 2, tasks: 1 },
    Case { clients: 8, tasks: 1 },
    Case { clients: 8, tasks: 16 },
];

#[tokio::main]
async fn main() {
    let servers = Servers::start(5).await.unwrap();
    println!("five servers: {}", servers.kind());
    assert!(servers.kind().is_real(), "figures come from real servers only: install redis-server");
    println!("a round trip to a quorum: {} µs", round_trip(&client(&servers)).await);
    together(&servers).await;
    println!(
        "{:>8}{:>7}{:>10}{:>28}{:>16}{:>26}",
        "clients", "tasks", "grants/s", "hand-over p50 / p99 (µs)", "requests/grant", "slowest / median wait"
    );
    for case in CASES {
        measure(&servers, case).await;
    }
}

fn client(servers: &Servers) -> Coordinator {
    Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off).build().unwrap()
}

/// The median time of a question to all nodes.
async fn round_trip(client: &Coordinator) -> u64 {
    let (clock, mut times) =
        (SystemClock::default(), Histogram::<u64>::new_with_bounds(1, 60_000_000, 3).unwrap());
    for _ in 0..500 {
        let start = clock.now();
        client.lock("nobody wants it").inspect().await.unwrap();
        times.saturating_record(micros(clock.now().since(start)));
    }
    times.value_at_quantile(0.5)
}

/// How long it takes until 32 tasks that come at the same moment have held the lock once each.
async fn together(servers: &Servers) {
    const TASKS: u32 = 32;
    let (clock, client) = (SystemClock::default(), client(servers));
    let round_trip = Duration::from_micros(round_trip(&client).await);
    let mut ratios = Vec::new();
    for burst in 0..15 {
        let lock = client.lock(format!("burst {burst}")).wait(Wait::Forever);
        let start = clock.now();
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let lock = lock.clone();
                tokio::spawn(async move {
                    let lease = lock.acquire().await.unwrap();
                    let held = clock.now();
                    clock.sleep_until(held + HOLD).await;
                    let held = clock.now().since(held);
                    lease.release().await.unwrap();
                    held
                })
            })
            .collect();
        // A sleep of a millisecond takes somewhat longer.
        let mut ideal = round_trip * TASKS;
        for task in tasks {
            ideal += task.await.unwrap();
        }
        ratios.push(clock.now().since(start).as_secs_f64() / ideal.as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    let (median, worst) = (ratios.get(ratios.len() / 2).unwrap(), ratios.last().unwrap());
    println!(
        "32 tasks that come together, to the ideal of holds and one round each: {median:.2}, worst {worst:.2}"
    );
    client.close(Duration::from_secs(1)).await;
}

async fn measure(servers: &Servers, Case { clients, tasks }: Case) {
    let clock = SystemClock::default();
    let released: Arc<Mutex<Option<Moment>>> = Arc::default();
    let hand_overs = Arc::new(Mutex::new(Histogram::<u64>::new_with_bounds(1, 60_000_000, 3).unwrap()));
    let waits = Arc::new(Mutex::new(Histogram::<u64>::new_with_bounds(1, 60_000_000, 3).unwrap()));
    let clients: Vec<Coordinator> = (0..clients).map(|_| client(servers)).collect();
    for client in &clients {
        client.lock("warm").acquire().await.unwrap().release().await.unwrap();
    }
    let each = GRANTS / (clients.len() * tasks);
    let before = requests(servers).await;
    let start = clock.now();
    let running: Vec<_> = clients
        .iter()
        .flat_map(|client| std::iter::repeat_n(client, tasks))
        .map(|client| {
            let lock = client.lock("contended").wait(Wait::Forever);
            let (released, hand_overs, waits) = (released.clone(), hand_overs.clone(), waits.clone());
            tokio::spawn(async move {
                for _ in 0..each {
                    let wanted = clock.now();
                    let lease = lock.acquire().await.unwrap();
                    let now = clock.now();
                    if let Some(released) = released.lock().unwrap().take() {
                        hand_overs.lock().unwrap().saturating_record(micros(now.since(released)));
                    }
                    waits.lock().unwrap().saturating_record(micros(now.since(wanted)));
                    clock.sleep_until(now + HOLD).await;
                    *released.lock().unwrap() = Some(clock.now());
                    lease.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in running {
        task.await.unwrap();
    }
    let took = clock.now().since(start);
    let asked = requests(servers).await - before;
    let grants = each * clients.len() * tasks;
    let hand_overs = hand_overs.lock().unwrap().clone();
    let waits = waits.lock().unwrap().clone();
    #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are small numbers")]
    let (rate, per_grant, spread) = (
        grants as f64 / took.as_secs_f64(),
        asked as f64 / grants as f64,
        waits.max() as f64 / waits.value_at_quantile(0.5).max(1) as f64,
    );
    let hand_over = format!("{} / {}", hand_overs.value_at_quantile(0.5), hand_overs.value_at_quantile(0.99));
    println!("{:>8}{tasks:>7}{rate:>10.0}{hand_over:>28}{per_grant:>16.1}{spread:>26.1}", clients.len());
    for client in clients {
        client.close(Duration::from_secs(1)).await;
    }
}

/// How many scripts the servers have run.
async fn requests(servers: &Servers) -> u64 {
    let mut all = 0;
    for server in servers.iter() {
        let stats = server.command(&["INFO", "commandstats"]).await.unwrap().to_string();
        for command in ["cmdstat_eval:calls=", "cmdstat_evalsha:calls="] {
            let calls = stats.lines().find_map(|line| line.strip_prefix(command));
            all += calls.and_then(|calls| calls.split(',').next()?.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    all
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
