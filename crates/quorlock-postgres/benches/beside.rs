//! Compares quorlock on PostgreSQL with hand-written locks and with advisory locks, interleaved on one
//! server.
//!
//! `cargo bench -p quorlock-postgres` prints: p50 of a cycle with one task, cycles per second with 64 tasks
//! (by hand with a pool of 20 connections), grants per second of 32 processes that compete for one lock and
//! hold it for 1 ms each, and the number of requests per grant. An argument after `--` selects the
//! measurements whose names contain it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench fails by panicking"
)]
#![allow(
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench measures the time that passes"
)]

use std::env;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures::future::join_all;
use quorlock::{Coordinator, RestartGuard};
use quorlock_postgres::PostgresKind;
use quorlock_testkit::Engine;
use tokio::sync::Semaphore;
use tokio_postgres::{Client, NoTls, Statement};

const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_secs(2);
/// Includes starting the processes and opening their connections.
const TIME_OF_PROCESSES: Duration = Duration::from_secs(6);
const TASKS: usize = 64;
const POOL: usize = 20;
const PROCESSES: usize = 32;

const WHAT: [&str; 8] = [
    "p50 of a cycle by hand, one task, us",
    "p50 of a cycle, one task, us",
    "cycles per second by hand, 64 tasks, a pool of 20",
    "cycles per second, 64 tasks",
    "grants per second by pg_advisory_lock, 32 processes",
    "grants per second, 32 processes",
    "requests per hundred grants, 2 processes",
    "requests per hundred grants, 32 processes",
];

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match env::var("BESIDE_CHILD") {
        Ok(what) => runtime.block_on(child(&what)),
        Err(_) => runtime.block_on(compare()),
    }
}

async fn compare() {
    let engine = match Engine::postgres() {
        Ok(engine) => engine.settings(&["max_connections=300", "track_functions=pl"]),
        Err(why) => return println!("skipped: {why}"),
    };
    let server = engine.start().await.unwrap();
    // Its Unix socket.
    let (folder, port) = (server.folder().display(), server.address().port());
    let url = format!("postgres://postgres@/postgres?host={folder}&port={port}");
    let client = connect(&url).await;
    client
        .batch_execute("CREATE TABLE hand (key text PRIMARY KEY, token text, expires timestamptz)")
        .await
        .unwrap();
    let pool = Pool::connect(&url, POOL).await;
    let coordinator = coordinator(&url);
    let only = env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    let mut figures = WHAT.map(|_| Vec::new());
    for round in 0..ROUNDS {
        for (place, what) in WHAT.iter().enumerate().filter(|(_, what)| what.contains(&only)) {
            figures[place].push(match place {
                0 => measure(1, |task, count| by_hand(&pool, task, count)).await.median_micros,
                1 => measure(1, |task, count| by_quorlock(&coordinator, task, count)).await.median_micros,
                2 => measure(TASKS, |task, count| by_hand(&pool, task, count)).await.per_second,
                3 => measure(TASKS, |task, count| by_quorlock(&coordinator, task, count)).await.per_second,
                4 => processes("advisory", PROCESSES, &url, &client).await,
                5 => processes("quorlock", PROCESSES, &url, &client).await,
                6 => requests(2, &url, &client).await,
                _ => requests(PROCESSES, &url, &client).await,
            });
            println!("  {what}: {:.0}", figures[place][round]);
        }
    }
    for (what, figures) in WHAT.iter().zip(&mut figures).filter(|(_, figures)| !figures.is_empty()) {
        figures.sort_by(f64::total_cmp);
        println!("{what}: {:.0} ({:.0} to {:.0})", figures[ROUNDS / 2], figures[0], figures[ROUNDS - 1]);
    }
}

fn coordinator(url: &str) -> Coordinator {
    let builder = Coordinator::builder().kind(PostgresKind::new()).nodes([url]);
    builder.restart_guard(RestartGuard::Off).build().unwrap()
}

struct Cycles {
    median_micros: f64,
    per_second: f64,
}

/// Runs `cycle` in `tasks` tasks for a fixed time.
async fn measure<F: Future<Output = ()>>(tasks: usize, cycle: impl Fn(usize, u64) -> F) -> Cycles {
    let end = Instant::now() + TIME;
    let took = join_all((0..tasks).map(|task| {
        let cycle = &cycle;
        async move {
            let mut took = Vec::new();
            let mut count = 0;
            while Instant::now() < end {
                let began = Instant::now();
                cycle(task, count).await;
                took.push(began.elapsed().as_secs_f64() * 1e6);
                count += 1;
            }
            took
        }
    }))
    .await;
    let mut took: Vec<f64> = took.into_iter().flatten().collect();
    took.sort_by(f64::total_cmp);
    Cycles { median_micros: took[took.len() / 2], per_second: took.len() as f64 / TIME.as_secs_f64() }
}

async fn by_quorlock(coordinator: &Coordinator, task: usize, _: u64) {
    let lock = coordinator.lock(format!("task/{task}"));
    lock.acquire().await.unwrap().release().await.unwrap();
}

/// A hand-written lock: insert with an expiry, delete by token.
struct Pool {
    clients: Vec<(Client, Statement, Statement)>,
    free: Semaphore,
    next: std::sync::Mutex<Vec<usize>>,
}

impl Pool {
    async fn connect(url: &str, size: usize) -> Pool {
        let mut clients = Vec::new();
        for _ in 0..size {
            let client = connect(url).await;
            let insert = "INSERT INTO hand VALUES ($1, $2, clock_timestamp() + interval '30 s') ON CONFLICT (key) DO UPDATE \
                          SET token = EXCLUDED.token, expires = EXCLUDED.expires WHERE hand.expires < clock_timestamp()";
            let insert = client.prepare(insert).await.unwrap();
            let delete = client.prepare("DELETE FROM hand WHERE key = $1 AND token = $2").await.unwrap();
            clients.push((client, insert, delete));
        }
        Pool { clients, free: Semaphore::new(size), next: std::sync::Mutex::new((0..size).collect()) }
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    drop(tokio::spawn(connection));
    client
}

async fn by_hand(pool: &Pool, task: usize, count: u64) {
    let (key, token) = (format!("task/{task}"), format!("{task}/{count}"));
    for step in 0..2 {
        let permit = pool.free.acquire().await.unwrap();
        let index = pool.next.lock().unwrap().pop().unwrap();
        let (client, insert, delete) = &pool.clients[index];
        let statement = if step == 0 { insert } else { delete };
        assert_eq!(client.execute(statement, &[&key, &token]).await.unwrap(), 1);
        pool.next.lock().unwrap().push(index);
        drop(permit);
    }
}

/// Returns the number of requests per hundred grants with `count` processes on one lock, as counted by the
/// server.
async fn requests(count: usize, url: &str, client: &Client) -> f64 {
    client.batch_execute("SELECT pg_stat_reset()").await.unwrap();
    let granted = processes("quorlock", count, url, client).await * TIME_OF_PROCESSES.as_secs_f64();
    let calls = "SELECT sum(calls)::float8 FROM pg_stat_user_functions WHERE schemaname = 'quorlock' AND funcname IN \
                 ('acquire', 'renew', 'release', 'cancel', 'write_back', 'inspect', 'enqueue', 'leave_queue')";
    100.0 * client.query_one(calls, &[]).await.unwrap().get::<_, f64>(0) / granted
}

/// Returns the grants per second of `count` processes on one lock.
async fn processes(what: &str, count: usize, url: &str, client: &Client) -> f64 {
    client.batch_execute("DROP TABLE IF EXISTS grants; CREATE TABLE grants (count bigint)").await.unwrap();
    let mut children: Vec<_> = (0..count)
        .map(|_| {
            let mut command = Command::new(env::current_exe().unwrap());
            command.env("BESIDE_CHILD", what).env("BESIDE_URL", url).stdin(Stdio::null());
            command.spawn().unwrap()
        })
        .collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let granted: i64 = client.query_one("SELECT sum(count)::int8 FROM grants", &[]).await.unwrap().get(0);
    granted as f64 / TIME_OF_PROCESSES.as_secs_f64()
}

async fn child(what: &str) {
    let url = env::var("BESIDE_URL").unwrap();
    let client = connect(&url).await;
    let end = Instant::now() + TIME_OF_PROCESSES;
    let mut granted = 0_i64;
    if what == "advisory" {
        while Instant::now() < end {
            client.query_one("SELECT pg_advisory_lock(7)", &[]).await.unwrap();
            granted += i64::from(Instant::now() < end);
            tokio::time::sleep(Duration::from_millis(1)).await;
            client.query_one("SELECT pg_advisory_unlock(7)", &[]).await.unwrap();
        }
    } else {
        let coordinator = coordinator(&url);
        let lock = coordinator.lock("one");
        while Instant::now() < end {
            let lease = lock.acquire().await.unwrap();
            granted += i64::from(Instant::now() < end);
            tokio::time::sleep(Duration::from_millis(1)).await;
            lease.release().await.unwrap();
        }
    }
    let client = connect(&url).await;
    client.execute("INSERT INTO grants VALUES ($1)", &[&granted]).await.unwrap();
}
