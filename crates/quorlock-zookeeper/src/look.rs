//! Reads the present state of locks.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::places::{Owner, decode_counter};
use quorlock::node::{Expiry, Holding, NodeError, Vote};
use quorlock::protocol::Token;

use crate::error::Failure;
use crate::layout::{Counter, Place, places};
use crate::session::Session;
use crate::wire::{Call, Stat};

/// The state of a lock.
pub(crate) struct Look {
    /// In their order.
    pub(crate) places: Vec<Place>,
    /// The first of them.
    pub(crate) first: Option<First>,
    /// How many places were ever made; nothing if the lock's node does not exist.
    pub(crate) created: Option<i32>,
    counter: Option<(Vec<u8>, i32)>,
}

/// The first place of a lock.
#[derive(Clone, Debug)]
pub(crate) struct First {
    pub(crate) path: Arc<str>,
    pub(crate) owner: Owner,
    pub(crate) stat: Stat,
}

impl Look {
    /// Returns the counter that was looked at.
    pub(crate) fn counter(&self, path: &str) -> Result<Counter, NodeError> {
        counter(path, self.counter.as_ref().map(|(data, version)| (data.as_slice(), *version)))
    }
}

/// Decodes a counter that was read.
pub(crate) fn counter(path: &str, found: Option<(&[u8], i32)>) -> Result<Counter, NodeError> {
    found.map(|(data, version)| Ok((decode_counter(path, data)?, version))).transpose()
}

/// Returns how many children a node has ever had, which is the number of the next one.
pub(crate) fn created(stat: &Stat) -> i32 {
    let [changes, children] = [stat.cversion, stat.children].map(i32::cast_unsigned);
    (changes.wrapping_add(children) / 2).cast_signed()
}

impl Session {
    /// Reads the places of a lock, the first of them, and a counter, as the leader knows them.
    pub(crate) async fn look(&self, lock: &str, counter: Option<&str>) -> Result<Look, Failure> {
        // A member may be behind its leader.
        drop(self.client.send(&Call::Sync { path: self.memory.layout.base_or_root() }));
        self.glance(lock, counter).await
    }

    /// The same as this member knows them, for what is refused if they have changed.
    pub(crate) async fn glance(&self, lock: &str, counter: Option<&str>) -> Result<Look, Failure> {
        let dir = self.memory.layout.dir(lock);
        loop {
            let children = self.client.send(&Call::GetChildren { path: dir.clone() });
            let counter =
                counter.map(|path| self.client.send(&Call::GetData { path: path.to_owned(), watch: false }));
            let children = children.found().await?;
            let counter = match counter {
                Some(counter) => counter.found().await?,
                None => None,
            };
            let counter = counter.as_ref().map(|answer| answer.data()).transpose()?;
            let counter = counter.map(|(data, stat)| (data.to_vec(), stat.version));
            let Some(children) = children else {
                return Ok(Look { places: Vec::new(), first: None, created: None, counter });
            };
            let (names, stat) = children.children()?;
            let (places, created) = (places(&dir, names), Some(created(&stat)));
            let Some(first) = places.first() else {
                return Ok(Look { places, first: None, created, counter });
            };
            let path = Arc::clone(&first.path);
            let data = self.client.send(&Call::GetData { path: path.to_string(), watch: false });
            // It may have gone since.
            let Some(data) = data.found().await? else { continue };
            let (data, stat) = data.data()?;
            let first = Some(First { path, owner: Owner::of(data), stat });
            return Ok(Look { places, first, created, counter });
        }
    }

    /// Returns who holds the lock, of which this is the first place.
    pub(crate) fn holding(&self, lock: &str, first: &First) -> Holding {
        let token = match &first.owner {
            Owner::Attempt(token, _) => token.clone(),
            Owner::Waiter(..) => Token::found(b""),
        };
        let now = self.memory.local.now();
        let own = self.memory.local.own.lock().by_key(lock, &*first.path).map(|own| own.until.since(now));
        let timeout = || self.memory.life.lock().as_ref().map_or(Duration::ZERO, |life| life.granted.timeout);
        let expiry = match own {
            Some(left) => Expiry::In(left),
            None if first.stat.owner == 0 => Expiry::Never,
            // Its session has a timeout that only it knows; ours is as good a guess as any.
            None => Expiry::In(timeout()),
        };
        Holding::new(token, expiry).in_queue()
    }

    /// Returns the vote of a lock that is not the claim's, of which this is the first place.
    pub(crate) fn refusal(&self, lock: &str, first: &First) -> Vote {
        if first.owner.is_waiter() { Vote::NotYourTurn } else { self.holding(lock, first).into() }
    }
}
