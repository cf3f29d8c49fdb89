//! Scenarios in processes of their own: this program, started again.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use quorlock::{Coordinator, Fencing, Wait};
use tokio::process::Command;

use crate::scenarios::{now, pause};
use crate::subjects::{Running, client};

const WORK: &str = "QUORLOCK_BENCH_WORK";
const NODES: &str = "QUORLOCK_BENCH_NODES";
/// Includes opening connections.
const WINDOW: Duration = Duration::from_secs(4);
const COUNT: usize = 10_000;
/// Long enough for two renewals of each lease.
const WATCHED: Duration = Duration::from_secs(20);

/// Does the work of a child, and returns true, if this process is one.
pub(crate) async fn work_if_asked() -> bool {
    let (Ok(work), Ok(nodes)) = (std::env::var(WORK), std::env::var(NODES)) else { return false };
    let nodes: Vec<String> = nodes.split(' ').map(str::to_owned).collect();
    let client = client(&nodes);
    let figures = match &*work {
        "contend" => contend(&client).await,
        "wait" => wait(&client).await,
        work => hold(&client, work).await,
    };
    println!("{} {}", figures[0], figures[1]);
    true
}

/// Starts children with this work, and returns the two figures of each.
async fn children(subject: &Running, work: &str, count: usize) -> Vec<[f64; 2]> {
    let start = |_| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.env(WORK, work).env(NODES, subject.urls.join(" ")).stdout(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..count).map(start).collect();
    let read = async |child: tokio::process::Child| {
        let output = child.wait_with_output().await.unwrap();
        assert!(output.status.success(), "{work}");
        let text = String::from_utf8(output.stdout).unwrap();
        let (one, other) = text.trim().split_once(' ').unwrap();
        [one, other].map(|figure| figure.parse().unwrap())
    };
    join_all(children.into_iter().map(read)).await
}

/// Of 2 and of 32 processes that want one lock, and hold it for a millisecond.
pub(crate) async fn contended(subject: Arc<Running>) -> Vec<f64> {
    let (two, many) = (children(&subject, "contend", 2).await, children(&subject, "contend", 32).await);
    let granted = |all: &[[f64; 2]]| all.iter().map(|[grants, _]| grants).sum::<f64>();
    let longest = |all: &[[f64; 2]]| all.iter().map(|[_, wait]| *wait).fold(0.0, f64::max);
    let squares: f64 = many.iter().map(|[grants, _]| grants * grants).sum();
    let fairness = granted(&many).powi(2) / (many.len() as f64 * squares);
    let rate = |all: &[[f64; 2]]| granted(all) / WINDOW.as_secs_f64();
    vec![rate(&two), rate(&many), fairness, longest(&two), longest(&many)]
}

/// The number of grants, and the longest wait in milliseconds.
async fn contend(client: &Coordinator) -> [f64; 2] {
    let (end, lock) = (now() + WINDOW, client.lock("bench/contended").wait(Wait::Forever));
    let (mut grants, mut longest) = (0.0, Duration::ZERO);
    while now() < end {
        let began = now();
        let lease = lock.acquire().await.unwrap();
        longest = longest.max(now().since(began));
        grants += f64::from(u8::from(now() < end));
        pause(Duration::from_millis(1)).await;
        lease.release().await.unwrap();
    }
    [grants, longest.as_secs_f64() * 1e3]
}

/// Each case in a process of its own: an earlier one's memory would be used again unnoticed.
pub(crate) async fn held(subject: Arc<Running>) -> Vec<f64> {
    let mut figures = Vec::new();
    for work in ["hold in bursts", "hold singly", "hold watched", "wait"] {
        figures.extend(children(&subject, work, 1).await);
    }
    let [[lease, bursts], [_, singly], [watched, _], [task, waiting]] = figures[..] else { panic!("four") };
    vec![lease, bursts, singly, watched, task, waiting]
}

/// Bytes a lease, and the share of a core that all of them take.
async fn hold(client: &Coordinator, work: &str) -> [f64; 2] {
    let burst = if work == "hold singly" { 1 } else { 500 };
    // Connections and the allocator's pools exist in any case.
    join_all(acquire(client, "warm", 500, burst).await.into_iter().map(quorlock::Lease::release)).await;
    let before = resident();
    let leases = acquire(client, "held", COUNT, burst).await;
    let watches: Vec<_> = if work == "hold watched" { &leases[..] } else { &[] }
        .iter()
        .map(|lease| {
            let watch = lease.watch();
            tokio::spawn(async move { watch.lost().await })
        })
        .collect();
    // Each has been renewed once.
    pause(Duration::from_secs(12)).await;
    let memory = resident().saturating_sub(before);
    let share = share_of_a_core(WATCHED).await;
    assert!(watches.iter().all(|watch| !watch.is_finished()), "a lease was lost");
    assert!(leases.iter().all(|lease| lease.check().is_ok()), "a lease was lost");
    join_all(leases.into_iter().map(quorlock::Lease::release)).await;
    [memory as f64 / COUNT as f64, share]
}

async fn acquire(client: &Coordinator, name: &str, count: usize, burst: usize) -> Vec<quorlock::Lease> {
    let mut leases = Vec::with_capacity(count);
    while leases.len() < count {
        let next = leases.len();
        let some = (next..count.min(next + burst))
            .map(async |number| client.lock(format!("bench/{name}/{number}")).acquire().await.unwrap());
        leases.extend(join_all(some).await);
    }
    leases
}

/// Bytes a task that waits for one lock, and the share of a core that all of them take.
async fn wait(client: &Coordinator) -> [f64; 2] {
    let lock = client.lock("bench/wanted").fencing(Fencing::On).wait(Wait::Forever);
    let lease = lock.acquire().await.unwrap();
    let before = resident();
    let waiters: Vec<_> = (0..COUNT)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await.map(drop) })
        })
        .collect();
    pause(Duration::from_secs(1)).await;
    let memory = resident().saturating_sub(before);
    let share = share_of_a_core(WATCHED / 2).await;
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    lease.release().await.unwrap();
    [memory as f64 / COUNT as f64, share]
}

async fn share_of_a_core(time: Duration) -> f64 {
    let (before, began) = (processor_time(), now());
    pause(time).await;
    100.0 * (processor_time().saturating_sub(before)).as_secs_f64() / now().since(began).as_secs_f64()
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

/// In bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
