//! What a node keeps of each lock, and what a request changes: the contract as one pure function, for stores
//! that can read records and exchange them for others in one step.
//!
//! A [`Record`] is one lock at one node, or one fencing counter. A node reads the [`Records`] that a request
//! [needs](Records::needed_for), [applies](Records::apply)
//! the request, writes the [changed](Records::changes) ones in one step if they are still those that it has
//! read, and then answers. Otherwise it starts again.
//!
//! Everything that can fail does so before the first change, so that a request applies completely or not at
//! all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::{Claim, FencingToken, Mode, Token, micros};

use super::{Expiry, Holding, NodeError, NodeErrorKind, Reason, Request, Vote};

mod enqueue;
mod exclusive;
mod fence;
mod first_come;
mod queue;
mod shared;
mod state;
mod text;
mod word;

use fence::{Drawing, above_zero};
pub use queue::Queue;
pub use state::{Entry, Held, Record};

/// A vote, and the fencing token that goes with it.
pub type Outcome = (Vote, Option<FencingToken>);

type Decision = Result<Outcome, NodeError>;

/// The records that a batch of requests needs, as of one moment.
#[derive(Debug)]
pub struct Records {
    loaded: BTreeMap<Arc<str>, Loaded>,
    /// The moment, in microseconds. Expiries count from it: it is later than the sending of the requests,
    /// from which leases count.
    now: u64,
    /// The same moment since 1970.
    wall: Duration,
    /// Whether refused clients enter the queue. If not, they leave a mark for the holder.
    queues: bool,
    /// Whether waiters are served in the order in which they entered it.
    first_come: bool,
    /// The largest number that any counter may have lost.
    floor: FencingToken,
    /// The mark of this process.
    mark: Option<Arc<str>>,
}

/// A record and its state.
#[derive(Debug)]
struct Loaded {
    /// The record without expired parts; or, if the store has something else, why not.
    record: Result<Record, Reason>,
    /// The version of the record in the store; `None` without a record.
    version: Option<u64>,
    changed: bool,
    /// Whether the queue was changed as well; it may be the larger part of the record.
    queue_changed: bool,
}

/// A record to write.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "stores take it apart")]
pub struct Change<'a> {
    /// The key of the lock.
    pub key: &'a str,
    /// The version that the store must still have; `None` if there must be no record.
    pub version: Option<u64>,
    /// The record. It may be empty, and then be deleted.
    pub record: &'a Record,
    /// Whether the queue has changed, too.
    pub queue: bool,
}

impl Records {
    /// Returns an empty set of records as of this moment, in microseconds since 1970 by the store's clock.
    #[must_use]
    pub fn at(now: u64) -> Records {
        Records {
            loaded: BTreeMap::new(),
            now,
            wall: Duration::from_micros(now),
            queues: true,
            first_come: false,
            floor: FencingToken::ZERO,
            mark: None,
        }
    }

    /// Sets the time since 1970, for fencing tokens, where the moment is by another clock.
    #[must_use]
    pub fn with_wall(mut self, wall: Duration) -> Records {
        self.wall = wall;
        self
    }

    /// For nodes that keep no queue: each refused client marks the lock as wanted.
    #[must_use]
    pub fn without_queues(mut self) -> Records {
        self.queues = false;
        self
    }

    /// For nodes that serve waiters in the order of [entry](crate::node::Grants::FirstCome).
    #[must_use]
    pub fn first_come(mut self) -> Records {
        self.first_come = true;
        self
    }

    /// Sets the largest number that a counter may have had before the store lost it.
    #[must_use]
    pub fn with_floor(mut self, floor: FencingToken) -> Records {
        self.floor = floor;
        self
    }

    /// Sets the mark by which others detect that this process has ended. It is kept with each grant but of
    /// retained tokens, which outlive their holders.
    #[must_use]
    pub fn with_mark(mut self, mark: Option<Arc<str>>) -> Records {
        self.mark = mark;
        self
    }

    /// Adds a record that was read, and its version in the store; or why what was read is none. Without a
    /// `version` there is none.
    pub fn add(&mut self, key: Arc<str>, version: Option<u64>, record: Result<Record, Reason>) {
        let record = record.map(|record| record.at(self.now));
        self.loaded.insert(key, Loaded { record, version, changed: false, queue_changed: false });
    }

    /// Returns the records that were changed.
    #[must_use]
    pub fn changes(&self) -> Vec<Change<'_>> {
        let changed = self.loaded.iter().filter(|(_, loaded)| loaded.changed);
        changed
            .filter_map(|(key, loaded)| {
                let record = loaded.record.as_ref().ok()?;
                Some(Change { key, version: loaded.version, record, queue: loaded.queue_changed })
            })
            .collect()
    }

    /// Returns the current state of a record, if it was read.
    #[must_use]
    pub fn seen(&self, key: &str) -> Option<Result<&Record, &Reason>> {
        Some(self.loaded.get(key)?.record.as_ref())
    }

    /// Returns all records and their versions, where changed ones have the version `written`.
    pub fn all(&self, written: Option<u64>) -> impl Iterator<Item = (&Arc<str>, &Record, Option<u64>)> {
        self.loaded.iter().filter_map(move |(key, loaded)| {
            let version = written.filter(|_| loaded.changed).or(loaded.version);
            Some((key, loaded.record.as_ref().ok()?, version))
        })
    }

    /// Returns the moment of the records, in microseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    fn record(&self, key: &str) -> Result<&Record, NodeError> {
        match self.loaded.get(key).map(|loaded| &loaded.record) {
            Some(Ok(record)) => Ok(record),
            Some(Err(reason)) => Err(wrong_data(reason.clone())),
            None => Err(wrong_data("the record was not read".into())),
        }
    }

    /// Returns the record and marks it as changed.
    fn change(&mut self, key: &str) -> Result<&mut Record, NodeError> {
        match self.loaded.get_mut(key) {
            Some(Loaded { record: Ok(record), changed, .. }) => {
                *changed = true;
                Ok(record)
            }
            Some(Loaded { record: Err(reason), .. }) => Err(wrong_data(reason.clone())),
            None => Err(wrong_data("the record was not read".into())),
        }
    }

    /// Returns the queue of the record and marks it as changed.
    fn change_queue(&mut self, key: &str) -> Result<&mut Queue, NodeError> {
        if let Some(loaded) = self.loaded.get_mut(key) {
            loaded.queue_changed = true;
        }
        Ok(&mut self.change(key)?.queue)
    }

    fn after(&self, time: Duration) -> u64 {
        self.now.saturating_add(micros(time))
    }

    fn held(&self, token: &Token, ends: u64) -> Held {
        let mark = self.mark.clone().filter(|_| !token.is_retained());
        Held { token: token.clone(), ends: Some(ends), number: None, wanted: false, mark }
    }
}

impl Records {
    /// Applies the request. The records that it [needs](Records::needed_for) must have been [added](Records::add).
    ///
    /// # Errors
    ///
    /// If a record is none, a counter is exhausted, or the request is unknown. Then nothing was changed.
    pub fn apply(&mut self, request: &Request) -> Decision {
        match request {
            Request::Acquire { claim, ttl, fence_hint } => match claim.mode() {
                Mode::Shared => self.acquire_shared(claim, *ttl, *fence_hint),
                Mode::Exclusive => self.acquire(claim, *ttl, *fence_hint),
            },
            Request::Transfer { from, to, ttl, fence_hint } => self.transfer(from, to, *ttl, *fence_hint),
            Request::Renew { claim, ttl, fencing_token } => match claim.mode() {
                Mode::Shared => self.renew_shared(claim, *ttl, *fencing_token),
                Mode::Exclusive => self.renew(claim, *ttl, *fencing_token),
            },
            Request::WriteBack { claim, fencing_token } => self.write_back(claim, *fencing_token),
            Request::Release { claim } => self.release(claim),
            Request::Cancel { claim, linger } => self.cancel(claim, *linger),
            Request::AnnounceWriter { key, waiter, patience } => self.intend(key, *waiter, *patience),
            Request::WithdrawWriter { key, waiter } => self.desist(key, *waiter),
            Request::Enqueue { key, waiter, elapsed, patience, turn, terms, context, .. } => {
                let since = self.now.saturating_sub(micros(*elapsed));
                // Of the token to come, if it is known.
                let named = terms.as_ref().and_then(|terms| terms.token.context());
                let context = named.as_deref().unwrap_or(context);
                if self.first_come {
                    return self.enter(key, (*waiter, context), *patience, *turn);
                }
                self.enqueue(key, (*waiter, since, context), *patience, micros(*turn))
            }
            Request::LeaveQueue { key, waiter } if self.first_come => self.withdraw(key, *waiter),
            Request::LeaveQueue { key, waiter } => self.leave_queue(key, *waiter),
            Request::ListWaiters { key } => self.list_waiters(key),
            Request::Inspect { key, prefix_len } => self.inspect(key, *prefix_len),
            Request::Offer { .. } | Request::LogHold { .. } | Request::ReadLog { .. } => {
                let reason = Reason::new("a record does not know this request");
                Err(NodeError::Failed { kind: NodeErrorKind::Unsupported, reason })
            }
        }
    }
}

/// Whether something keeps a claim from being granted.
enum Hindrance {
    /// Another token holds this key, the first such key.
    At(Arc<str>),
    /// Nothing; `free` are the claim's keys that are free, and it holds the others.
    None { free: Vec<Arc<str>> },
}

/// Helpers.
impl Records {
    fn hindrance(&self, claim: &Claim) -> Result<Hindrance, NodeError> {
        let mut free = Vec::new();
        for key in claim.keys() {
            match &self.record(key)?.held {
                Some(held) if held.token == *claim.token() => {}
                Some(_) => return Ok(Hindrance::At(Arc::clone(key))),
                None => free.push(Arc::clone(key)),
            }
        }
        Ok(Hindrance::None { free })
    }

    fn is_cancelled(&self, claim: &Claim) -> Result<bool, NodeError> {
        let random = claim.token().random_part();
        for key in claim.keys() {
            if self.record(key)?.tombstones.contains_key(random) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Refuses: another token holds the key. A client that wants one exclusive lock waits in its queue; the
    /// first refused client of any other kind leaves a mark for the holder, once.
    fn refused(&mut self, claim: &Claim, key: &Arc<str>, drawing: Option<Drawing>) -> Decision {
        let vote = self.holding_at(claim, key)?;
        let current = match drawing {
            Some(_) => above_zero(self.counter_of(claim, key)?),
            None => None,
        };
        let alone = claim.mode() == Mode::Exclusive && !claim.is_several();
        let queues = self.first_come || (self.queues && alone);
        if !queues
            && drawing.is_some()
            && self.record(key)?.held.as_ref().is_some_and(|held| !held.wanted && held.ends.is_some())
            && let Some(held) = &mut self.change(key)?.held
        {
            held.wanted = true;
        }
        Ok((vote, current))
    }

    /// Returns the holder of the key, and the key itself if several were requested.
    fn holding_at(&self, claim: &Claim, key: &Arc<str>) -> Result<Vote, NodeError> {
        let Some(held) = &self.record(key)?.held else { return Ok(Vote::Free) };
        let holding = self.holding(held);
        Ok(if claim.is_several() { holding.at(Arc::clone(key)) } else { holding }.into())
    }

    fn holding(&self, held: &Held) -> Holding {
        let left = |ends: u64| Expiry::In(Duration::from_micros(ends.saturating_sub(self.now)));
        Holding::new(held.token.clone(), held.ends.map_or(Expiry::Never, left))
    }

    fn store(&mut self, claim: &Claim, free: &[Arc<str>], ttl: Duration) -> Result<(), NodeError> {
        let held = self.held(claim.token(), self.after(ttl));
        for key in free {
            self.change(key)?.held = Some(held.clone());
        }
        Ok(())
    }

    /// Extends the life of the key, and never shortens it.
    fn prolong(&mut self, key: &str, ttl: Duration) -> Result<(), NodeError> {
        let until = self.after(ttl);
        let shorter = |held: &Held| held.ends.is_none_or(|ends| ends < until);
        if self.record(key)?.held.as_ref().is_some_and(shorter)
            && let Some(held) = &mut self.change(key)?.held
        {
            held.ends = Some(until);
        }
        Ok(())
    }
}

fn wrong_data(reason: Reason) -> NodeError {
    NodeError::Failed { kind: NodeErrorKind::WrongData, reason }
}
