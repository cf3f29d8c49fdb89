//! The targets of faults, and what the record has to know about each fault.

use std::io;
use std::sync::MutexGuard;
use std::time::Duration;

use quorlock::runtime::{Clock as _, Mutex, SystemClock};
use quorlock_history::What;
use quorlock_servers::{RedisClient, Resp, ask};

use crate::masters::Masters;
pub(crate) use crate::masters::{Memory, Primary};
use crate::proxies::Proxies;
use crate::record::Recorder;
use crate::workers::Workers;

/// Masters, network and workers of a run.
pub(crate) struct Environment {
    pub(crate) masters: Box<dyn Masters>,
    pub(crate) proxies: Proxies,
    pub(crate) workers: Workers,
    pub(crate) recorder: Recorder,
    nodes: Vec<Mutex<Node>>,
}

/// The state of a node.
#[derive(Default)]
struct Node {
    /// It has a fault.
    faulty: bool,
    /// Its keys prove nothing from now on: its clock was changed, so their TTLs are unreliable.
    odd: bool,
    /// The one connection left to a node whose client limit is reached.
    way_in: Option<RedisClient>,
}

/// Returns the name of a node in records, which number nodes from 1.
pub(crate) fn node_name(number: usize) -> String {
    format!("node-{}", number + 1)
}

impl Environment {
    pub(crate) fn new(
        masters: Box<dyn Masters>,
        proxies: Proxies,
        workers: Workers,
        recorder: Recorder,
        nodes: usize,
    ) -> Environment {
        let nodes = (0..nodes).map(|_| Mutex::default()).collect();
        Environment { masters, proxies, workers, recorder, nodes }
    }

    /// Returns the nodes whose keys can be inspected and prove something.
    pub(crate) fn sound_nodes(&self) -> Vec<usize> {
        let sound = |number: &usize| self.node(*number).is_some_and(|node| !node.faulty && !node.odd);
        (0..self.nodes.len()).filter(sound).collect()
    }

    /// Marks a node as faulty, if it has no fault and fewer than `at_most` nodes have one. The schedule
    /// ensures both, but a busy machine may fall behind it.
    pub(crate) fn claim(&self, number: usize, at_most: usize) -> bool {
        let out = (0..self.nodes.len()).filter(|&number| self.is_faulty(number)).count();
        let free = out < at_most && !self.is_faulty(number);
        if free && let Some(mut node) = self.node(number) {
            node.faulty = true;
        }
        free
    }

    /// Marks a node as healthy again.
    pub(crate) fn set_free(&self, number: usize) {
        if let Some(mut node) = self.node(number) {
            node.faulty = false;
        }
    }

    fn is_faulty(&self, number: usize) -> bool {
        self.node(number).is_some_and(|node| node.faulty)
    }

    pub(crate) async fn restart(&self, number: usize, memory: Memory) -> io::Result<()> {
        if memory == Memory::Gone || self.masters.memory() == Memory::Gone {
            self.forgot(number);
        }
        self.masters.restart(number, memory).await
    }

    /// Stops replication for `lag`, then promotes the standby.
    pub(crate) async fn promote(&self, number: usize, lag: Duration, primary: Primary) -> io::Result<()> {
        let clock = SystemClock::default();
        self.masters.hold_standby(number).await?;
        clock.sleep_until(clock.now() + lag).await;
        self.forgot(number);
        self.masters.promote(number, primary).await
    }

    pub(crate) async fn flush(&self, number: usize) -> io::Result<()> {
        self.forgot(number);
        self.command(number, &["FLUSHALL"]).await
    }

    pub(crate) async fn delete_keys(&self, number: usize) -> io::Result<()> {
        const EACH: &str = "for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('DEL', key) end";
        self.forgot(number);
        self.command(number, &["EVAL", EACH, "0"]).await
    }

    /// Makes the server refuse every write: it has no memory left and may evict nothing.
    pub(crate) async fn starve(&self, number: usize) -> io::Result<()> {
        self.command(number, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await?;
        self.command(number, &["CONFIG", "SET", "maxmemory", "1"]).await
    }

    pub(crate) async fn feed(&self, number: usize) -> io::Result<()> {
        self.command(number, &["CONFIG", "SET", "maxmemory", "0"]).await
    }

    /// Disconnects every client but one, and refuses new ones.
    pub(crate) async fn crowd(&self, number: usize) -> io::Result<()> {
        let mut way_in = RedisClient::connect(self.masters.address(number), self.masters.password()).await?;
        granted(way_in.ask(&["CONFIG", "SET", "maxclients", "1"]).await?)?;
        // The connection on which a worker receives offers has the type `pubsub`.
        for kind in ["normal", "pubsub"] {
            granted(way_in.ask(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]).await?)?;
        }
        if let Some(mut node) = self.node(number) {
            node.way_in = Some(way_in);
        }
        Ok(())
    }

    pub(crate) async fn uncrowd(&self, number: usize) -> io::Result<()> {
        let way_in = self.node(number).and_then(|mut node| node.way_in.take());
        match way_in {
            Some(mut way_in) => granted(way_in.ask(&["CONFIG", "SET", "maxclients", "10000"]).await?),
            None => Ok(()),
        }
    }

    pub(crate) fn step_clock(&self, number: usize, seconds: f64) -> io::Result<()> {
        self.bend(number);
        self.masters.step_clock(number, seconds)
    }

    pub(crate) fn clock_rate(&self, number: usize, rate: f64) -> io::Result<()> {
        self.bend(number);
        self.masters.clock_rate(number, rate)
    }

    fn bend(&self, number: usize) {
        if let Some(mut node) = self.node(number) {
            node.odd = true;
        }
        self.forgot(number);
    }

    fn forgot(&self, number: usize) {
        self.recorder.record(What::Forgot { node: node_name(number).as_str().into() });
    }

    async fn command(&self, number: usize, words: &[&str]) -> io::Result<()> {
        granted(ask(self.masters.address(number), self.masters.password(), words).await?)
    }

    fn node(&self, number: usize) -> Option<MutexGuard<'_, Node>> {
        self.nodes.get(number).map(|node| node.lock())
    }
}

fn granted(answer: Resp) -> io::Result<()> {
    if let Resp::Error(error) = answer { Err(io::Error::other(error)) } else { Ok(()) }
}
