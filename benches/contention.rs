//! Measures contention: one lock, holds of a millisecond, five real servers, many tasks in one or
//! several client processes.
//!
//! Prints grants per second, the time from a release to the next hold, and per grant the scripts and
//! all commands (including those inside scripts) that the servers ran; the share of grants that needed
//! a second round to write the number back, the rounds lost per grant, and how evenly the waiters were
//! served. `cargo bench --bench contention`, or with the names of some cases, such as `-- 8x1 8x1-off`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a benchmark fails by panicking"
)]

use std::fmt;
use std::process::Stdio;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hdrhistogram::Histogram;
use quorlock::protocol::Moment;
use quorlock::{
    Coordinator, Fencing, RestartGuard, Wait,
    runtime::{Clock, SystemClock},
};
use quorlock_testkit::Servers;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const HOLD: Duration = Duration::from_millis(1);
const GRANTS: usize = 1_500;

/// The job of a worker: its nodes, whether it uses fencing, the number of tasks, and how often each
/// takes the lock. The same program is started again as a worker.
const WORKER: &str = "QUORLOCK_BENCH_WORKER";

struct Case {
    fencing: Fencing,
    processes: usize,
    tasks: usize,
}

const PROCESSES_AND_TASKS: [(usize, usize); 6] = [(1, 8), (1, 32), (1, 128), (2, 1), (8, 1), (8, 16)];

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fencing = if self.fencing == Fencing::On { "" } else { "-off" };
        write!(f, "{}x{}{fencing}", self.processes, self.tasks)
    }
}

#[tokio::main]
async fn main() {
    if let Ok(order) = std::env::var(WORKER) {
        return work(&order).await;
    }
    let names: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let servers = Servers::start(5).await.unwrap();
    println!("five servers: {}", servers.kind());
    assert!(servers.kind().is_real(), "figures come from real servers only: install redis-server");
    println!("a round trip to a quorum: {} µs", round_trip(&client(&servers)).await);
    if names.is_empty() {
        together(&servers).await;
    }
    println!(
        "{:>18}{:>10}{:>28}{:>16}{:>16}{:>16}{:>14}{:>26}",
        "processes x tasks",
        "grants/s",
        "hand-over p50 / p99 (µs)",
        "scripts/grant",
        "commands/grant",
        "second rounds",
        "lost rounds",
        "slowest / median wait"
    );
    for fencing in [Fencing::On, Fencing::Off] {
        for (processes, tasks) in PROCESSES_AND_TASKS {
            let case = Case { fencing, processes, tasks };
            if names.is_empty() || names.contains(&case.to_string()) {
                measure(&servers, &case).await;
            }
        }
    }
}

fn client(servers: &Servers) -> Coordinator {
    Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off).build().unwrap()
}

/// The median time of a request to all nodes.
async fn round_trip(client: &Coordinator) -> u64 {
    let (clock, mut times) =
        (SystemClock::default(), Histogram::<u64>::new_with_bounds(1, 60_000_000, 3).unwrap());
    for _ in 0..500 {
        let start = clock.now();
        client.lock("unused").inspect().await.unwrap();
        times.saturating_record(micros(clock.now().since(start)));
    }
    times.value_at_quantile(0.5)
}

/// The time until each of 32 tasks that start together has held the lock once.
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
        "32 tasks that start together, relative to the ideal of one hold and one round each: {median:.2}, worst {worst:.2}"
    );
    client.close(Duration::from_secs(1)).await;
}

/// A worker: prints when each grant began and ended, on the clock of the machine, and how long it
/// waited; at the end, how many rounds were written back and lost.
async fn work(order: &str) {
    tracing::subscriber::set_global_default(EventLog).unwrap();
    let [nodes, fencing, tasks, each] = order.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let (tasks, each): (usize, usize) = (tasks.parse().unwrap(), each.parse().unwrap());
    let fencing = if fencing == "on" { Fencing::On } else { Fencing::Off };
    let (clock, nodes) = (SystemClock::default(), nodes.split(','));
    let client = Coordinator::builder().nodes(nodes).restart_guard(RestartGuard::Off).build().unwrap();
    client.lock("warm").acquire().await.unwrap().release().await.unwrap();
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let running: Vec<_> = (0..tasks)
        .map(|_| {
            let lock = client.lock("contended").fencing(fencing).wait(Wait::Forever);
            tokio::spawn(async move {
                let mut grants = Vec::with_capacity(each);
                for _ in 0..each {
                    let wanted = clock.now();
                    let lease = lock.acquire().await.unwrap();
                    let began = clock.now();
                    clock.sleep_until(began + HOLD).await;
                    grants.push([wanted, began, clock.now()]);
                    lease.release().await.unwrap();
                }
                grants
            })
        })
        .collect();
    for task in running {
        for grant in task.await.unwrap() {
            println!("{}", grant.map(|at| at.since(Moment::ORIGIN).as_nanos().to_string()).join(" "));
        }
    }
    println!("{} {}", ROUNDS.written_back.load(Relaxed), ROUNDS.lost.load(Relaxed));
    client.close(Duration::from_secs(1)).await;
}

async fn measure(servers: &Servers, case: &Case) {
    let each = GRANTS / (case.processes * case.tasks);
    let fencing = if case.fencing == Fencing::On { "on" } else { "off" };
    let order = format!("{} {fencing} {} {each}", servers.urls().join(","), case.tasks);
    let workers = (0..case.processes).map(|_| {
        let mut worker = Command::new(std::env::current_exe().unwrap());
        worker.env(WORKER, &order).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        worker.spawn().unwrap()
    });
    let mut workers: Vec<_> =
        workers.map(|mut worker| (BufReader::new(worker.stdout.take().unwrap()).lines(), worker)).collect();
    for (lines, _) in &mut workers {
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
    }
    let before = requests(servers).await;
    for (_, worker) in &mut workers {
        worker.stdin.take().unwrap().write_all(b"go\n").await.unwrap();
    }
    let (mut grants, mut written_back, mut lost) = (Vec::new(), 0, 0);
    for (lines, worker) in &mut workers {
        while let Some(line) = lines.next_line().await.unwrap() {
            let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
            match *numbers {
                [wanted, began, ended] => grants.push((began, ended, began - wanted)),
                [more_written_back, more_lost] => {
                    (written_back, lost) = (written_back + more_written_back, lost + more_lost);
                }
                _ => panic!("no line of a worker: {line}"),
            }
        }
        assert!(worker.wait().await.unwrap().success());
    }
    let (scripts, commands) = requests(servers).await;
    let (scripts, commands) = (scripts - before.0, commands - before.1);
    grants.sort_unstable();
    let mut handoffs = Histogram::<u64>::new_with_bounds(1, 60_000_000, 3).unwrap();
    let mut waits = handoffs.clone();
    for pair in grants.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two holders");
        handoffs.saturating_record((pair[1].0 - pair[0].1) / 1000);
    }
    for (_, _, waited) in &grants {
        waits.saturating_record(waited / 1000);
    }
    let took = grants.last().unwrap().1 - grants.first().unwrap().0;
    #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are small numbers")]
    let (rate, spread, per_grant) = (
        grants.len() as f64 / Duration::from_nanos(took).as_secs_f64(),
        waits.max() as f64 / waits.value_at_quantile(0.5).max(1) as f64,
        |count: u64| count as f64 / grants.len() as f64,
    );
    let handoff = format!("{} / {}", handoffs.value_at_quantile(0.5), handoffs.value_at_quantile(0.99));
    println!(
        "{:>18}{rate:>10.0}{handoff:>28}{:>16.1}{:>16.1}{:>14.1} %{:>14.1}{spread:>26.1}",
        case.to_string(),
        per_grant(scripts),
        per_grant(commands),
        per_grant(written_back) * 100.0,
        per_grant(lost),
    );
}

/// How many scripts the servers have run, and how many commands inside and outside scripts.
async fn requests(servers: &Servers) -> (u64, u64) {
    let (mut scripts, mut all) = (0, 0);
    for server in servers.iter() {
        let stats = server.command(&["INFO", "commandstats"]).await.unwrap().to_string();
        for line in stats.lines() {
            let Some((command, rest)) = line.split_once(":calls=") else { continue };
            let calls = rest.split(',').next().and_then(|calls| calls.parse::<u64>().ok()).unwrap_or(0);
            match command {
                "cmdstat_info" => {}
                "cmdstat_eval" | "cmdstat_evalsha" => (scripts, all) = (scripts + calls, all + calls),
                _ => all += calls,
            }
        }
    }
    (scripts, all)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Counts rounds from the tracing events.
struct Rounds {
    written_back: AtomicU64,
    lost: AtomicU64,
}

static ROUNDS: Rounds = Rounds { written_back: AtomicU64::new(0), lost: AtomicU64::new(0) };

struct EventLog;

impl Subscriber for EventLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && matches!(metadata.target(), "quorlock::engine::fencing" | "quorlock::engine::contender")
    }

    fn event(&self, event: &Event<'_>) {
        let count = if event.metadata().target() == "quorlock::engine::fencing" {
            &ROUNDS.written_back
        } else {
            &ROUNDS.lost
        };
        count.fetch_add(1, Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
