//! What each request does to the rows, in the words of the contract. Pure: rows and time are arguments.
//!
//! Whatever can fail does so before anything is changed, so that a request changes all that it should or nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quorlock::protocol::{Claim, FenceHint, FencingToken, MOST_PLACES, Mode, WaiterId};
use quorlock::{
    Token,
    lock::{QueueListing, QueuedWaiter},
    node::{Expiry, Holding, NodeError, NodeErrorKind, Queued, Reason, Request, Vote},
};

use crate::queue::Queue;
use crate::row::{Held, Row};

/// A vote, and the number that goes with it.
pub(crate) type Told = (Vote, Option<FencingToken>);

type Decision = Result<Told, NodeError>;

/// The rows that a handful of requests names, as the server had them at one moment.
#[derive(Debug)]
pub(crate) struct Rows {
    rows: BTreeMap<Arc<str>, Loaded>,
    /// That moment by the server's clock, in microseconds since 1970. Ends of keys count from it: it is after the
    /// requests were asked, which is what leases count from.
    now: u64,
}

/// One row, and what is known of it.
#[derive(Debug)]
struct Loaded {
    /// Without what has ended; why not, where it holds no lock.
    row: Result<Row, Reason>,
    /// What the table has in the column `nonce`; `None` without a row.
    nonce: Option<u64>,
    changed: bool,
    /// Whether the queue was changed as well, which may be the larger part of the row.
    queue_changed: bool,
}

/// A row that is to be written.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    pub(crate) key: &'a str,
    /// What must stand in the column `nonce` still; `None` if there must be no row.
    pub(crate) nonce: Option<u64>,
    pub(crate) row: &'a Row,
    /// Whether its queue is to be written, too.
    pub(crate) queue: bool,
}

impl Rows {
    /// No rows, at this moment.
    pub(crate) fn at(now: u64) -> Rows {
        Rows { rows: BTreeMap::new(), now }
    }

    /// Adds a row that was read; there is none without a `nonce`.
    pub(crate) fn add(&mut self, key: Arc<str>, nonce: Option<u64>, row: Result<Row, Reason>) {
        let row = row.map(|row| row.at(self.now));
        self.rows.insert(key, Loaded { row, nonce, changed: false, queue_changed: false });
    }

    /// What was changed since.
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

    /// The row, which is written afterwards.
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

    /// The queue of the row, which is written afterwards.
    fn change_queue(&mut self, key: &str) -> Result<&mut Queue, NodeError> {
        if let Some(loaded) = self.rows.get_mut(key) {
            loaded.queue_changed = true;
        }
        Ok(&mut self.change(key)?.queue)
    }

    /// The row as it is by now, of a key that was read.
    pub(crate) fn seen(&self, key: &str) -> Option<Result<&Row, &Reason>> {
        Some(self.rows.get(key)?.row.as_ref())
    }

    /// The rows and their nonces, which the changed ones have from a write with the nonce `written`; without those that
    /// hold no lock.
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

/// The keys whose rows the request needs.
pub(crate) fn keys(request: &Request) -> Vec<Arc<str>> {
    match request {
        Request::Acquire { claim, .. }
        | Request::Renew { claim, .. }
        | Request::WriteBack { claim, .. }
        | Request::Release { claim }
        | Request::Cancel { claim, .. } => claim.keys().cloned().collect(),
        Request::Transfer { to, .. } => to.keys().cloned().collect(),
        Request::AnnounceWriter { key, .. }
        | Request::WithdrawWriter { key, .. }
        | Request::Enqueue { key, .. }
        | Request::LeaveQueue { key, .. }
        | Request::ListWaiters { key }
        | Request::DeleteFencingCounter { key }
        | Request::Inspect { key } => vec![Arc::clone(key)],
        // Refused before, or newer than this node.
        Request::Offer { .. } | _ => Vec::new(),
    }
}

impl Rows {
    /// Does what the request asks for.
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

/// Exclusive locks, of one resource or several.
impl Rows {
    fn acquire(&mut self, claim: &Claim, ttl: Duration, hint: Option<FenceHint>) -> Decision {
        if self.is_cancelled(claim)? {
            return Ok((Vote::Free, None));
        }
        let drawing = self.prepare(claim, hint)?;
        match self.hindrance(claim)? {
            Hindrance::At(key) => self.refused(claim, &key, drawing),
            Hindrance::None { free } if free.is_empty() => Ok((Vote::Granted, stands(drawing))),
            Hindrance::None { free } => {
                self.store(claim, &free, ttl)?;
                self.draw(claim, drawing.map(|drawing| drawing.next))
            }
        }
    }

    fn transfer(&mut self, from: &Claim, to: &Claim, ttl: Duration, hint: Option<FenceHint>) -> Decision {
        if self.is_cancelled(to)? {
            return Ok((Vote::Free, None));
        }
        let drawing = self.prepare(to, hint)?;
        match self.row(to.key())?.held.clone() {
            Some(held) if held.token == *to.token() => {
                self.prolong(to.key(), ttl)?;
                Ok((Vote::Granted, stands(drawing)))
            }
            Some(held) if held.token != *from.token() => Ok((self.holding(&held).into(), stands(drawing))),
            before => {
                let wanted = before.is_some_and(|held| held.wanted);
                let ends = Some(self.after(ttl));
                let row = self.change(to.key())?;
                row.held = Some(Held { token: to.token().clone(), ends, number: None, wanted });
                row.beside.readers.clear();
                self.draw(to, drawing.map(|drawing| drawing.next))
            }
        }
    }

    fn renew(&mut self, claim: &Claim, ttl: Duration, fencing_token: Option<FencingToken>) -> Decision {
        let free = match self.hindrance(claim)? {
            Hindrance::At(key) => {
                let told = fencing_token.filter(|_| claim.is_several());
                let counter = told.map(|_| self.usable_counter(&key)).transpose()?;
                return Ok((self.holding_at(claim, &key)?, counter.and_then(above_zero)));
            }
            Hindrance::None { free } => free,
        };
        if free.is_empty() {
            for key in claim.keys() {
                self.prolong(key, ttl)?;
            }
            return Ok((Vote::Granted, None));
        }
        if self.is_cancelled(claim)? {
            return Ok((Vote::Free, None));
        }
        if let Some(fencing_token) = fencing_token {
            // All of them before any is changed.
            let counters: Vec<_> = claim.keys().map(|key| self.usable_counter(key)).collect();
            let counters: Vec<FencingToken> = counters.into_iter().collect::<Result<_, _>>()?;
            for (key, counter) in claim.keys().zip(counters) {
                self.change(key)?.counter = counter.max(fencing_token).get();
            }
        }
        self.store(claim, &free, ttl)?;
        for key in claim.keys() {
            self.prolong(key, ttl)?;
            if let (Some(number), Some(held)) = (fencing_token, &mut self.change(key)?.held) {
                held.number = Some(number);
            }
        }
        Ok((Vote::Restored, None))
    }

    fn write_back(&mut self, claim: &Claim, fencing_token: FencingToken) -> Decision {
        match self.hindrance(claim)? {
            Hindrance::At(key) => {
                let told = claim.is_several();
                let counter = if told { above_zero(self.usable_counter(&key)?) } else { None };
                return Ok((self.holding_at(claim, &key)?, counter));
            }
            Hindrance::None { free } if !free.is_empty() => return Ok((Vote::Free, None)),
            Hindrance::None { .. } => {}
        }
        if let Some(ahead) = self.ahead(claim, fencing_token)? {
            return Ok(ahead);
        }
        self.draw(claim, Some(fencing_token))
    }

    /// Of the exclusive locks of a claim, or of its share in one.
    fn release(&mut self, claim: &Claim) -> Decision {
        if claim.mode() == Mode::Shared {
            return self.release_shared(claim);
        }
        let mut vote = Vote::Free;
        for key in claim.keys() {
            let held = match self.row(key) {
                Ok(row) => row.held.as_ref().filter(|held| held.token == *claim.token()),
                // What is not ours stays, of whatever kind.
                Err(_) if claim.is_several() => continue,
                Err(error) => return Err(error),
            };
            if held.is_none() {
                continue;
            }
            let freed = self.free(key)?;
            if vote == Vote::Free || vote == Vote::Granted || freed == Vote::ReleasedContended {
                vote = freed;
            }
        }
        Ok((vote, None))
    }

    fn cancel(&mut self, claim: &Claim, linger: Duration) -> Decision {
        let ends = self.after(linger);
        let (vote, _) = self.release(claim)?;
        // At any of its keys it stops the whole claim.
        let place: &str = claim.keys().find(|key| self.row(key).is_ok()).map_or(claim.key(), |key| key);
        let tombstones = &mut self.change(place)?.beside.tombstones;
        let kept = tombstones.entry(claim.token().random_part().to_vec()).or_default();
        *kept = ends.max(*kept);
        Ok((if vote == Vote::Free { vote } else { Vote::Granted }, None))
    }

    /// Frees a lock: it is the turn of the first in its queue.
    fn free(&mut self, key: &str) -> Result<Vote, NodeError> {
        let (now, queue) = (self.now, &self.row(key)?.queue);
        let turn = !queue.is_empty() && self.change_queue(key)?.next_turn(now);
        let wanted = self.change(key)?.held.take().is_some_and(|held| held.wanted);
        Ok(match (turn, wanted) {
            (true, _) => Vote::Notified,
            (false, true) => Vote::ReleasedContended,
            (false, false) => Vote::Granted,
        })
    }

    fn forget(&mut self, key: &str) -> Decision {
        let there = self.row(key)?.counter != 0;
        if there {
            self.change(key)?.counter = 0;
        }
        Ok((if there { Vote::Granted } else { Vote::Free }, None))
    }

    fn inspect(&self, key: &str) -> Decision {
        let row = self.row(key)?;
        let counter = FencingToken::new(row.counter).and_then(above_zero);
        let Some(held) = &row.held else { return Ok((Vote::Free, counter)) };
        let number = held.number.or_else(|| held.token.number()).or(counter);
        let mut shares: Vec<_> = row.beside.readers.iter().map(|(token, ends)| (ends, token)).collect();
        shares.sort_unstable();
        let readers = shares.into_iter().take(100).map(|(_, token)| Token::found(token)).collect();
        Ok((self.holding(held).with_readers(readers).into(), number))
    }
}

/// Shared locks.
impl Rows {
    fn acquire_shared(&mut self, claim: &Claim, ttl: Duration, hint: Option<FenceHint>) -> Decision {
        if self.is_cancelled(claim)? {
            return Ok((Vote::Free, None));
        }
        let drawing = self.prepare(claim, hint)?;
        let row = self.row(claim.key())?;
        if row.held.is_some() && !row.is_shared() {
            return self.refused(claim, &claim.key().into(), drawing);
        }
        if row.beside.readers.contains_key(claim.token().as_bytes()) {
            return Ok((Vote::Granted, stands(drawing)));
        }
        if !row.beside.intents.is_empty() {
            return Ok((Vote::NotYourTurn, stands(drawing)));
        }
        let draws = drawing.filter(|drawing| !row.is_shared() || drawing.stands == FencingToken::ZERO);
        let ends = self.after(ttl);
        let row = self.change(claim.key())?;
        if let Some(Drawing { next, .. }) = draws {
            row.counter = next.get();
        }
        join(row, claim, ends);
        Ok((Vote::Granted, draws.map_or(stands(drawing), |drawing| Some(drawing.next))))
    }

    fn renew_shared(
        &mut self,
        claim: &Claim,
        ttl: Duration,
        fencing_token: Option<FencingToken>,
    ) -> Decision {
        let ends = self.after(ttl);
        let row = self.row(claim.key())?;
        let alone = row.held.as_ref().filter(|held| held.token == *claim.token());
        if let Some(held) = alone {
            let ends = held.ends.map_or(ends, |old| old.max(ends));
            let raised = self.raised_past(claim.key(), fencing_token)?;
            let row = self.change(claim.key())?;
            row.counter = raised.unwrap_or(row.counter);
            row.held = None;
            join(row, claim, ends);
            return Ok((Vote::Granted, None));
        }
        if let Some(held) = row.held.as_ref().filter(|_| !row.is_shared()) {
            return Ok((self.holding(held).into(), None));
        }
        if let Some(old) = row.beside.readers.get(claim.token().as_bytes()) {
            if *old < ends {
                join(self.change(claim.key())?, claim, ends);
            }
            return Ok((Vote::Granted, None));
        }
        if self.is_cancelled(claim)? {
            return Ok((Vote::Free, None));
        }
        let raised = self.raised_past(claim.key(), fencing_token)?;
        let row = self.change(claim.key())?;
        row.counter = raised.unwrap_or(row.counter);
        join(row, claim, ends);
        Ok((Vote::Restored, None))
    }

    fn write_back_shared(&mut self, claim: &Claim, fencing_token: FencingToken) -> Decision {
        let row = self.row(claim.key())?;
        if !row.is_shared() {
            return Ok((row.held.as_ref().map_or(Vote::Free, |held| self.holding(held).into()), None));
        }
        if !row.beside.readers.contains_key(claim.token().as_bytes()) {
            return Ok((Vote::Free, None));
        }
        if let Some(ahead) = self.ahead(claim, fencing_token)? {
            return Ok(ahead);
        }
        self.change(claim.key())?.counter = fencing_token.get();
        Ok((Vote::Granted, Some(fencing_token)))
    }

    fn release_shared(&mut self, claim: &Claim) -> Decision {
        let row = self.row(claim.key())?;
        let Some(held) = &row.held else { return Ok((Vote::Free, None)) };
        if held.token == *claim.token() {
            return Ok((self.free(claim.key())?, None));
        }
        if !row.beside.readers.contains_key(claim.token().as_bytes()) {
            return Ok((Vote::Free, None));
        }
        let row = self.change(claim.key())?;
        row.beside.readers.remove(claim.token().as_bytes());
        let last = row.beside.readers.values().copied().max();
        if let (Some(last), Some(held)) = (last, &mut row.held) {
            held.ends = Some(last);
            Ok((Vote::Granted, None))
        } else {
            Ok((self.free(claim.key())?, None))
        }
    }

    fn intend(&mut self, key: &str, waiter: WaiterId, patience: Duration) -> Decision {
        let ends = self.after(patience);
        self.change(key)?.beside.intents.insert(waiter, ends);
        Ok((Vote::Granted, None))
    }

    fn desist(&mut self, key: &str, waiter: WaiterId) -> Decision {
        if !self.row(key)?.beside.intents.contains_key(&waiter) {
            return Ok((Vote::Free, None));
        }
        self.change(key)?.beside.intents.remove(&waiter);
        Ok((Vote::Granted, None))
    }

    /// The counter that a share leaves which is stored anew: above its own number (rule S-8).
    fn raised_past(&self, key: &str, fencing_token: Option<FencingToken>) -> Result<Option<u64>, NodeError> {
        let Some(fencing_token) = fencing_token else { return Ok(None) };
        let before = self.usable_counter(key)?.max(fencing_token);
        Ok(Some(before.get().saturating_add(1).min(FencingToken::MAX.get())))
    }
}

/// Adds the claim to those that share the lock, until `ends`. The marker lives as long as the last of them.
fn join(row: &mut Row, claim: &Claim, ends: u64) {
    if !row.is_shared() {
        row.beside.readers.clear();
        row.held = Some(Held::marker(ends));
    }
    row.beside.readers.insert(claim.token().as_bytes().to_vec(), ends);
    if let Some(Held { ends: marker @ Some(_), .. }) = &mut row.held {
        *marker = (*marker).max(Some(ends));
    }
}

/// The queue of clients that want one lock exclusively.
impl Rows {
    /// Waits in the queue, unless the lock is free and no client's turn. The first two learn who holds it.
    fn enqueue(
        &mut self,
        key: &str,
        (waiter, since, context): (WaiterId, u64, &str),
        patience: Duration,
        turn: u64,
    ) -> Decision {
        let (now, ends) = (self.now, self.after(patience));
        let Row { held, queue, .. } = self.row(key)?;
        if held.is_none() && queue.is_turn_of(waiter, now, turn) {
            self.change_queue(key)?.begin_turn(waiter, now);
            return Ok((Vote::Free, None));
        }
        if !queue.keeps(waiter, ends, micros(patience)) {
            self.change_queue(key)?.join(waiter, since, ends, context);
        }
        let Row { held, queue, .. } = self.row(key)?;
        let ahead = queue.place(waiter).and_then(|place| u32::try_from(place).ok());
        let ahead = ahead.map_or(MOST_PLACES, |ahead| ahead.min(MOST_PLACES));
        let holding = held.as_ref().filter(|_| ahead < 2).map(|held| self.holding(held));
        Ok((Queued::new(ahead, holding).into(), None))
    }

    /// Waits no longer. If it was this waiter's turn, it is the next one's.
    fn leave_queue(&mut self, key: &str, waiter: WaiterId) -> Decision {
        let Row { held, queue, .. } = self.row(key)?;
        if queue.place(waiter).is_some() {
            self.change_queue(key)?.leave(waiter);
            return Ok((Vote::Granted, None));
        }
        let now = self.now;
        let turn = held.is_none() && !queue.is_empty() && self.change_queue(key)?.next_turn(now);
        Ok((if turn { Vote::Notified } else { Vote::Free }, None))
    }

    fn list_waiters(&self, key: &str) -> Decision {
        let mut living = self.row(key)?.queue.living(self.now);
        let waited = |since| Duration::from_micros(self.now.saturating_sub(since));
        let listed = living.by_ref().take(MOST_LISTED);
        let listed =
            listed.map(|(id, since, context)| QueuedWaiter::new(id, waited(since), context.to_owned()));
        let listed = listed.collect();
        Ok((QueueListing::new(listed, living.next().is_some()).into(), None))
    }
}

/// No more waiters are listed.
const MOST_LISTED: usize = 100;

/// What keeps a claim from being granted.
enum Hindrance {
    /// Another token, here first.
    At(Arc<str>),
    /// Nothing; these of its keys are free, and it has the others.
    None { free: Vec<Arc<str>> },
}

/// What the requests have in common.
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

    /// Another one holds this key. Who wants one lock for itself waits in its queue; the first of the others who is
    /// refused leaves a mark for the holder, once.
    fn refused(&mut self, claim: &Claim, key: &Arc<str>, drawing: Option<Drawing>) -> Decision {
        let vote = self.holding_at(claim, key)?;
        let stands = match drawing {
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
        Ok((vote, stands))
    }

    /// Who holds the key, which is named where several were asked for.
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

    /// Never shortens the life of the key.
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

/// A number that can be drawn.
#[derive(Clone, Copy, Debug)]
struct Drawing {
    /// Where the counter stands before; of several, the largest.
    stands: FencingToken,
    next: FencingToken,
}

/// The counter of fencing tokens.
impl Rows {
    /// One that can still be raised; zero without one.
    fn usable_counter(&self, key: &str) -> Result<FencingToken, NodeError> {
        let counter =
            FencingToken::new(self.row(key)?.counter).filter(|counter| *counter < FencingToken::MAX);
        counter.ok_or_else(|| wrong_data("the counter of fencing tokens is at its end, or no number".into()))
    }

    /// Which number is next. Changes nothing: what fails, fails here.
    fn prepare(&self, claim: &Claim, hint: Option<FenceHint>) -> Result<Option<Drawing>, NodeError> {
        let Some(hint) = hint else { return Ok(None) };
        let mut drawing = Drawing { stands: FencingToken::ZERO, next: FencingToken::ZERO };
        for key in claim.keys() {
            let stands = self.usable_counter(key)?;
            let next = hint.from(stands, self.wall());
            let next = next.map_err(|why| wrong_data(Reason::new(why.to_string())))?;
            drawing = Drawing { stands: drawing.stands.max(stands), next: drawing.next.max(next) };
        }
        Ok(Some(drawing))
    }

    /// Raises the counters to what was drawn for the claim, which holds all its keys.
    fn draw(&mut self, claim: &Claim, number: Option<FencingToken>) -> Decision {
        if let Some(number) = number {
            for key in claim.keys() {
                let row = self.change(key)?;
                row.counter = number.get();
                if let Some(held) = &mut row.held {
                    held.number = Some(number);
                }
            }
        }
        Ok((Vote::Granted, number))
    }

    /// What to answer to a write-back where a counter is ahead, or may have been before it went (rules F-5, F-10).
    fn ahead(&self, claim: &Claim, fencing_token: FencingToken) -> Result<Option<Told>, NodeError> {
        for key in claim.keys() {
            let counter = self.usable_counter(key)?;
            if !fencing_token.may_follow(counter, self.wall()) {
                let gone = counter == FencingToken::ZERO;
                let counter = if gone { FencingToken::forgotten(self.wall()) } else { counter };
                return Ok(Some((Vote::FenceAhead, above_zero(counter))));
            }
        }
        Ok(None)
    }
}

fn stands(drawing: Option<Drawing>) -> Option<FencingToken> {
    drawing.and_then(|drawing| above_zero(drawing.stands))
}

/// A counter of zero is none.
fn above_zero(counter: FencingToken) -> Option<FencingToken> {
    (counter > FencingToken::ZERO).then_some(counter)
}

fn wrong_data(reason: Reason) -> NodeError {
    NodeError::Failed { kind: NodeErrorKind::WrongData, reason }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
