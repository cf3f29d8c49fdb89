//! Applies requests to rows, as the contract specifies. Pure: rows and time are arguments.
//!
//! Everything that can fail does so before the first change, so that a request applies completely or not at
//! all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{Expiry, Holding, NodeError, NodeErrorKind, Reason, Request, Vote};
use quorlock::protocol::{Claim, FencingToken, Mode, micros};

use crate::queue::Queue;
use crate::row::{Held, Row};

mod exclusive;
mod fence;
mod queue;
mod shared;

use fence::{Drawing, above_zero};

/// A vote, and the fencing token that goes with it.
pub(crate) type Outcome = (Vote, Option<FencingToken>);

type Decision = Result<Outcome, NodeError>;

/// The rows that a batch of requests needs, as of one moment.
#[derive(Debug)]
pub(crate) struct Rows {
    rows: BTreeMap<Arc<str>, Loaded>,
    /// That moment by the server's clock, in microseconds since 1970. Expiries count from it: it is later
    /// than the sending of the requests, from which leases count.
    now: u64,
}

/// A row and its state.
#[derive(Debug)]
struct Loaded {
    /// The row without expired parts; or, if it does not hold a lock, why not.
    row: Result<Row, Reason>,
    /// The value of the column `nonce`; `None` without a row.
    nonce: Option<u64>,
    changed: bool,
    /// Whether the queue was changed as well; it may be the larger part of the row.
    queue_changed: bool,
}

/// A row to write.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    pub(crate) key: &'a str,
    /// The value that the column `nonce` must still have; `None` if there must be no row.
    pub(crate) nonce: Option<u64>,
    pub(crate) row: &'a Row,
    /// Whether to write its queue, too.
    pub(crate) queue: bool,
}

impl Rows {
    /// Returns an empty set of rows as of this moment.
    pub(crate) fn at(now: u64) -> Rows {
        Rows { rows: BTreeMap::new(), now }
    }

    /// Adds a row that was read. Without a `nonce` there is none.
    pub(crate) fn add(&mut self, key: Arc<str>, nonce: Option<u64>, row: Result<Row, Reason>) {
        let row = row.map(|row| row.at(self.now));
        self.rows.insert(key, Loaded { row, nonce, changed: false, queue_changed: false });
    }

    /// Returns the rows that were changed.
    pub(crate) fn changes(&self) -> Vec<Change<'_>> {
        let changed = self.rows.iter().filter(|(_, loaded)| loaded.changed);
        changed
            .filter_map(|(key, loaded)| {
                let row = loaded.row.as_ref().ok()?;
                Some(Change { key, nonce: loaded.nonce, row, queue: loaded.queue_changed })
            })
            .collect()
    }

    fn row(&self, key: &str) -> Result<&Row, NodeError> {
        match self.rows.get(key).map(|loaded| &loaded.row) {
            Some(Ok(row)) => Ok(row),
            Some(Err(reason)) => Err(wrong_data(reason.clone())),
            None => Err(wrong_data("the row was not read".into())),
        }
    }

    /// Returns the row and marks it as changed.
    fn change(&mut self, key: &str) -> Result<&mut Row, NodeError> {
        match self.rows.get_mut(key) {
            Some(Loaded { row: Ok(row), changed, .. }) => {
                *changed = true;
                Ok(row)
            }
            Some(Loaded { row: Err(reason), .. }) => Err(wrong_data(reason.clone())),
            None => Err(wrong_data("the row was not read".into())),
        }
    }

    /// Returns the queue of the row and marks it as changed.
    fn change_queue(&mut self, key: &str) -> Result<&mut Queue, NodeError> {
        if let Some(loaded) = self.rows.get_mut(key) {
            loaded.queue_changed = true;
        }
        Ok(&mut self.change(key)?.queue)
    }

    /// Returns the current state of a row, if it was read.
    pub(crate) fn seen(&self, key: &str) -> Option<Result<&Row, &Reason>> {
        Some(self.rows.get(key)?.row.as_ref())
    }

    /// Returns the rows that hold locks and their nonces, where changed rows have the nonce `written`.
    pub(crate) fn all(&self, written: Option<u64>) -> impl Iterator<Item = (&Arc<str>, &Row, Option<u64>)> {
        self.rows.iter().filter_map(move |(key, loaded)| {
            let nonce = written.filter(|_| loaded.changed).or(loaded.nonce);
            Some((key, loaded.row.as_ref().ok()?, nonce))
        })
    }

    /// The moment at which the rows were read, in microseconds since 1970 by the server's clock.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    fn after(&self, time: Duration) -> u64 {
        self.now.saturating_add(micros(time))
    }

    fn wall(&self) -> Duration {
        Duration::from_micros(self.now)
    }
}

impl Rows {
    /// Applies the request.
    pub(crate) fn carry_out(&mut self, request: &Request) -> Decision {
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
            Request::WriteBack { claim, fencing_token } => match claim.mode() {
                Mode::Shared => self.write_back_shared(claim, *fencing_token),
                Mode::Exclusive => self.write_back(claim, *fencing_token),
            },
            Request::Release { claim } => self.release(claim),
            Request::Cancel { claim, linger } => self.cancel(claim, *linger),
            Request::AnnounceWriter { key, waiter, patience } => self.intend(key, *waiter, *patience),
            Request::WithdrawWriter { key, waiter } => self.desist(key, *waiter),
            Request::Enqueue { key, waiter, elapsed, patience, turn, context, .. } => {
                let since = self.now.saturating_sub(micros(*elapsed));
                self.enqueue(key, (*waiter, since, context), *patience, micros(*turn))
            }
            Request::LeaveQueue { key, waiter } => self.leave_queue(key, *waiter),
            Request::ListWaiters { key } => self.list_waiters(key),
            Request::DeleteFencingCounter { key } => self.forget(key),
            Request::Inspect { key } => self.inspect(key),
            Request::Offer { .. } | _ => {
                let reason = Reason::new("a table does not know this request");
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
impl Rows {
    fn hindrance(&self, claim: &Claim) -> Result<Hindrance, NodeError> {
        let mut free = Vec::new();
        for key in claim.keys() {
            match &self.row(key)?.held {
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
            if self.row(key)?.beside.tombstones.contains_key(random) {
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
            Some(_) => above_zero(self.usable_counter(key)?),
            None => None,
        };
        let queues = claim.mode() == Mode::Exclusive && !claim.is_several();
        if !queues
            && drawing.is_some()
            && self.row(key)?.held.as_ref().is_some_and(|held| !held.wanted && held.ends.is_some())
            && let Some(held) = &mut self.change(key)?.held
        {
            held.wanted = true;
        }
        Ok((vote, current))
    }

    /// Returns the holder of the key, and the key itself if several were requested.
    fn holding_at(&self, claim: &Claim, key: &Arc<str>) -> Result<Vote, NodeError> {
        let Some(held) = &self.row(key)?.held else { return Ok(Vote::Free) };
        let holding = self.holding(held);
        Ok(if claim.is_several() { holding.at(Arc::clone(key)) } else { holding }.into())
    }

    fn holding(&self, held: &Held) -> Holding {
        let left = |ends: u64| Expiry::In(Duration::from_micros(ends.saturating_sub(self.now)));
        Holding::new(held.token.clone(), held.ends.map_or(Expiry::Never, left))
    }

    fn store(&mut self, claim: &Claim, free: &[Arc<str>], ttl: Duration) -> Result<(), NodeError> {
        let ends = Some(self.after(ttl));
        for key in free {
            let held = Held { token: claim.token().clone(), ends, number: None, wanted: false };
            self.change(key)?.held = Some(held);
        }
        Ok(())
    }

    /// Extends the life of the key, and never shortens it.
    fn prolong(&mut self, key: &str, ttl: Duration) -> Result<(), NodeError> {
        let until = self.after(ttl);
        let shorter = |held: &Held| held.ends.is_none_or(|ends| ends < until);
        if self.row(key)?.held.as_ref().is_some_and(shorter)
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
