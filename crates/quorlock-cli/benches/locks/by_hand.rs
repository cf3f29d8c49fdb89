//! The requests of a lock by hand, over the usual client of each store. Nothing is renewed or cleaned up: these are no
//! locks, but what a lock cannot be cheaper than.

use std::sync::Mutex;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Opts, OptsBuilder, PoolConstraints, PoolOpts, params};
use quorlock::runtime::{Entropy as _, SystemEntropy};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::sync::Semaphore;
use tokio_postgres::{Client, NoTls, Statement};

use crate::scenarios::{now, pause};
use crate::subjects::Family;

/// Connections to a database.
const POOL: usize = 20;

pub(crate) enum Hand {
    /// `SET NX PX` and a script that compares and deletes; a majority of answers decides.
    Round(Redis),
    /// Redisson's scripts of a fenced lock.
    Redisson(Redis),
    /// A row with an expiry, and a delete by token.
    Postgres(Sessions),
    Mariadb(mysql_async::Pool),
}

impl Hand {
    pub(crate) async fn connect(family: Family, urls: &[String]) -> Hand {
        match family {
            Family::Redisson => Hand::Redisson(Redis::connect(urls, &[REDISSON_LOCK, REDISSON_UNLOCK]).await),
            Family::Postgres => Hand::Postgres(Sessions::connect(&urls[0]).await),
            Family::Mariadb => Hand::Mariadb(mariadb(&urls[0]).await),
            Family::Redis | Family::Sqlite | Family::Etcd | Family::ZooKeeper => {
                Hand::Round(Redis::connect(urls, &[COMPARE_AND_DELETE]).await)
            }
        }
    }

    /// Polls as a Redlock client that knows no queue, and holds the lock for a millisecond: how long that took.
    pub(crate) async fn poll(&self, name: &str) -> Duration {
        let Hand::Round(redis) = self else { panic!("it is for several Redis") };
        let (began, entropy) = (now(), SystemEntropy::default());
        loop {
            let token = format!("{:032x}", entropy.next_u128());
            let is_held = redis.take(name, &token).await;
            let waited = now().since(began);
            if is_held {
                pause(Duration::from_millis(1)).await;
            }
            redis.give(name, &token).await;
            if is_held {
                return waited;
            }
            pause(Duration::from_millis(entropy.next_u64() % 200)).await;
        }
    }

    pub(crate) async fn cycle(&self, name: &str) {
        let token = format!("{:032x}", SystemEntropy::default().next_u128());
        match self {
            Hand::Round(redis) => {
                redis.take(name, &token).await;
                redis.give(name, &token).await;
            }
            Hand::Redisson(redis) => redis.redisson(name).await,
            Hand::Postgres(sessions) => {
                sessions.execute(0, name, &token).await;
                sessions.execute(1, name, &token).await;
            }
            Hand::Mariadb(pool) => {
                for statement in [MARIADB_TAKE, MARIADB_GIVE] {
                    let mut session = pool.get_conn().await.unwrap();
                    session
                        .exec_drop(statement, params! { "name" => name, "token" => &token })
                        .await
                        .unwrap();
                    assert!(session.affected_rows() > 0, "others hold it");
                }
            }
        }
    }
}

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
const REDISSON_LOCK: &str = "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
     redis.call('incr', KEYS[2]) redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) \
     return {-1, redis.call('get', KEYS[2])} end return {redis.call('pttl', KEYS[1]), -1}";
const REDISSON_UNLOCK: &str = "if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end \
     if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[2]) return 0 end \
     redis.call('del', KEYS[1]) redis.call(ARGV[4], KEYS[2], ARGV[1]) redis.call('set', KEYS[3], 1, 'px', ARGV[5]) return 1";

/// A connection to each node, and the hashes of scripts.
pub(crate) struct Redis {
    nodes: Vec<MultiplexedConnection>,
    hashes: Vec<String>,
}

impl Redis {
    async fn connect(urls: &[String], scripts: &[&str]) -> Redis {
        let (mut nodes, mut hashes) = (Vec::new(), Vec::new());
        for url in urls {
            let client = redis::Client::open(&**url).unwrap();
            let mut node = client.get_multiplexed_async_connection().await.unwrap();
            hashes.clear();
            for script in scripts {
                let mut load = redis::cmd("SCRIPT");
                hashes.push(load.arg("LOAD").arg(*script).query_async(&mut node).await.unwrap());
            }
            nodes.push(node);
        }
        Redis { nodes, hashes }
    }

    async fn take(&self, name: &str, token: &str) -> bool {
        let mut set = redis::cmd("SET");
        set.arg(name).arg(token).arg("NX").arg("PX").arg(30_000);
        self.ask(&set).await
    }

    async fn give(&self, name: &str, token: &str) {
        let mut delete = redis::cmd("EVALSHA");
        delete.arg(&self.hashes[0]).arg(1).arg(name).arg(token);
        self.ask(&delete).await;
    }

    /// Waits until a majority has granted; whether it has.
    async fn ask(&self, command: &Cmd) -> bool {
        let request = |node: &MultiplexedConnection| {
            let mut node = node.clone();
            async move { command.query_async::<Value>(&mut node).await }
        };
        let mut answers: FuturesUnordered<_> = self.nodes.iter().map(request).collect();
        let mut granted = 0;
        while granted <= self.nodes.len() / 2 {
            // One may be missing: the last cycle's release was decided without it.
            let Some(answer) = answers.next().await else { return false };
            granted += usize::from(matches!(answer.unwrap(), Value::Okay | Value::Int(1)));
        }
        true
    }

    async fn redisson(&self, name: &str) {
        let owner = "8743c9c0-0795-4907-87fd-6c719a6b4586:1";
        let mut lock = redis::cmd("EVALSHA");
        lock.arg(&self.hashes[0]).arg(2).arg(name).arg(format!("redisson_lock_token:{{{name}}}"));
        lock.arg(30_000).arg(owner);
        self.ask_one(&lock).await;
        let mut unlock = redis::cmd("EVALSHA");
        unlock.arg(&self.hashes[1]).arg(3).arg(name).arg(format!("redisson_lock__channel:{{{name}}}"));
        unlock.arg(format!("redisson_unlock_latch:{{{name}}}:{owner}"));
        unlock.arg(0).arg(30_000).arg(owner).arg("PUBLISH").arg(18_000);
        assert_eq!(self.ask_one(&unlock).await, Value::Int(1), "not unlocked");
    }

    async fn ask_one(&self, command: &Cmd) -> Value {
        command.query_async(&mut self.nodes[0].clone()).await.unwrap()
    }
}

/// Sessions of PostgreSQL with both statements.
pub(crate) struct Sessions {
    idle: Mutex<Vec<(Client, [Statement; 2])>>,
    permits: Semaphore,
}

impl Sessions {
    async fn connect(url: &str) -> Sessions {
        let mut idle = Vec::new();
        for number in 0..POOL {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
            drop(tokio::spawn(connection));
            if number == 0 {
                let create = "CREATE TABLE hand (key text PRIMARY KEY, token text, expires timestamptz)";
                client.batch_execute(create).await.unwrap();
            }
            let take = "INSERT INTO hand VALUES ($1, $2, clock_timestamp() + interval '30 s') ON CONFLICT (key) DO UPDATE \
                        SET token = EXCLUDED.token, expires = EXCLUDED.expires WHERE hand.expires < clock_timestamp()";
            let take = client.prepare(take).await.unwrap();
            let give = client.prepare("DELETE FROM hand WHERE key = $1 AND token = $2").await.unwrap();
            idle.push((client, [take, give]));
        }
        Sessions { idle: Mutex::new(idle), permits: Semaphore::new(POOL) }
    }

    async fn execute(&self, statement: usize, key: &str, token: &str) {
        let _permit = self.permits.acquire().await.unwrap();
        let session = self.idle.lock().unwrap().pop().unwrap();
        let (client, statements) = &session;
        assert_eq!(
            client.execute(&statements[statement], &[&key, &token]).await.unwrap(),
            1,
            "others hold it"
        );
        self.idle.lock().unwrap().push(session);
    }
}

const MARIADB_TAKE: &str = "INSERT INTO by_hand (name, token, ends) VALUES (:name, :token, SYSDATE(6) + INTERVAL 30 SECOND) \
    ON DUPLICATE KEY UPDATE token = IF(ends < SYSDATE(6), VALUES(token), token), \
    ends = IF(token = VALUES(token), VALUES(ends), ends)";
const MARIADB_GIVE: &str = "DELETE FROM by_hand WHERE name = :name AND token = :token";

async fn mariadb(url: &str) -> mysql_async::Pool {
    let options = OptsBuilder::from_opts(Opts::from_url(&url.replace("mariadb://", "mysql://")).unwrap());
    let pool = PoolOpts::new().with_constraints(PoolConstraints::new(POOL, POOL).unwrap());
    let options = options.prefer_socket(false).pool_opts(pool.with_reset_connection(false));
    let pool = mysql_async::Pool::new(options);
    let create = "CREATE TABLE by_hand (name VARBINARY(255) PRIMARY KEY, token BINARY(32), ends DATETIME(6))";
    pool.get_conn().await.unwrap().query_drop(create).await.unwrap();
    pool
}
