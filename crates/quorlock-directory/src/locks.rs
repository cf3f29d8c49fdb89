//! Applies requests to the records, as the contract specifies.
//!
//! If two files change, the fencing counter is written first, and a tombstone before the release that it
//! protects: if the host stops in between, a number is skipped, or a cancelled request is already refused.

use std::io;
use std::time::Duration;

use quorlock::node::{Expiry, Holding, Vote};
use quorlock::protocol::{Claim, FenceHint, FencingToken, Token, fence_counter};

use crate::records::{Held, Record, Records, What, wrong};

/// A vote, and the fencing counter.
pub(crate) type Outcome = (Vote, Option<FencingToken>);

/// A fencing token that can be drawn.
#[derive(Clone, Copy)]
struct Drawing {
    current: FencingToken,
    next: FencingToken,
}

impl Records {
    pub(crate) fn acquire(
        &mut self,
        claim: &Claim,
        ttl: Duration,
        hint: Option<FenceHint>,
    ) -> io::Result<Outcome> {
        if self.is_cancelled(claim)? {
            return Ok((Vote::Free, None));
        }
        let drawing = self.prepare(claim.key(), hint)?;
        match self.held(claim.key())? {
            None => self.grant(claim, ttl, drawing, None),
            Some((held, _)) if held.token == *claim.token() => Ok((Vote::Granted, current(drawing))),
            Some((mut held, ends)) => {
                let holding = self.holding(&held, ends);
                // Without fencing a refusal leaves nothing.
                if drawing.is_some() && held.wanted.is_none() {
                    held.wanted = Some(claim.token().clone());
                    self.put(claim.key(), held, ends)?;
                }
                Ok((holding.into(), current(drawing)))
            }
        }
    }

    pub(crate) fn transfer(
        &mut self,
        from: &Claim,
        to: &Claim,
        ttl: Duration,
        hint: Option<FenceHint>,
    ) -> io::Result<Outcome> {
        if self.is_cancelled(to)? {
            return Ok((Vote::Free, None));
        }
        let drawing = self.prepare(to.key(), hint)?;
        match self.held(to.key())? {
            None => self.grant(to, ttl, drawing, None),
            Some((held, _)) if held.token == *from.token() => self.grant(to, ttl, drawing, held.wanted),
            Some((held, ends)) if held.token == *to.token() => {
                self.prolong(to.key(), held, ends, ttl)?;
                Ok((Vote::Granted, current(drawing)))
            }
            Some((held, ends)) => Ok((self.holding(&held, ends).into(), current(drawing))),
        }
    }

    pub(crate) fn renew(
        &mut self,
        claim: &Claim,
        ttl: Duration,
        fencing_token: Option<FencingToken>,
    ) -> io::Result<Outcome> {
        let key = claim.key();
        match self.held(key)? {
            Some((held, ends)) if held.token == *claim.token() => {
                self.prolong(key, held, ends, ttl)?;
                Ok((Vote::Granted, None))
            }
            Some((held, ends)) => Ok((self.holding(&held, ends).into(), None)),
            None if self.is_cancelled(claim)? => Ok((Vote::Free, None)),
            None => {
                if let Some(fencing_token) = fencing_token {
                    let counter = self.usable_counter(key)?;
                    self.raise(key, counter.max(fencing_token))?;
                }
                let held = Held { token: claim.token().clone(), number: fencing_token, wanted: None };
                self.put(key, held, Some(self.after(ttl)))?;
                Ok((Vote::Restored, None))
            }
        }
    }

    pub(crate) fn release(&mut self, claim: &Claim) -> io::Result<Outcome> {
        let Some(held) = self.held_by(claim)? else { return Ok((Vote::Free, None)) };
        self.remove(claim.key())?;
        Ok((if held.wanted.is_some() { Vote::ReleasedContended } else { Vote::Granted }, None))
    }

    pub(crate) fn cancel(&mut self, claim: &Claim, linger: Duration) -> io::Result<Outcome> {
        let ours = self.held_by(claim)?.is_some();
        let ends = Some(self.after(linger));
        self.write(&claim.tombstone(), &Record { what: What::Tombstone, ends })?;
        if ours {
            self.remove(claim.key())?;
        }
        Ok((if ours { Vote::Granted } else { Vote::Free }, None))
    }

    pub(crate) fn write_back(&mut self, claim: &Claim, fencing_token: FencingToken) -> io::Result<Outcome> {
        match self.held(claim.key())? {
            None => Ok((Vote::Free, None)),
            Some((held, ends)) if held.token != *claim.token() => {
                Ok((self.holding(&held, ends).into(), None))
            }
            Some((held, ends)) => {
                let counter = self.usable_counter(claim.key())?;
                let wall = Duration::from_micros(self.now());
                if !fencing_token.may_follow(counter, wall) {
                    return Ok((Vote::FenceAhead, above_zero(counter.max(FencingToken::forgotten(wall)))));
                }
                self.raise(claim.key(), fencing_token)?;
                self.put(claim.key(), Held { number: Some(fencing_token), ..held }, ends)?;
                Ok((Vote::Granted, Some(fencing_token)))
            }
        }
    }

    pub(crate) fn forget(&mut self, key: &str) -> io::Result<Outcome> {
        let counter = fence_counter(key);
        let there = self.read(&counter)?.is_some();
        if there {
            self.remove(&counter)?;
        }
        Ok((if there { Vote::Granted } else { Vote::Free }, None))
    }

    pub(crate) fn inspect(&self, key: &str) -> io::Result<Outcome> {
        // A holder is reported even if the counter is unreadable.
        let counter = || self.counter(key).ok().and_then(above_zero);
        Ok(match self.held(key)? {
            None => (Vote::Free, counter()),
            Some((held, ends)) => {
                let number = held.number.or_else(|| held.token.number()).or_else(counter);
                (self.holding(&held, ends).into(), number)
            }
        })
    }
}

/// Locks.
impl Records {
    fn held(&self, key: &str) -> io::Result<Option<(Held, Option<u64>)>> {
        match self.read(key)? {
            Some(Record { what: What::Lock(held), ends }) => Ok(Some((held, ends))),
            Some(Record { what: What::Counter(_) | What::Tombstone, .. }) => {
                Err(wrong("the key does not hold a lock"))
            }
            None => Ok(None),
        }
    }

    fn held_by(&self, claim: &Claim) -> io::Result<Option<Held>> {
        Ok(self.held(claim.key())?.map(|(held, _)| held).filter(|held| held.token == *claim.token()))
    }

    fn holding(&self, held: &Held, ends: Option<u64>) -> Holding {
        let left = |ends: u64| Expiry::In(Duration::from_micros(ends.saturating_sub(self.now())));
        Holding::new(held.token.clone(), ends.map_or(Expiry::Never, left))
    }

    fn put(&mut self, key: &str, held: Held, ends: Option<u64>) -> io::Result<()> {
        self.write(key, &Record { what: What::Lock(held), ends })
    }

    fn grant(
        &mut self,
        claim: &Claim,
        ttl: Duration,
        drawing: Option<Drawing>,
        wanted: Option<Token>,
    ) -> io::Result<Outcome> {
        let number = drawing.map(|drawing| drawing.next);
        if let Some(number) = number {
            self.raise(claim.key(), number)?;
        }
        let held = Held { token: claim.token().clone(), number, wanted };
        self.put(claim.key(), held, Some(self.after(ttl)))?;
        Ok((Vote::Granted, number))
    }

    /// Extends the life of the lock, and never shortens it.
    fn prolong(&mut self, key: &str, held: Held, ends: Option<u64>, ttl: Duration) -> io::Result<()> {
        let wanted = self.after(ttl);
        if ends.is_some_and(|ends| ends >= wanted) { Ok(()) } else { self.put(key, held, Some(wanted)) }
    }

    fn is_cancelled(&self, claim: &Claim) -> io::Result<bool> {
        Ok(self.read(&claim.tombstone())?.is_some())
    }
}

/// The fencing counter.
impl Records {
    /// Returns the counter; zero if there is none.
    fn counter(&self, key: &str) -> io::Result<FencingToken> {
        match self.read(&fence_counter(key))? {
            Some(Record { what: What::Counter(number), .. }) => Ok(number),
            Some(Record { what: What::Lock(_) | What::Tombstone, .. }) => {
                Err(wrong("the fencing counter has the wrong type"))
            }
            None => Ok(FencingToken::ZERO),
        }
    }

    /// Returns the counter if a number can be drawn from it.
    fn usable_counter(&self, key: &str) -> io::Result<FencingToken> {
        let counter = self.counter(key)?;
        let usable = counter < FencingToken::MAX;
        if usable { Ok(counter) } else { Err(wrong("the fencing counter is exhausted")) }
    }

    /// Determines the next number. Changes nothing; every error occurs here.
    fn prepare(&self, key: &str, hint: Option<FenceHint>) -> io::Result<Option<Drawing>> {
        let Some(hint) = hint else { return Ok(None) };
        let current = self.usable_counter(key)?;
        let next = hint.from(current, Duration::from_micros(self.now()));
        let next = next.map_err(wrong)?;
        Ok(Some(Drawing { current, next }))
    }

    fn raise(&mut self, key: &str, number: FencingToken) -> io::Result<()> {
        let ends = u64::try_from(number.counter_ends().as_micros()).ok();
        self.write(&fence_counter(key), &Record { what: What::Counter(number), ends })
    }
}

fn current(drawing: Option<Drawing>) -> Option<FencingToken> {
    drawing.and_then(|drawing| above_zero(drawing.current))
}

/// Maps a counter of zero to `None`.
fn above_zero(counter: FencingToken) -> Option<FencingToken> {
    (counter > FencingToken::ZERO).then_some(counter)
}
