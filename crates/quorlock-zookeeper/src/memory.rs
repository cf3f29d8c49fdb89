//! What outlives the connections of a node.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorlock::node::NodeError;
use quorlock::node::places::{self, Local};
use quorlock::protocol::Moment;
use quorlock::runtime::Mutex;

use crate::client::{Answer, Granted};
use crate::error::Failure;
use crate::layout::{Counter, Layout};
use crate::proof::Proof;
use crate::tombs::Tombs;

/// A place of this process, by its path.
pub(crate) type Own = places::Own<Memory>;

/// What is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// The change that created it.
    pub(crate) czxid: i64,
    /// When it was asked for.
    pub(crate) put: Moment,
}

/// What outlives the connections of a node.
pub(crate) struct Memory {
    pub(crate) local: Local<Memory>,
    pub(crate) layout: Layout,
    /// The session of this process, which outlives its connections.
    pub(crate) life: Mutex<Option<Life>>,
    pub(crate) tombs: Mutex<Tombs>,
    pub(crate) cache: Mutex<Cache>,
    pub(crate) seen: Mutex<Seen>,
    pub(crate) ticks: Mutex<Option<Ticks>>,
    pub(crate) proven: Mutex<Proven>,
    generations: AtomicU64,
}

/// A session.
pub(crate) struct Life {
    pub(crate) granted: Granted,
    pub(crate) proof: Proof,
    /// The number of its connection.
    pub(crate) generation: u64,
    /// What lived with it, and when that was asked for.
    pub(crate) listed: HashSet<Arc<str>>,
    pub(crate) listed_at: Moment,
}

/// What was read or written last. It may have changed since, and what depends on it is then refused.
#[derive(Default)]
pub(crate) struct Cache {
    /// Locks whose node had no places, by that node, with the number of places that were ever made there.
    pub(crate) empty: HashMap<String, i32>,
    /// Fencing counters, by their path; some do not exist.
    pub(crate) counters: HashMap<String, Counter>,
}

/// The number of entries after which what was cached is forgotten.
const MOST_CACHED: usize = 65_536;

/// The latest state of the data that was seen: it never falls, unless an older copy was put in its place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The name of the history that it was of.
    pub(crate) name: String,
    pub(crate) zxid: i64,
    pub(crate) grants: Grants,
}

/// How often a lock has been granted, by any client: the version of a node that is written with each grant. The numbers of
/// changes do not show an older copy, as they begin with a higher one whenever there is another leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grants(i32);

impl Grants {
    pub(crate) fn at(version: i32) -> Grants {
        Grants(version)
    }

    /// Reads an answer about that node.
    pub(crate) fn of(answer: &Answer) -> Result<Grants, Failure> {
        Ok(Grants(answer.data()?.1.version))
    }

    /// Versions begin anew after the largest number.
    pub(crate) fn are_before(self, other: Grants) -> bool {
        self.0.wrapping_sub(other.0) < 0
    }

    pub(crate) fn later(self, other: Grants) -> Grants {
        if self.are_before(other) { other } else { self }
    }
}

/// What is known of the servers' ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    /// The shortest session.
    pub(crate) least: Duration,
    /// The longest that a tick can be.
    pub(crate) tick: Duration,
}

/// What the servers keep of the session, as far as is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proven {
    /// For how long they keep it.
    pub(crate) session: Duration,
    /// How long ago the moment may be from which that is proven.
    pub(crate) age: Duration,
}

impl Memory {
    pub(crate) fn new(local: Local<Memory>) -> Memory {
        let layout = Layout::below(local.address.path());
        let proven = Mutex::new(Proven::at_worst(local.address.session()));
        Memory {
            local,
            layout,
            life: Mutex::default(),
            tombs: Mutex::default(),
            cache: Mutex::default(),
            seen: Mutex::default(),
            ticks: Mutex::default(),
            proven,
            generations: AtomicU64::new(0),
        }
    }

    pub(crate) fn next_generation(&self) -> u64 {
        self.generations.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The session has ended, and with it all that lived with it.
    pub(crate) fn forget(&self) {
        let mut life = self.life.lock();
        *life = None;
        self.local.own.lock().retain(|_| false);
    }

    /// Returns from when a TTL counts of what lives with the session.
    ///
    /// # Errors
    ///
    /// If there is no such moment.
    pub(crate) fn counts_from(&self, ttl: Duration) -> Result<Moment, NodeError> {
        let ends = self.life.lock().as_ref().map(|life| life.proof.from() + life.granted.timeout);
        let ends = ends.ok_or_else(|| NodeError::Disconnected { reason: "the session has ended".into() })?;
        if ends.since(Moment::ORIGIN) < ttl {
            let reason = format!(
                "this machine was started less than a TTL of {ttl:?} ago, from when it would have to count"
            );
            return Err(NodeError::Unresponsive { reason: reason.into() });
        }
        Ok(ends.back(ttl))
    }

    /// Records a place that was stored over this connection. Returns whether that has not been followed by another, which
    /// has deleted what was not recorded by then.
    pub(crate) fn keep(&self, lock: &Arc<str>, own: Own, generation: u64) -> bool {
        let life = self.life.lock();
        if life.as_ref().is_none_or(|life| life.generation != generation) {
            return false;
        }
        self.local.put(lock, own);
        true
    }
}

impl Cache {
    pub(crate) fn remember_empty(&mut self, dir: String, created: i32) {
        if self.empty.len() >= MOST_CACHED {
            self.empty.clear();
        }
        self.empty.insert(dir, created);
    }

    pub(crate) fn remember_counter(&mut self, path: String, counter: Counter) {
        // There are as many as hash slots, for each prefix.
        if self.counters.len() >= MOST_CACHED {
            self.counters.clear();
        }
        self.counters.insert(path, counter);
    }
}
