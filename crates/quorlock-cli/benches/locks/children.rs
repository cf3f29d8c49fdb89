//! Scenarios in processes of their own: this program, started again.

use std::cell::Cell;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, join_all};
use quorlock::runtime::{Entropy as _, SystemEntropy};
use quorlock::{Coordinator, Fencing, Handoff, Lock, Wait};
use tokio::process::Command;

use crate::by_hand::Hand;
use crate::scenarios::{now, pause};
use crate::subjects::{Family, Running, client, guarded_client};

const WORK: &str = "QUORLOCK_BENCH_WORK";
const NODES: &str = "QUORLOCK_BENCH_NODES";
const CONTENDED: &str = "bench/contended";
const MOMENT: Duration = Duration::from_millis(1);
/// Includes opening connections.
const WINDOW: Duration = Duration::from_secs(4);
/// Of clients whose first seconds are those before the servers vote.
const LONG_WINDOW: Duration = Duration::from_secs(20);
const COUNT: usize = 10_000;
/// Long enough for two renewals of each lease.
const WATCHED: Duration = Duration::from_secs(20);

/// Does the work of a child, and returns true, if this process is one.
pub(crate) async fn work_if_asked() -> bool {
    let (Ok(work), Ok(nodes)) = (std::env::var(WORK), std::env::var(NODES)) else { return false };
    let nodes: Vec<String> = nodes.split(' ').map(str::to_owned).collect();
    let figures = match &*work.split(' ').collect::<Vec<_>>() {
        ["contend", numbers @ ..] => {
            let [tasks, times, hold, seconds] = numbers else { panic!("{work}") };
            let times = Handoff::times(times.parse().unwrap());
            let [hold, window] =
                [hold, seconds].map(|time| Duration::from_secs_f64(time.parse::<f64>().unwrap()));
            let client = if window < LONG_WINDOW { client(&nodes) } else { guarded_client(&nodes) };
            contend(client.lock(CONTENDED).handoff(times), tasks.parse().unwrap(), hold, window).await
        }
        ["wait"] => wait(&client(&nodes)).await,
        _ => hold(&client(&nodes), &work).await,
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

/// Starts processes that want one lock and hold it for a time in seconds, each with this number of tasks, which pass it on that
/// often within their process.
async fn contenders(
    subject: &Running,
    [count, tasks, times]: [usize; 3],
    hold: f64,
    window: Duration,
) -> Vec<[f64; 2]> {
    let work = format!("contend {tasks} {times} {hold} {}", window.as_secs());
    children(subject, &work, count).await
}

/// Grants a second, and the longest time that a process waited.
fn rate_and_longest(all: &[[f64; 2]]) -> [f64; 2] {
    let granted: f64 = all.iter().map(|[grants, _]| grants).sum();
    [granted / WINDOW.as_secs_f64(), all.iter().map(|[_, wait]| *wait).fold(0.0, f64::max)]
}

/// Of 2 and of 32 processes that want one lock, and hold it for a millisecond.
pub(crate) async fn contended(subject: Arc<Running>) -> Vec<f64> {
    let two = contenders(&subject, [2, 1, 64], 0.001, WINDOW).await;
    let many = contenders(&subject, [32, 1, 64], 0.001, WINDOW).await;
    let ([two, longest_two], [rate, longest]) = (rate_and_longest(&two), rate_and_longest(&many));
    let squares: f64 = many.iter().map(|[grants, _]| grants * grants).sum();
    let fairness = (rate * WINDOW.as_secs_f64()).powi(2) / (many.len() as f64 * squares);
    vec![two, rate, fairness, longest_two, longest]
}

/// Of 8 processes of 16 tasks that pass the lock on 64 or 16 times in a row within one.
pub(crate) async fn passed_on(subject: Arc<Running>) -> Vec<f64> {
    let [more, fewer] = [64, 16].map(|times| contenders(&subject, [8, 16, times], 0.001, WINDOW));
    [rate_and_longest(&more.await), rate_and_longest(&fewer.await)].concat()
}

/// The number of grants, and the longest time in milliseconds that none of the tasks had the lock.
async fn contend(lock: Lock, tasks: usize, hold: Duration, window: Duration) -> [f64; 2] {
    let (end, lock) = (now() + window, lock.wait(Wait::Forever));
    let (grants, longest, had) = (Cell::new(0.0), Cell::new(Duration::ZERO), Cell::new(now()));
    let task = async |_| {
        while now() < end {
            let lease = lock.acquire().await.unwrap();
            longest.set(longest.get().max(now().since(had.get())));
            grants.set(grants.get() + f64::from(u8::from(now() < end)));
            pause(hold).await;
            had.set(now());
            lease.release().await.unwrap();
        }
    };
    join_all((0..tasks).map(task)).await;
    [grants.get(), longest.get().as_secs_f64() * 1e3]
}

/// What a writer, a reader and a caller of two locks wait for beside four processes that hold the lock for 200 ms, and
/// a client that polls, beside 32 that hold it for a millisecond: on average, and at most.
pub(crate) async fn beside(subject: Arc<Running>) -> Vec<f64> {
    let client = guarded_client(&subject.urls);
    let writer = client.lock(CONTENDED).wait(Wait::Forever);
    let reader = writer.clone().shared();
    let several = client.lock_all([CONTENDED, "bench/another"]).wait(Wait::Forever);
    let plain = Hand::connect(Family::Redis, &subject.urls).await;
    let holders = || contenders(&subject, [4, 1, 64], 0.2, LONG_WINDOW);
    let (writer, _) = join(wait_repeatedly(|| acquire_once(&writer)), holders()).await;
    let (reader, _) = join(wait_repeatedly(|| acquire_once(&reader)), holders()).await;
    let (several, _) = join(wait_repeatedly(|| acquire_once(&several)), holders()).await;
    let holders = contenders(&subject, [32, 1, 64], 0.001, LONG_WINDOW);
    let (plain, _) = join(wait_repeatedly(|| plain.poll(CONTENDED)), holders).await;
    [writer, reader, several, plain].concat()
}

/// Holds the lock for a millisecond; how long it waited.
async fn acquire_once<K>(lock: &Lock<K>) -> Duration {
    let began = now();
    let lease = lock.acquire().await.unwrap();
    let waited = now().since(began);
    pause(MOMENT).await;
    lease.release().await.unwrap();
    waited
}

/// Waits again and again, after 0 to 200 ms each, while others contend: milliseconds on average, and at most.
async fn wait_repeatedly<W: Future<Output = Duration>>(wait: impl Fn() -> W) -> [f64; 2] {
    pause(LONG_WINDOW / 2).await;
    let (end, mut waits) = (now() + LONG_WINDOW / 3, Vec::new());
    while now() < end {
        waits.push(wait().await.as_secs_f64() * 1e3);
        pause(MOMENT * u32::try_from(SystemEntropy::default().next_u64() % 200).unwrap()).await;
    }
    [waits.iter().sum::<f64>() / waits.len() as f64, waits.iter().copied().fold(0.0, f64::max)]
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
