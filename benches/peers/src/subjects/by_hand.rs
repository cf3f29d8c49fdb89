//! The algorithm with nothing around it: what a program can reach that writes the round itself.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::stream::{FuturesUnordered, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{Script, Value};

use super::TTL;
use crate::work::Peer;

/// After a refusal, as most of the others do.
const RETRY_WITHIN: Duration = Duration::from_millis(200);

const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

pub(super) struct ByHand {
    nodes: Vec<MultiplexedConnection>,
    release: Script,
}

pub(super) struct Held {
    name: String,
    token: [u8; 16],
}

impl ByHand {
    pub(super) async fn connect(nodes: &[String]) -> Result<ByHand> {
        let mut connections = Vec::new();
        for node in nodes {
            let client = redis::Client::open(node.as_str())?;
            connections.push(client.get_multiplexed_async_connection().await?);
        }
        Ok(ByHand { nodes: connections, release: Script::new(RELEASE) })
    }

    fn quorum(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    async fn ask_all(&self, held: &Held) -> bool {
        let mut set = redis::cmd("SET");
        set.arg(&held.name).arg(&held.token).arg("NX").arg("PX").arg(TTL.as_secs() * 1000);
        let set = Arc::new(set);
        let mut answers: FuturesUnordered<_> = self
            .nodes
            .iter()
            .cloned()
            .map(|mut node| {
                let set = set.clone();
                async move { matches!(set.query_async::<Value>(&mut node).await, Ok(Value::Okay)) }
            })
            .collect();
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

    /// Ends with the quorum's answer.
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

/// A request that is dropped may never be sent, and so leave a key behind.
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
