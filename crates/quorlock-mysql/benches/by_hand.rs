//! Compares this node with hand-written lock statements on one server.
//!
//! `cargo bench -p quorlock-mysql`. Rounds of the two alternate, so that other load on the machine affects
//! both. The hand-written lock is one statement that inserts a row with an expiry or takes over an expired
//! one, and one that deletes it by token, over one connection for one task and a pool of 20 for 64 tasks.
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

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, OptsBuilder, Pool, PoolConstraints, PoolOpts, params};
use quorlock::{Coordinator, Fencing, RestartGuard};
use quorlock_mysql::MysqlKind;

#[path = "../tests/real/server.rs"]
mod server;

const ROUNDS: usize = 12;
/// Cycles per round: for one task, and for each of 64 tasks.
const CYCLES: [usize; 2] = [150, 12];

const TAKE: &str = "INSERT INTO by_hand (name, token, ends) VALUES (:name, :token, SYSDATE(6) + INTERVAL 30 SECOND) \
    ON DUPLICATE KEY UPDATE token = IF(ends < SYSDATE(6), VALUES(token), token), \
    ends = IF(token = VALUES(token), VALUES(ends), ends)";
const GIVE: &str = "DELETE FROM by_hand WHERE name = :name AND token = :token";

#[derive(Default)]
struct Figures {
    cycles: Vec<Duration>,
    spent: Duration,
}

impl Figures {
    fn add(&mut self, cycles: Vec<Duration>, spent: Duration) {
        self.cycles.extend(cycles);
        self.spent += spent;
    }

    fn print(mut self, who: &str) {
        self.cycles.sort_unstable();
        let at = |share: usize| self.cycles[(self.cycles.len() * share / 100).min(self.cycles.len() - 1)];
        let rate = self.cycles.len() as f64 / self.spent.as_secs_f64();
        println!("{who:30} p50 {:>9.1?}  p99 {:>9.1?}  {rate:>7.0} cycles/s", at(50), at(99));
    }
}

#[tokio::main]
async fn main() {
    let Some(server) = server::Server::start(&[]).await else { return };
    server.sql("CREATE TABLE locks.by_hand (name VARBINARY(255) PRIMARY KEY, token BINARY(32), ends DATETIME(6))").await;
    let opts = OptsBuilder::from_opts(Opts::from_url(&server.url()).unwrap()).prefer_socket(false);
    for (tasks, cycles) in [1_usize, 64].into_iter().zip(CYCLES) {
        let pool =
            PoolOpts::new().with_constraints(PoolConstraints::new(tasks.min(20), tasks.min(20)).unwrap());
        let pool = Pool::new(opts.clone().pool_opts(pool.with_reset_connection(false)));
        let coordinator = Coordinator::builder()
            .kind(MysqlKind::new())
            .nodes([server.url()])
            .restart_guard(RestartGuard::Off)
            .build()
            .unwrap();
        let coordinator = Arc::new(coordinator);
        let (mut ours, mut plain, mut hand) = (Figures::default(), Figures::default(), Figures::default());
        for round in 0..=ROUNDS {
            let begun = Instant::now();
            let fenced = join_all(
                (0..tasks).map(|task| tokio::spawn(library(Arc::clone(&coordinator), task, cycles, true))),
            )
            .await;
            let spent_fenced = begun.elapsed();
            let begun = Instant::now();
            let bare = join_all(
                (0..tasks).map(|task| tokio::spawn(library(Arc::clone(&coordinator), task, cycles, false))),
            )
            .await;
            let spent_bare = begun.elapsed();
            let begun = Instant::now();
            let by_hand =
                join_all((0..tasks).map(|task| tokio::spawn(by_hand(pool.clone(), task, cycles)))).await;
            let spent_hand = begun.elapsed();
            // The first round opens connections and creates rows.
            if round > 0 {
                ours.add(fenced.into_iter().flat_map(Result::unwrap).collect(), spent_fenced);
                plain.add(bare.into_iter().flat_map(Result::unwrap).collect(), spent_bare);
                hand.add(by_hand.into_iter().flat_map(Result::unwrap).collect(), spent_hand);
            }
        }
        println!("{tasks} task(s)");
        ours.print("quorlock");
        plain.print("quorlock, without fencing");
        hand.print("by hand");
        pool.disconnect().await.unwrap();
    }
}

async fn library(coordinator: Arc<Coordinator>, task: usize, cycles: usize, fenced: bool) -> Vec<Duration> {
    let lock = coordinator.lock(&*format!("bench/{task}"));
    let lock = lock.fencing(if fenced { Fencing::On } else { Fencing::Off });
    let mut took = Vec::new();
    for _ in 0..cycles {
        let begun = Instant::now();
        lock.acquire().await.unwrap().release().await.unwrap();
        took.push(begun.elapsed());
    }
    took
}

async fn by_hand(pool: Pool, task: usize, cycles: usize) -> Vec<Duration> {
    let mut took = Vec::new();
    for cycle in 0..cycles {
        let begun = Instant::now();
        let (name, token) = (format!("bench/{task}"), format!("{task:016}{cycle:016}"));
        let mut conn: Conn = pool.get_conn().await.unwrap();
        conn.exec_drop(TAKE, params! { "name" => &name, "token" => &token }).await.unwrap();
        assert!(conn.affected_rows() > 0, "others hold it");
        drop(conn);
        let mut conn = pool.get_conn().await.unwrap();
        conn.exec_drop(GIVE, params! { "name" => &name, "token" => &token }).await.unwrap();
        drop(conn);
        took.push(begun.elapsed());
    }
    took
}
