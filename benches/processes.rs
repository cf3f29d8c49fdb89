//! Measures contention between processes: one lock that all of them want, holds of a millisecond unless
//! set, five real servers, and a delay as between datacenters.
//!
//! `cargo bench --bench processes`, or with options:
//!
//! ```text
//! -- [--round-trip MS] [--seconds S] [--rounds N] [--fencing-off] [--kill N] [--stop N] [--beside WHAT]
//!    [--hold MS] [--tasks N] [--handoff N] [PROCESSES]...
//! ```
//!
//! `--tasks` is the number of tasks in each process that contend for the lock, and `--handoff` limits
//! how often in a row it passes between tasks of one process (64 by default). Printed are the number of
//! these handoffs, and how long a process waited while another one held the lock, and a task.
//!
//! `--beside` adds a client that also wants the lock, holds it for a millisecond, and wants it again
//! after 0 to 200 ms: `plain` knows no queue, sends `SET NX PX` to all nodes, and again after 0 to
//! 200 ms; `writer` is like the others; `shared` is a reader; `several` also locks a second resource,
//! and `busy` one that as many other clients want. Its waits are printed, and those of the processes.
//!
//! `--kill` kills that many processes in the middle of the window with `SIGKILL`, and `--stop` stops
//! that many with `SIGSTOP`. Their own grants are not counted. One of them may be the holder: its lock
//! then stays until its TTL ends.
//!
//! Printed are the median of the rounds for grants, and the worst gaps. A gap is a time without a holder while all but one
//! process waited for the lock. Two simultaneous holders, or fencing tokens out of order, end the bench with an error.
//! `scripts/peers processes distance` measures what a grant costs, beside other locks.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_precision_loss,
    unreachable_pub,
    missing_docs,
    reason = "a benchmark fails by panicking, and its counts are small"
)]

#[path = "processes/beside.rs"]
mod beside;
mod tools;

use std::process::Stdio;
use std::time::Duration;

use futures::future::join_all;
use quorlock::protocol::Moment;
use quorlock::{
    Coordinator, Fencing, Handoff, Wait,
    runtime::{Clock, SystemClock},
};
use quorlock_testkit::{Proxy, Way};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use beside::Beside;
use tools::{five_servers, median};

/// How long the additional client holds the lock, and each process unless set.
const HOLD: Duration = Duration::from_millis(1);
/// Servers that have just been started wait this long before they vote.
const TTL: Duration = Duration::from_secs(5);

/// The job of a worker: the same program is started again as a worker.
const WORKER: &str = "QUORLOCK_BENCH_WORKER";

#[derive(Clone)]
struct Settings {
    round_trip: Duration,
    window: Duration,
    rounds: usize,
    fencing: bool,
    killed: usize,
    stopped: usize,
    beside: Option<Beside>,
    hold: Duration,
    tasks: usize,
    handoff: Option<u32>,
    processes: Vec<usize>,
}

impl Settings {
    fn read() -> Settings {
        let mut settings = Settings {
            round_trip: Duration::ZERO,
            window: Duration::from_secs(3),
            rounds: 3,
            fencing: true,
            killed: 0,
            stopped: 0,
            beside: None,
            hold: HOLD,
            tasks: 1,
            handoff: None,
            processes: Vec::new(),
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            if word == "--beside" {
                settings.beside = words.next().map(|word| Beside::named(&word));
                continue;
            }
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect("a number");
            match &*word {
                "--bench" => {}
                "--round-trip" => settings.round_trip = Duration::from_millis(number()),
                "--seconds" => settings.window = Duration::from_secs(number()),
                "--rounds" => settings.rounds = usize::try_from(number()).unwrap(),
                "--fencing-off" => settings.fencing = false,
                "--kill" => settings.killed = usize::try_from(number()).unwrap(),
                "--hold" => settings.hold = Duration::from_millis(number()),
                "--tasks" => settings.tasks = usize::try_from(number()).unwrap(),
                "--handoff" => settings.handoff = Some(u32::try_from(number()).unwrap()),
                "--stop" => settings.stopped = usize::try_from(number()).unwrap(),
                word => settings.processes.push(word.parse().expect("a number of processes")),
            }
        }
        if settings.processes.is_empty() {
            settings.processes = vec![2, 8, 32, 100];
        }
        settings
    }
}

fn main() {
    if let Ok(order) = std::env::var(WORKER) {
        // One single-threaded process each, like a typical user's.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(work(&order));
    }
    tokio::runtime::Runtime::new().unwrap().block_on(compare(&Settings::read()));
}

async fn compare(settings: &Settings) {
    let servers = five_servers().await;
    let clock = SystemClock::default();
    // Servers report their age in whole seconds.
    clock.sleep_until(clock.now() + TTL + Duration::from_secs(2)).await;
    let mut proxies = Vec::new();
    let mut urls = servers.urls();
    if !settings.round_trip.is_zero() {
        for server in servers.iter() {
            let proxy = Proxy::before(server).await.unwrap();
            proxy.delay(Way::Both, settings.round_trip / 2);
            proxies.push(proxy);
        }
        urls = proxies.iter().map(Proxy::url).collect();
    }
    println!(
        "round trip + {} ms, fencing {}, {} rounds of {} s",
        settings.round_trip.as_millis(),
        if settings.fencing { "on" } else { "off" },
        settings.rounds,
        settings.window.as_secs()
    );
    println!("{:>10}{:>10}{:>14}", "processes", "grants/s", "gap (ms)");
    for processes in &settings.processes {
        let mut figures = Vec::new();
        for round in 0..settings.rounds {
            figures.push(measure(settings, &urls, *processes, round).await);
        }
        let of = |figure: fn(&Figures) -> f64| median(figures.iter().map(figure).collect());
        let worst = |figure: fn(&Figures) -> f64| figures.iter().map(figure).fold(0.0, f64::max);
        println!("{processes:>10}{:>10.1}{:>14.1}", of(|f| f.rate), worst(|f| f.gap));
        if settings.tasks > 1 {
            println!(
                "           {} tasks each: {:.0} grants in a row for one process (median; {:.0} at most), {:.0} ms at most \
                 for a process without, {:.0} ms at most for a task (p50 {:.0} ms)",
                settings.tasks,
                of(|f| f.in_a_row),
                worst(|f| f.longest_row),
                worst(|f| f.longest_away),
                worst(|f| f.longest_wait),
                of(|f| f.wait),
            );
        }
        if let Some(beside) = settings.beside {
            let waits: Vec<_> = figures.iter().flat_map(|figures| &figures.beside).collect();
            let seen = figures.iter().filter_map(|figures| figures.beside.iter().skip(1).max()).max();
            let millis = |time: Option<&Duration>| time.map_or(0, Duration::as_millis);
            println!(
                "           {beside:?}: {} waits, {} ms on average, at most {} ms, {} ms after its first grant; \
                 a process waits {:.0} ms (p50), at most {:.0} ms",
                waits.len(),
                waits.iter().copied().sum::<Duration>().as_millis() as usize / waits.len().max(1),
                millis(waits.iter().max().copied()),
                millis(seen),
                of(|f| f.wait),
                worst(|f| f.longest_wait),
            );
        }
    }
}

/// The results of one round.
struct Figures {
    rate: f64,
    /// The longest gap, in milliseconds.
    gap: f64,
    /// How many grants in a row a process had: the median of the series, by grants, and the longest.
    in_a_row: f64,
    longest_row: f64,
    /// The longest time that a process went without the lock, in milliseconds.
    longest_away: f64,
    /// Waits of tasks of the processes, in milliseconds.
    wait: f64,
    longest_wait: f64,
    /// The waits of the additional client, for each of its grants.
    beside: Vec<Duration>,
}

/// A worker: prints when each grant began and ended, on the clock of the machine, and its number.
async fn work(order: &str) {
    let [nodes, name, window, hold, fencing, tasks, handoff] =
        order.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let [window, hold] = [window, hold].map(|time| Duration::from_millis(time.parse().unwrap()));
    let (clock, nodes) = (SystemClock::default(), nodes.split(','));
    // With the restart guard, which is the default: without it there are no offers.
    let client = Coordinator::builder().nodes(nodes).ttl(TTL).max_ttl(TTL).build().unwrap();
    client.lock(format!("warm {}", std::process::id())).acquire().await.unwrap().release().await.unwrap();
    let fencing = if fencing == "on" { Fencing::On } else { Fencing::Off };
    let lock = client.lock(name).fencing(fencing).wait(Wait::Forever);
    let handoff = handoff.parse().map_or_else(|_| Handoff::default(), Handoff::times);
    let lock = lock.handoff(handoff);
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let end = clock.now() + window;
    let grants = std::cell::RefCell::new(Vec::new());
    let task = async || {
        loop {
            let wanted = clock.now();
            let lease = lock.acquire().await.unwrap();
            let number = lease.fencing_token().map_or(0, quorlock::FencingToken::get);
            let began = clock.now();
            clock.sleep_until(began + hold).await;
            grants.borrow_mut().push((began, clock.now(), number, wanted));
            lease.release().await.unwrap();
        }
    };
    let tasks = join_all((0..tasks.parse::<usize>().unwrap()).map(|_| task()));
    tokio::select! {
        _ = tasks => {}
        () = clock.sleep_until(end) => {}
    }
    for (began, ended, number, wanted) in grants.into_inner() {
        let [began, ended, wanted] = [began, ended, wanted].map(|at| at.since(Moment::ORIGIN).as_nanos());
        println!("{began} {ended} {number} {wanted}");
    }
    client.close(Duration::from_secs(1)).await;
}

async fn measure(settings: &Settings, urls: &[String], processes: usize, round: usize) -> Figures {
    let on = |whether: bool, word| if whether { word } else { "-" };
    let name = format!("contended-{processes}-{round}");
    let order = format!(
        "{} {name} {} {} {} {} {}",
        urls.join(","),
        settings.window.as_millis(),
        settings.hold.as_millis(),
        on(settings.fencing, "on"),
        settings.tasks,
        settings.handoff.map_or_else(|| "-".to_owned(), |times| times.to_string())
    );
    let start = |_| {
        let mut worker = Command::new(std::env::current_exe().unwrap());
        worker.env(WORKER, &order).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut worker = worker.spawn().unwrap();
        (BufReader::new(worker.stdout.take().unwrap()).lines(), worker)
    };
    let mut workers: Vec<_> = (0..processes).map(start).collect();
    for (lines, _) in &mut workers {
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
    }
    for (_, worker) in &mut workers {
        worker.stdin.take().unwrap().write_all(b"go\n").await.unwrap();
    }
    let times = (settings.window, settings.hold);
    let beside =
        settings.beside.map(|beside| tokio::spawn(beside.want(urls.to_vec(), name, times, processes)));
    let victims = workers.split_off(processes - settings.killed - settings.stopped);
    if !victims.is_empty() {
        let clock = SystemClock::default();
        clock.sleep_until(clock.now() + settings.window / 2).await;
    }
    for (number, (_, worker)) in victims.iter().enumerate() {
        let signal = if number < settings.killed { Signal::KILL } else { Signal::STOP };
        let id = worker.id().and_then(|id| Pid::from_raw(id.try_into().unwrap())).unwrap();
        kill_process(id, signal).unwrap();
    }
    let (mut grants, mut waits) = (Vec::new(), Vec::new());
    for (process, (lines, worker)) in workers.iter_mut().enumerate() {
        while let Some(line) = lines.next_line().await.unwrap() {
            let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
            let [began, ended, number, wanted] = *numbers else { panic!("no line of a worker: {line}") };
            waits.push((began - wanted) as f64 / 1e6);
            grants.push((began, ended, number, process));
        }
        assert!(worker.wait().await.unwrap().success());
    }
    assert!(grants.len() > 1, "{processes} processes were granted the lock {} times", grants.len());
    grants.sort_unstable();
    let mut gap = Duration::ZERO;
    for pair in grants.windows(2) {
        let ((_, ended, number, _), (began, _, next, _)) = (pair[0], pair[1]);
        assert!(ended <= began, "two holders");
        assert!(number < next || !settings.fencing, "fencing token {next} came after {number}");
        gap = gap.max(Duration::from_nanos(began - ended));
    }
    let (rows, away) = rows(&grants, workers.len());
    let took = Duration::from_nanos(grants.last().unwrap().1 - grants.first().unwrap().0);
    Figures {
        rate: grants.len() as f64 / took.as_secs_f64(),
        gap: gap.as_secs_f64() * 1e3,
        longest_row: rows.iter().copied().fold(0.0, f64::max),
        in_a_row: median(rows),
        longest_away: away.as_secs_f64() * 1e3,
        longest_wait: waits.iter().copied().fold(0.0, f64::max),
        wait: median(waits),
        beside: match beside {
            Some(waits) => waits.await.unwrap(),
            None => Vec::new(),
        },
    }
}

/// For each grant, the length of the series of its process; and the longest time between two grants of
/// one process.
fn rows(grants: &[(u64, u64, u64, usize)], processes: usize) -> (Vec<f64>, Duration) {
    let (mut rows, mut away) = (Vec::new(), Duration::ZERO);
    for row in grants.chunk_by(|one, next| one.3 == next.3) {
        rows.extend(std::iter::repeat_n(row.len() as f64, row.len()));
    }
    for process in 0..processes {
        let own: Vec<_> = grants.iter().filter(|grant| grant.3 == process).collect();
        for pair in own.windows(2) {
            away = away.max(Duration::from_nanos(pair[1].0 - pair[0].1));
        }
    }
    (rows, away)
}
