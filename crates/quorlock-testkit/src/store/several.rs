//! Claims of several locks, as the scripts that begin with `several.lua` handle them.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::Vote;
use quorlock::protocol::{FenceHint, FencingToken, Moment};

use super::{Drawing, Failure, Noted, ScriptResult, Store, Value, WANTED, millis, span};

/// A claim of several locks: the keys of the scripts.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete: as the scripts")]
pub struct Several<'a> {
    /// The locks.
    pub locks: &'a [Place<'a>],
    /// The token to store under each.
    pub token: &'a [u8],
}

/// One of several locks, and its other keys.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete: as the scripts")]
pub struct Place<'a> {
    /// The lock.
    pub key: &'a [u8],
    /// Its tombstone.
    pub tombstone: &'a [u8],
    /// The mark that a client wants it.
    pub mark: &'a [u8],
    /// Its fencing counter.
    pub counter: &'a [u8],
}

/// The holders of the locks of a claim.
enum Held {
    /// Another client holds this one.
    ByAnother(usize),
    /// No other client holds any, and these are free.
    Free(Vec<usize>),
}

impl Store {
    /// `acquire_several.lua`: stores the token under all keys and draws one number, if each is free or held
    /// by the token; otherwise changes none.
    ///
    /// # Errors
    ///
    /// As [`Store::acquire`].
    pub fn acquire_several(
        &mut self,
        now: Moment,
        claim: &Several<'_>,
        ttl: Duration,
        fence_hint: Option<FenceHint>,
    ) -> Result<ScriptResult, Failure> {
        if self.is_cancelled(now, claim) {
            return Ok(Vote::Free.into());
        }
        let free = match self.held(now, claim)? {
            Held::ByAnother(place) => {
                if let Some(lock) = claim.locks.get(place) {
                    self.put(lock.mark, Value::from("1"), Some(millis(now).saturating_add(span(WANTED))));
                }
                return self.in_the_way(now, claim, place, fence_hint.is_some());
            }
            Held::Free(free) => free,
        };
        let usual = fence_hint.map(FenceHint::usual);
        let number = match fence_hint {
            Some(fence_hint) => {
                let mut next = FencingToken::ZERO;
                for lock in claim.locks {
                    let prepared = self.prepare(now, Drawing { counter: lock.counter, fence_hint })?;
                    next = next.max(if free.is_empty() { prepared.current } else { prepared.next });
                }
                Some(next)
            }
            None => None,
        };
        self.store_anew(now, claim, &free, ttl);
        if let Some(number) = number.filter(|_| !free.is_empty()) {
            self.raise_all(now, claim, number, usual);
        }
        Ok(ScriptResult::with(Vote::Granted, number))
    }

    /// `renew_several.lua`: extends all keys that the token holds, and stores missing ones again.
    ///
    /// # Errors
    ///
    /// As [`Store::renew`].
    pub fn renew_several(
        &mut self,
        now: Moment,
        claim: &Several<'_>,
        ttl: Duration,
        fencing_token: Option<FencingToken>,
    ) -> Result<ScriptResult, Failure> {
        let free = match self.held(now, claim)? {
            Held::ByAnother(place) => return self.in_the_way(now, claim, place, fencing_token.is_some()),
            Held::Free(free) => free,
        };
        if !free.is_empty() {
            if self.is_cancelled(now, claim) {
                return Ok(Vote::Free.into());
            }
            if let Some(fencing_token) = fencing_token {
                for lock in claim.locks {
                    let counter = self.counter(now, lock.counter)?;
                    self.raise(now, lock.counter, counter.max(fencing_token));
                    self.note(now, lock.counter, claim.token, Noted { number: fencing_token, usual: None });
                }
            }
        }
        for lock in claim.locks {
            self.prolong(now, lock.key, ttl);
        }
        self.store_anew(now, claim, &free, ttl);
        Ok(if free.is_empty() { Vote::Granted } else { Vote::Restored }.into())
    }

    /// `write_back_several.lua`: raises all counters to `fencing_token`, if the token holds all keys and no
    /// counter is ahead.
    ///
    /// # Errors
    ///
    /// As [`Store::write_back`].
    pub fn write_back_several(
        &mut self,
        now: Moment,
        claim: &Several<'_>,
        fencing_token: FencingToken,
    ) -> Result<ScriptResult, Failure> {
        match self.held(now, claim)? {
            Held::ByAnother(place) => return self.in_the_way(now, claim, place, true),
            Held::Free(free) if !free.is_empty() => return Ok(Vote::Free.into()),
            Held::Free(_) => {}
        }
        for lock in claim.locks {
            let counter = self.counter(now, lock.counter)?;
            if !fencing_token.may_follow(counter, self.wall) {
                return Ok(self.ahead(counter));
            }
        }
        self.raise_all(now, claim, fencing_token, None);
        Ok(ScriptResult::with(Vote::Granted, Some(fencing_token)))
    }

    /// `release_several.lua`: deletes the keys that the token holds, and notifies the first in the queue of
    /// each. Reports whether another client wants one.
    pub fn release_several(&mut self, now: Moment, claim: &Several<'_>) -> ScriptResult {
        let mut was = Vote::Free;
        for lock in claim.locks {
            match self.release(now, lock.key, lock.mark, claim.token) {
                Ok(ScriptResult { vote: Vote::ReleasedContended, .. }) => was = Vote::ReleasedContended,
                Ok(ScriptResult { vote: Vote::Notified, .. }) if was != Vote::ReleasedContended => {
                    was = Vote::Notified;
                }
                Ok(ScriptResult { vote: Vote::Granted, .. }) if was == Vote::Free => was = Vote::Granted,
                // Anything that the token does not hold stays.
                Ok(_) | Err(_) => {}
            }
        }
        was.into()
    }

    /// `cancel_several.lua`: like [`Store::release_several`], and leaves a tombstone.
    pub fn cancel_several(&mut self, now: Moment, claim: &Several<'_>, linger: Duration) -> ScriptResult {
        let told = self.release_several(now, claim);
        if let Some(first) = claim.locks.first() {
            self.put(first.tombstone, Value::from("1"), Some(millis(now).saturating_add(span(linger))));
        }
        told
    }

    fn held(&mut self, now: Moment, claim: &Several<'_>) -> Result<Held, Failure> {
        let mut free = Vec::new();
        for (place, lock) in claim.locks.iter().enumerate() {
            match self.get(now, lock.key)? {
                Some(holder) if holder == claim.token => {}
                Some(_) => return Ok(Held::ByAnother(place)),
                None => free.push(place),
            }
        }
        Ok(Held::Free(free))
    }

    /// Answers with the lock that is held, and its holder.
    fn in_the_way(
        &mut self,
        now: Moment,
        claim: &Several<'_>,
        place: usize,
        fenced: bool,
    ) -> Result<ScriptResult, Failure> {
        let Some(lock) = claim.locks.get(place) else { return Ok(Vote::Free.into()) };
        let counter = if fenced { Some(self.counter(now, lock.counter)?) } else { None };
        let Vote::Held(holding) = self.holding(now, lock.key)? else { return Ok(Vote::Free.into()) };
        let key: Arc<str> = String::from_utf8_lossy(lock.key).into();
        Ok(ScriptResult::with(holding.at(key).into(), counter))
    }

    fn is_cancelled(&mut self, now: Moment, claim: &Several<'_>) -> bool {
        claim.locks.iter().any(|lock| self.exists(now, lock.tombstone))
    }

    fn store_anew(&mut self, now: Moment, claim: &Several<'_>, places: &[usize], ttl: Duration) {
        for lock in places.iter().filter_map(|place| claim.locks.get(*place)) {
            let token = Value::Text(claim.token.to_vec());
            self.put(lock.key, token, Some(millis(now).saturating_add(span(ttl))));
        }
    }

    fn raise_all(
        &mut self,
        now: Moment,
        claim: &Several<'_>,
        number: FencingToken,
        usual: Option<FencingToken>,
    ) {
        for lock in claim.locks {
            self.raise(now, lock.counter, number);
            self.note(now, lock.counter, claim.token, Noted { number, usual });
        }
    }
}
