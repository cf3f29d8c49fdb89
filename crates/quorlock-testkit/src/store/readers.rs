//! The readers of a lock, as the scripts that begin with `readers.lua` keep them.

use std::collections::BTreeMap;
use std::time::Duration;

use quorlock::node::Vote;
use quorlock::protocol::{FencingToken, Moment, SHARED_MARKER, Token};

use super::{Drawing, Failure, Millis, ScriptResult, Store, Value, WANTED, millis, span};

/// The arguments of [`Store::acquire_shared`]: the keys and the arguments of the script.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete: as the script")]
pub struct Sharing<'a> {
    /// The lock.
    pub key: &'a [u8],
    /// Its tombstone.
    pub tombstone: &'a [u8],
    /// The mark that a client wants it.
    pub mark: &'a [u8],
    /// The set of its readers.
    pub readers: &'a [u8],
    /// The set of waiting writers.
    pub intents: &'a [u8],
    /// The token of the new reader.
    pub token: &'a [u8],
    /// How long the share lasts.
    pub ttl: Duration,
    /// The number to draw.
    pub drawing: Option<Drawing<'a>>,
}

/// A sorted set: members, and when each expires.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
    ends: BTreeMap<Vec<u8>, Millis>,
    /// When the key itself expires.
    key_ends: Millis,
}

impl Members {
    pub(super) fn lives(&self, now: Millis) -> bool {
        now <= self.key_ends && !self.ends.is_empty()
    }

    fn prune(&mut self, now: Millis) {
        self.ends.retain(|_, ends| now <= *ends);
    }
}

/// The minimum time for which the key of the intents is kept after a change.
const INTENTS: Duration = Duration::from_secs(60);

impl Store {
    /// `acquire_shared.lua`: adds the token as a reader, unless a writer holds the lock or waits for it.
    ///
    /// # Errors
    ///
    /// As [`Store::acquire`].
    pub fn acquire_shared(&mut self, now: Moment, asked: &Sharing<'_>) -> Result<ScriptResult, Failure> {
        let Sharing { key, tombstone, mark, readers, intents, token, ttl, drawing } = *asked;
        if self.exists(now, tombstone) {
            return Ok(Vote::Free.into());
        }
        let shared = self.is_shared(now, key)?;
        let drawing = drawing.map(|drawing| self.prepare(now, drawing)).transpose()?;
        let counter = drawing.map(|drawing| drawing.current);
        if !shared && self.exists(now, key) {
            self.put(mark, Value::from("1"), Some(millis(now).saturating_add(span(WANTED))));
            return Ok(ScriptResult::with(self.holding(now, key)?, counter));
        }
        let at = millis(now);
        if shared && self.members(now, readers).ends.contains_key(token) {
            return Ok(ScriptResult::with(Vote::Granted, counter));
        }
        let waiting = self.members(now, intents);
        if !waiting.ends.is_empty() {
            waiting.key_ends = at.saturating_add(span(INTENTS));
            return Ok(ScriptResult::with(Vote::NotYourTurn, counter));
        }
        let first = !shared || counter == Some(FencingToken::ZERO);
        let number =
            drawing.map(|drawing| if first { self.draw_for_readers(now, drawing) } else { drawing.current });
        if !shared {
            self.found(key, readers, at);
        }
        self.join_readers(key, readers, token, at.saturating_add(span(ttl)));
        Ok(ScriptResult::with(Vote::Granted, number))
    }

    /// `renew_shared.lua`: extends the token's share, stores it again, or downgrades the token to a reader if
    /// it holds the lock exclusively; then the counter is raised to at least `fencing_token`.
    ///
    /// # Errors
    ///
    /// As [`Store::renew`].
    pub fn renew_shared(
        &mut self,
        now: Moment,
        key: &[u8],
        [tombstone, readers]: [&[u8]; 2],
        token: &[u8],
        ttl: Duration,
        fencing_token: Option<(&[u8], FencingToken)>,
    ) -> Result<ScriptResult, Failure> {
        let at = millis(now);
        let ends = at.saturating_add(span(ttl));
        let alone = self.get(now, key)? == Some(token);
        let shared = self.is_shared(now, key)?;
        if alone {
            self.raise_past(now, fencing_token)?;
            let old = self.keys.get(key).and_then(|entry| entry.ends).unwrap_or(at);
            self.found(key, readers, at);
            self.join_readers(key, readers, token, ends.max(old));
            return Ok(Vote::Granted.into());
        }
        if !shared && self.exists(now, key) {
            return Ok(self.holding(now, key)?.into());
        }
        let share = self.members(now, readers).ends.get(token).copied().filter(|_| shared);
        if let Some(old) = share {
            if old < ends {
                self.join_readers(key, readers, token, ends);
            }
            return Ok(Vote::Granted.into());
        }
        if self.exists(now, tombstone) {
            return Ok(Vote::Free.into());
        }
        self.raise_past(now, fencing_token)?;
        if !shared {
            self.found(key, readers, at);
        }
        self.join_readers(key, readers, token, ends);
        Ok(Vote::Restored.into())
    }

    /// `write_back_shared.lua`: raises the counter to `fencing_token`, if the token is a reader and the
    /// counter is below.
    ///
    /// # Errors
    ///
    /// As [`Store::write_back`].
    pub fn write_back_shared(
        &mut self,
        now: Moment,
        [key, readers]: [&[u8]; 2],
        token: &[u8],
        name: &[u8],
        fencing_token: FencingToken,
    ) -> Result<ScriptResult, Failure> {
        if !self.is_shared(now, key)? {
            return Ok(self.holding(now, key)?.into());
        }
        if !self.members(now, readers).ends.contains_key(token) {
            return Ok(Vote::Free.into());
        }
        let counter = self.counter(now, name)?;
        if !fencing_token.may_follow(counter, self.wall) {
            return Ok(self.ahead(counter));
        }
        Ok(ScriptResult::with(Vote::Granted, Some(self.raise(now, name, fencing_token))))
    }

    /// `release_shared.lua`: removes the token's share, and deletes the lock with the last one: then it
    /// notifies the first in the queue.
    ///
    /// # Errors
    ///
    /// If the key is not a string.
    pub fn release_shared(
        &mut self,
        now: Moment,
        [key, readers, mark]: [&[u8]; 3],
        token: &[u8],
    ) -> Result<ScriptResult, Failure> {
        if self.get(now, key)? == Some(token) {
            self.del(now, key);
            return Ok(self.tell_of_release(now, key, mark).into());
        }
        if !self.is_shared(now, key)? {
            return Ok(Vote::Free.into());
        }
        // The token first: a share that has just expired counts as one.
        let set = self.set_of(now, readers);
        let was_there = set.ends.remove(token).is_some();
        if !was_there {
            return Ok(Vote::Free.into());
        }
        set.prune(millis(now));
        let last = set.ends.values().copied().max();
        if let Some(last) = last {
            set.key_ends = last;
            if self.keys.get(key).and_then(|entry| entry.ends).is_none_or(|ends| ends > last) {
                self.put(key, Value::from(SHARED_MARKER), Some(last));
            }
        } else {
            self.del(now, key);
            return Ok(self.tell_of_release(now, key, mark).into());
        }
        Ok(Vote::Granted.into())
    }

    /// `cancel_shared.lua`: like [`Store::release_shared`], and leaves a tombstone.
    ///
    /// # Errors
    ///
    /// As [`Store::release_shared`]; then there is no tombstone either.
    pub fn cancel_shared(
        &mut self,
        now: Moment,
        [key, readers, mark]: [&[u8]; 3],
        tombstone: &[u8],
        token: &[u8],
        linger: Duration,
    ) -> Result<ScriptResult, Failure> {
        let told = self.release_shared(now, [key, readers, mark], token)?;
        self.put(tombstone, Value::from("1"), Some(millis(now).saturating_add(span(linger))));
        Ok(told)
    }

    /// `intend.lua`: announces a writer, which blocks new readers.
    pub fn intend(&mut self, now: Moment, intents: &[u8], name: &[u8], patience: Duration) -> Vote {
        let at = millis(now);
        let set = self.members(now, intents);
        set.ends.insert(name.to_vec(), at.saturating_add(span(patience)));
        set.key_ends = at.saturating_add(span(INTENTS));
        Vote::Granted
    }

    /// `desist.lua`: withdraws a writer.
    ///
    /// # Errors
    ///
    /// If the key is not a string.
    pub fn desist(
        &mut self,
        now: Moment,
        key: &[u8],
        intents: &[u8],
        name: &[u8],
    ) -> Result<ScriptResult, Failure> {
        if self.set_of(now, intents).ends.remove(name).is_none() {
            return Ok(Vote::Free.into());
        }
        if self.is_shared(now, key)? {
            self.changed(key);
        }
        Ok(Vote::Granted.into())
    }

    /// Returns the readers of the lock, and the remaining time of each, for inspection.
    pub fn readers(&mut self, now: Moment, key: &[u8], readers: &[u8]) -> Vec<(Vec<u8>, Duration)> {
        if !self.is_shared(now, key).unwrap_or(false) {
            return Vec::new();
        }
        let at = millis(now);
        let set = self.members(now, readers);
        let left = |(token, ends): (&Vec<u8>, &Millis)| {
            (token.clone(), Duration::from_millis(ends.saturating_sub(at)))
        };
        set.ends.iter().map(left).collect()
    }

    /// Like [`Store::inspect`], with the readers if there are any.
    pub(super) fn with_readers(&mut self, now: Moment, key: &[u8], readers: &[u8], vote: Vote) -> Vote {
        let Vote::Held(holding) = vote else { return vote };
        if !holding.token.is_marker() {
            return Vote::Held(holding);
        }
        let mut shares = self.readers(now, key, readers);
        // In the order of the set: by expiry.
        shares.sort_by_key(|(token, left)| (*left, token.clone()));
        let tokens = shares.iter().take(100).map(|(token, _)| Token::found(token)).collect();
        holding.with_readers(tokens).into()
    }

    fn is_shared(&mut self, now: Moment, key: &[u8]) -> Result<bool, Failure> {
        Ok(self.get(now, key)? == Some(SHARED_MARKER.as_bytes()))
    }

    fn raise_past(
        &mut self,
        now: Moment,
        fencing_token: Option<(&[u8], FencingToken)>,
    ) -> Result<(), Failure> {
        if let Some((name, fencing_token)) = fencing_token {
            let before = self.counter(now, name)?.max(fencing_token);
            self.raise(now, name, FencingToken::new(before.get() + 1).unwrap_or(FencingToken::MAX));
        }
        Ok(())
    }

    /// Stores the marker, without any reader yet.
    fn found(&mut self, key: &[u8], readers: &[u8], at: Millis) {
        self.sets.remove(readers);
        self.put(key, Value::from(SHARED_MARKER), Some(at));
    }

    fn join_readers(&mut self, key: &[u8], readers: &[u8], token: &[u8], ends: Millis) {
        let set = self.sets.entry(readers.to_vec()).or_default();
        set.ends.insert(token.to_vec(), ends);
        let old = self.keys.get(key).and_then(|entry| entry.ends);
        if old.is_none_or(|old| old < ends) {
            set.key_ends = ends;
            self.put(key, Value::from(SHARED_MARKER), Some(ends));
        }
    }

    /// Returns the set, replaced by a new one if it has expired.
    fn set_of(&mut self, now: Moment, name: &[u8]) -> &mut Members {
        let set = self.sets.entry(name.to_vec()).or_default();
        if !set.lives(millis(now)) {
            *set = Members::default();
        }
        set
    }

    /// Returns the set without expired members.
    fn members(&mut self, now: Moment, name: &[u8]) -> &mut Members {
        let set = self.set_of(now, name);
        set.prune(millis(now));
        set
    }
}
