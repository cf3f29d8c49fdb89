//! The bare algorithm: the best that a program can reach with a hand-written round, optionally with a counter that is
//! raised in the same step, as a source of fencing tokens.

use std::time::Duration;

use anyhow::Result;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{Script, Value};

use crate::TTL;
use crate::work::Peer;

/// The pause after a refusal, like most other subjects.
const RETRY_WITHIN: Duration = Duration::from_millis(200);

/// With the counter of the lock, which is kept for a day.
const ACQUIRE: &str = "if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end \
    local number = redis.call('INCR', KEYS[2]) redis.call('EXPIRE', KEYS[2], 86400) return number";

const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

pub(super) struct ByHand {
    nodes: Vec<MultiplexedConnection>,
    acquire: Script,
    release: Script,
    /// Whether a counter is raised with each lock.
    counting: bool,
}

type Held = (String, [u8; 16]);

impl ByHand {
    pub(super) async fn connect(nodes: &[String], counting: bool) -> Result<ByHand> {
        let mut connections = Vec::new();
        for node in nodes {
            let client = redis::Client::open(node.as_str())?;
            connections.push(client.get_multiplexed_async_connection().await?);
        }
        let (acquire, release) = (Script::new(ACQUIRE), Script::new(RELEASE));
        Ok(ByHand { nodes: connections, acquire, release, counting })
    }

    /// Whether this node grants the lock.
    fn ask(&'static self, mut node: MultiplexedConnection, (name, token): &Held) -> BoxFuture<'static, bool> {
        let ttl = TTL.as_secs() * 1000;
        if self.counting {
            let mut acquire = self.acquire.prepare_invoke();
            acquire.key(name).key(format!("{name}:counter")).arg(token).arg(ttl);
            return async move { acquire.invoke_async::<i64>(&mut node).await.is_ok_and(|number| number > 0) }
                .boxed();
        }
        let mut set = redis::cmd("SET");
        set.arg(name).arg(token).arg("NX").arg("PX").arg(ttl);
        async move { matches!(set.query_async::<Value>(&mut node).await, Ok(Value::Okay)) }.boxed()
    }

    fn give_back(
        &'static self,
        mut node: MultiplexedConnection,
        (name, token): &Held,
    ) -> BoxFuture<'static, bool> {
        let mut release = self.release.prepare_invoke();
        release.key(name).arg(token);
        async move { release.invoke_async::<i64>(&mut node).await.is_ok() }.boxed()
    }

    /// Whether a quorum says so; or has answered, whatever it says.
    async fn round(
        &'static self,
        held: &Held,
        ask: fn(&'static ByHand, MultiplexedConnection, &Held) -> BoxFuture<'static, bool>,
        whatever: bool,
    ) -> bool {
        let mut answers: FuturesUnordered<_> =
            self.nodes.iter().map(|node| ask(self, node.clone(), held)).collect();
        let quorum = self.nodes.len() / 2 + 1;
        let (mut yes, mut other) = (0, 0);
        while yes < quorum && other <= self.nodes.len() - quorum {
            match answers.next().await {
                Some(answer) if answer || whatever => yes += 1,
                Some(_) => other += 1,
                None => break,
            }
        }
        if !answers.is_empty() {
            // A dropped request may never be sent, and so leave a key behind.
            tokio::spawn(answers.for_each(async |_| ()));
        }
        yes >= quorum
    }
}

impl Peer for ByHand {
    type Held = Held;

    async fn acquire(&'static self, _task: usize, name: &str) -> Result<Held> {
        loop {
            let held = (name.to_owned(), rand::random());
            if self.round(&held, ByHand::ask, false).await {
                return Ok(held);
            }
            self.round(&held, ByHand::give_back, true).await;
            tokio::time::sleep(RETRY_WITHIN.mul_f64(rand::random())).await;
        }
    }

    async fn release(&'static self, held: Held) -> Result<()> {
        self.round(&held, ByHand::give_back, true).await;
        Ok(())
    }
}
