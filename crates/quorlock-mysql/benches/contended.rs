//! Several processes compete for one lock, and each holds it for a millisecond.
//!
//! `cargo bench -p quorlock-mysql --bench contended` prints the statements per grant, the grants per second,
//! and how evenly the grants are distributed over 2, 8 and 32 processes, or over the numbers of processes
//! given after `--`.
#![cfg(unix)]
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "a bench fails by panicking, and has the server of the tests"
)]

use std::env;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quorlock::{Coordinator, RestartGuard};
use quorlock_mysql::MysqlKind;

#[path = "../tests/real/server.rs"]
mod server;

const HOLD: Duration = Duration::from_millis(1);
/// Grants are counted during this time.
const MEASURED: Duration = Duration::from_secs(6);
/// How long the processes run before the measurement.
const WARM_UP: Duration = Duration::from_secs(4);

fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    match (env::var("CONTENDED_URL"), env::var("CONTENDED_FROM")) {
        (Ok(url), Ok(from)) => runtime.block_on(contend(&url, Duration::from_millis(from.parse().unwrap()))),
        _ => runtime.block_on(measure()),
    }
}

/// Runs one process: prints the number of its grants during the measurement, and its longest wait.
async fn contend(url: &str, from: Duration) {
    let coordinator = Coordinator::builder()
        .kind(MysqlKind::new())
        .nodes([url])
        .restart_guard(RestartGuard::Off)
        .build()
        .unwrap();
    let lock = coordinator.lock("contended");
    let (mut grants, mut longest) = (0, Duration::ZERO);
    while wall() < from + MEASURED {
        let begun = wall();
        let lease = lock.acquire().await.unwrap();
        let granted = wall();
        if (from..from + MEASURED).contains(&granted) {
            grants += 1;
            longest = longest.max(granted.saturating_sub(begun));
        }
        tokio::time::sleep(HOLD).await;
        lease.release().await.unwrap();
    }
    println!("{grants} {}", longest.as_millis());
}

async fn measure() {
    let asked: Vec<usize> = env::args().filter_map(|word| word.parse().ok()).collect();
    for processes in if asked.is_empty() { vec![2, 8, 32] } else { asked } {
        // Each process opens several connections.
        let Some(server) = server::Server::start(&["--max-connections=400"]).await else { return };
        let from = wall() + WARM_UP;
        let child = |_| -> Child {
            Command::new(env::current_exe().unwrap())
                .env("CONTENDED_URL", server.url())
                .env("CONTENDED_FROM", from.as_millis().to_string())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let children: Vec<_> = (0..processes).map(child).collect();
        let mut status = server.other().await;
        tokio::time::sleep(from.saturating_sub(wall())).await;
        let before = questions(&mut status).await;
        tokio::time::sleep((from + MEASURED).saturating_sub(wall())).await;
        let asked = questions(&mut status).await - before;
        let mut grants = Vec::new();
        let mut longest = 0;
        for child in children {
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let (count, wait) = text.trim().split_once(' ').unwrap();
            grants.push(count.parse::<u64>().unwrap());
            longest = longest.max(wait.parse::<u64>().unwrap());
        }
        let all: u64 = grants.iter().sum();
        println!(
            "{processes} processes: {:.0} grants/s, {:.1} statements for each, from {} to {} grants for each process, \
             longest wait {longest} ms",
            all as f64 / MEASURED.as_secs_f64(),
            asked as f64 / all as f64,
            grants.iter().min().unwrap(),
            grants.iter().max().unwrap(),
        );
    }
}

/// Returns the number of statements that the server has executed.
async fn questions(connection: &mut mysql_async::Conn) -> u64 {
    use mysql_async::prelude::Queryable as _;
    let row: (String, u64) =
        connection.query_first("SHOW GLOBAL STATUS LIKE 'Questions'").await.unwrap().unwrap();
    row.1
}
