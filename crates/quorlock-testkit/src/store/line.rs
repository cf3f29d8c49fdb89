//! Those who wait for a lock in fair order, as `acquire_in_turn.lua` keeps them.

use std::collections::BTreeMap;
use std::time::Duration;

use quorlock::Vote;
use quorlock::protocol::Moment;

use super::{Drawing, Failure, Millis, Store, Told, Value, millis, span};

/// What [`Store::acquire_in_turn`] is asked: the keys and the arguments of the script.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete: as the script")]
pub struct InTurn<'a> {
    /// The lock.
    pub key: &'a [u8],
    /// Its tombstone.
    pub tombstone: &'a [u8],
    /// The keys of the line: its order, and until when each in it is waited for.
    pub line: [&'a [u8]; 2],
    /// What is to stand under the lock.
    pub token: &'a [u8],
    /// For how long.
    pub ttl: Duration,
    /// The place in the line: the smallest comes first.
    pub place: u64,
    /// The name in the line, which decides between equal places.
    pub name: &'a [u8],
    /// Who has not asked again for this long is no longer waited for. Zero asks once and joins no line.
    pub patience: Duration,
    /// The number to draw.
    pub drawing: Option<Drawing<'a>>,
}

/// For how many milliseconds a free lock waits for the first in its line, who was told that it is free.
const FIRST_PATIENCE: Millis = 1_000;
/// How many who have stopped asking are dropped by one request.
const MOST_AT_ONCE: usize = 32;

/// One line.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    until_key: Vec<u8>,
    waiters: BTreeMap<Vec<u8>, Waiter>,
    /// Since when the lock is known to be free, though somebody waits who comes first.
    free_since: Option<Millis>,
    ends: Millis,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    place: u64,
    until: Millis,
}

/// The scripts about the line.
impl Store {
    /// `acquire_in_turn.lua`: stores the token and draws its number if the key is free, no tombstone
    /// stands and nobody earlier waits; else joins the line, unless it has no patience.
    ///
    /// # Errors
    ///
    /// As [`Store::acquire`].
    pub fn acquire_in_turn(&mut self, now: Moment, asked: &InTurn<'_>) -> Result<Told, Failure> {
        let InTurn { key, tombstone, line: [order, until], token, ttl, place, name, patience, drawing } =
            *asked;
        if self.exists(now, tombstone) {
            return Ok(Vote::Free.into());
        }
        let drawing = drawing.map(|drawing| self.prepare(now, drawing)).transpose()?;
        let counter = drawing.map(|drawing| drawing.stands);
        let holder = self.get(now, key)?;
        if holder == Some(token) {
            self.take_out(now, order, name);
            return Ok(Told::with(Vote::Granted, counter));
        }
        let free = holder.is_none();
        let at = millis(now);
        let line = self.live_line(now, order);
        line.until_key = until.to_vec();
        line.waiters.insert(name.to_vec(), Waiter { place, until: at.saturating_add(span(patience)) });
        let mut gone = at;
        if free && !patience.is_zero() && line.earliest().is_some_and(|(first, _)| first != name) {
            let since = *line.free_since.get_or_insert(at);
            if at.saturating_sub(since) > FIRST_PATIENCE {
                gone = at.max(since.saturating_add(span(patience)));
            }
        }
        let first = line.first(name, gone);
        if free && first.as_deref() == Some(name) {
            line.free_since = None;
            self.take_out(now, order, name);
            self.put(key, Value::Text(token.to_vec()), Some(at.saturating_add(span(ttl))));
            let drawn = drawing.map(|drawing| self.fence_hint(now, drawing, token));
            return Ok(Told::with(Vote::Granted, drawn));
        }
        if patience.is_zero() {
            self.take_out(now, order, name);
        } else {
            line.ends = line.ends.max(at.saturating_add(2 * span(patience)));
        }
        let vote = if free { Vote::Behind } else { self.holding(now, key)? };
        Ok(Told::with(vote, counter))
    }

    /// `leave_line.lua`: takes `name` out of the line with that order, and tells those who wait for `key`, if
    /// that is free.
    pub fn leave_line(&mut self, now: Moment, key: &[u8], order: &[u8], name: &[u8]) -> Vote {
        let left = self.take_out(now, order, name);
        if left == Vote::Granted && !self.exists(now, key) {
            self.changed(key);
        }
        left
    }

    fn take_out(&mut self, now: Moment, order: &[u8], name: &[u8]) -> Vote {
        let line = self.live_line(now, order);
        let was_there = line.waiters.remove(name).is_some();
        if line.waiters.is_empty() {
            self.lines.remove(order);
        }
        if was_there { Vote::Granted } else { Vote::Free }
    }

    /// The line, made anew if it has ended.
    fn live_line(&mut self, now: Moment, order: &[u8]) -> &mut Line {
        let line = self.lines.entry(order.to_vec()).or_default();
        if !line.lives(millis(now)) {
            *line = Line::default();
        }
        line
    }
}

impl Line {
    /// Its end is its last millisecond, as that of a key.
    pub(super) fn lives(&self, now: Millis) -> bool {
        now <= self.ends
    }

    /// The keys in which a server keeps it.
    pub(super) fn keys<'a>(&'a self, order: &'a [u8]) -> [&'a [u8]; 2] {
        [order, &self.until_key]
    }

    /// The waiter with the smallest place, whether or not it still asks.
    fn earliest(&self) -> Option<(&Vec<u8>, &Waiter)> {
        self.waiters.iter().min_by_key(|(name, waiter)| (waiter.place, *name))
    }

    /// Who is first, after those are dropped from the front who were waited for until before `gone`.
    fn first(&mut self, asking: &[u8], gone: Millis) -> Option<Vec<u8>> {
        for dropped in 0.. {
            let (name, waiter) = self.earliest().map(|(name, waiter)| (name.clone(), *waiter))?;
            if name == asking || waiter.until >= gone || dropped == MOST_AT_ONCE {
                return Some(name);
            }
            self.waiters.remove(&name);
        }
        None
    }
}
