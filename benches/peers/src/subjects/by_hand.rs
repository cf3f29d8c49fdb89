//! The bare algorithm: the best that a program can reach with a hand-written round, optionally with a
//! counter that is raised in the same step, as a source of fencing tokens.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::stream::{FuturesUnordered, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{Script, Value};

use super::TTL;
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
    counting: Counting,
}

/// Whether a counter is raised with each lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counting {
    Off,
    On,
}

pub(super) struct Held {
    name: String,
    token: [u8; 16],
}

impl ByHand {
    pub(super) async fn connect(nodes: &[String], counting: Counting) -> Result<ByHand> {
        let mut connections = Vec::new();
        for node in nodes {
            let client = redis::Client::open(node.as_str())?;
            connections.push(client.get_multiplexed_async_connection().await?);
        }
        let (acquire, release) = (Script::new(ACQUIRE), Script::new(RELEASE));
        Ok(ByHand { nodes: connections, acquire, release, counting })
    }

    fn quorum(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    async fn ask_all(&'static self, held: &Held) -> bool {
        let ttl = TTL.as_secs() * 1000;
        if self.counting == Counting::On {
            let mut acquire = self.acquire.prepare_invoke();
            acquire.key(&held.name).key(format!("{}:counter", held.name)).arg(&held.token).arg(ttl);
            let acquire = Arc::new(acquire);
            let ask = |mut node| {
                let acquire = acquire.clone();
                async move { acquire.invoke_async::<i64>(&mut node).await.is_ok_and(|number| number > 0) }
            };
            return self.has_quorum(self.nodes.iter().cloned().map(ask).collect()).await;
        }
        let mut set = redis::cmd("SET");
        set.arg(&held.name).arg(&held.token).arg("NX").arg("PX").arg(ttl);
        let set = Arc::new(set);
        let ask = |mut node| {
            let set = set.clone();
            async move { matches!(set.query_async::<Value>(&mut node).await, Ok(Value::Okay)) }
        };
        self.has_quorum(self.nodes.iter().cloned().map(ask).collect()).await
    }

    async fn has_quorum<F>(&self, mut answers: FuturesUnordered<F>) -> bool
    where
        F: Future<Output = bool> + Send + 'static,
    {
        let (mut yes, mut other) = (0, 0);
        while yes < self.quorum() && other <= self.nodes.len() - self.quorum() {
            match answers.next().await {
                Some(true) => yes += 1,
                Some(false) => other += 1,
                None => break,
            }
        }
        in_background(answers);
        yes >= self.quorum()
    }

    /// Returns when a quorum has answered.
    async fn give_back(&'static self, held: &Held) {
        let mut release = self.release.prepare_invoke();
        release.key(&held.name).arg(&held.token);
        let release = Arc::new(release);
        let mut answers: FuturesUnordered<_> = self
            .nodes
            .iter()
            .cloned()
            .map(|mut node| {
                let release = release.clone();
                async move { release.invoke_async::<i64>(&mut node).await }
            })
            .collect();
        for _ in 0..self.quorum() {
            answers.next().await;
        }
        in_background(answers);
    }
}

/// A dropped request may never be sent, and so leave a key behind.
fn in_background<F: Future + Send + 'static>(answers: FuturesUnordered<F>)
where
    F::Output: Send,
{
    if !answers.is_empty() {
        tokio::spawn(answers.for_each(async |_| ()));
    }
}

impl Peer for ByHand {
    type Held = Held;

    async fn acquire(&'static self, _task: usize, name: &str) -> Result<Held> {
        loop {
            let token = rand::random();
            let held = Held { name: name.to_owned(), token };
            if self.ask_all(&held).await {
                return Ok(held);
            }
            self.give_back(&held).await;
            tokio::time::sleep(RETRY_WITHIN.mul_f64(rand::random())).await;
        }
    }

    async fn release(&'static self, held: Held) -> Result<()> {
        self.give_back(&held).await;
        Ok(())
    }
}
