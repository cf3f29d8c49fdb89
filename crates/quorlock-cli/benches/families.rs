//! Every kind of node, through the same calls, one after the other on the same machine: `cargo bench -p quorlock-cli --bench
//! families`, with `-- etcd` for the rows that have this word. Kinds whose servers are not installed are left out, and named. `QUORLOCK_ETCD` and `QUORLOCK_ZOOKEEPER` name
//! theirs.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a bench")]

use std::any::Any;
use std::io;
use std::time::Duration;

use futures::future::join_all;
use quorlock::node::Kinds;
use quorlock::protocol::Moment;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock::{Coordinator, RestartGuard, Wait};
use quorlock_etcd::EtcdKind;
use quorlock_mysql::MysqlKind;
use quorlock_postgres::PostgresKind;
use quorlock_sqlite::SqliteKind;
use quorlock_testkit::{Engine, EtcdPrograms, Servers, ZooKeeperPrograms};
use quorlock_zookeeper::ZooKeeperKind;

const CYCLES: usize = 500;
const HANDOVERS: usize = 100;
const TASKS: usize = 64;
/// For all 64 tasks together.
const LASTS: Duration = Duration::from_secs(3);
const TTL: Duration = Duration::from_secs(30);

fn now() -> Moment {
    SystemClock::default().now()
}

/// The addresses of the nodes of a row, and the servers, which end with it.
type Started = (Vec<String>, Box<dyn Any>);

fn client(nodes: &[String]) -> Coordinator {
    let kinds = Kinds::default().with(PostgresKind::new()).with(MysqlKind::new()).with(SqliteKind::new());
    let kinds = kinds.with(EtcdKind::new()).with(ZooKeeperKind::new());
    let builder = Coordinator::builder().kinds(kinds).nodes(nodes).ttl(TTL).max_ttl(TTL);
    builder.restart_guard(RestartGuard::Off).build().unwrap()
}

async fn databases(engine: io::Result<Engine>, count: usize) -> io::Result<Started> {
    let engine = engine?;
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(engine.start().await?);
    }
    Ok((all.iter().map(quorlock_testkit::Database::url).collect(), Box::new(all)))
}

async fn start(row: &str) -> io::Result<Started> {
    Ok(match row {
        "five Redis" => {
            let servers = Servers::start(5).await?;
            (servers.iter().map(quorlock_testkit::Server::url).collect(), Box::new(servers))
        }
        "one Redis, Redisson's layout" => {
            let servers = Servers::start(1).await?;
            let urls = servers.iter().map(|server| format!("{}/?layout=redisson", server.url())).collect();
            (urls, Box::new(servers))
        }
        "one PostgreSQL" => databases(Engine::postgres(), 1).await?,
        "three PostgreSQL" => databases(Engine::postgres(), 3).await?,
        "one MariaDB" => databases(Engine::mariadb(), 1).await?,
        "SQLite" => {
            let folder = tempfile::tempdir()?;
            (vec![format!("sqlite://{}/locks.db", folder.path().display())], Box::new(folder))
        }
        "three etcd" => {
            let cluster = EtcdPrograms::find()?.start(3).await?;
            (vec![cluster.url()], Box::new(cluster))
        }
        _ => {
            let cluster = ZooKeeperPrograms::find()?.start(3).await?;
            (vec![format!("{}/bench", cluster.url())], Box::new(cluster))
        }
    })
}

fn percentile(times: &mut [Duration], share: usize) -> f64 {
    times.sort_unstable();
    times[(times.len() * share / 100).min(times.len() - 1)].as_secs_f64() * 1e3
}

async fn measure(row: &str, nodes: &[String]) {
    let clients = [client(nodes), client(nodes)];
    let lock = clients[0].lock("bench/cycle").wait(Wait::UpTo(TTL));
    for _ in 0..50 {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    let mut cycles = Vec::new();
    for number in 0..CYCLES {
        // Fresh names, as jobs have them.
        let lock = clients[0].lock(format!("bench/fresh/{number}"));
        let began = now();
        lock.acquire().await.unwrap().release().await.unwrap();
        cycles.push(now().since(began));
    }
    let began = now();
    let counts = join_all((0..TASKS).map(|task| {
        let lock = clients[0].lock(format!("bench/task/{task}"));
        tokio::spawn(async move {
            let mut count = 0_u32;
            while now().since(began) < LASTS {
                lock.acquire().await.unwrap().release().await.unwrap();
                count += 1;
            }
            count
        })
    }))
    .await;
    let rate =
        f64::from(counts.into_iter().map(Result::unwrap).sum::<u32>()) / now().since(began).as_secs_f64();
    let mut handovers = Vec::new();
    let mut held = clients[0].lock("bench/pass").acquire().await.unwrap();
    for at in 0..HANDOVERS {
        let lock = clients[(at + 1) % 2].lock("bench/pass").wait(Wait::Forever);
        let waiting = tokio::spawn(async move {
            let lease = lock.acquire().await.unwrap();
            (lease, now())
        });
        SystemClock::default().sleep_until(now() + Duration::from_millis(30)).await;
        let began = now();
        held.release().await.unwrap();
        let (lease, got) = waiting.await.unwrap();
        held = lease;
        handovers.push(got.since(began));
    }
    held.release().await.unwrap();
    let [p50, p99] = [50, 99].map(|share| percentile(&mut cycles, share));
    let [over50, over99] = [50, 99].map(|share| percentile(&mut handovers, share));
    println!("| {row} | {p50:.2} | {p99:.1} | {rate:.0} | {over50:.1} | {over99:.0} |");
}

fn main() {
    quorlock_testkit::serve_if_asked();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        println!("| | cycle p50, ms | p99 | 64 tasks, cycles/s | hand-over p50, ms | p99 |\n|---|--:|--:|--:|--:|--:|");
        let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
        let is_wanted = |row: &str| wanted.is_empty() || wanted.iter().any(|word| row.contains(word.as_str()));
        for row in [
            "five Redis",
            "one Redis, Redisson's layout",
            "one PostgreSQL",
            "three PostgreSQL",
            "one MariaDB",
            "SQLite",
            "three etcd",
            "three ZooKeeper",
        ]
        .into_iter()
        .filter(|row| is_wanted(row))
        {
            match start(row).await {
                Ok((nodes, servers)) => {
                    measure(row, &nodes).await;
                    drop(servers);
                }
                Err(reason) => println!("\n{row} is left out: {reason}\n"),
            }
        }
    });
}
