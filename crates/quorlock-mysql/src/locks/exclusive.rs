//! Exclusive locks, of one resource or several.

use std::time::Duration;

use quorlock::protocol::{Claim, FenceHint, FencingToken, Mode};
use quorlock::{
    Token,
    node::{NodeError, Vote},
};

use super::fence::{above_zero, current};
use super::{Decision, Hindrance, Rows};
use crate::row::Held;

impl Rows {
    pub(super) fn acquire(&mut self, claim: &Claim, ttl: Duration, hint: Option<FenceHint>) -> Decision {
        if self.is_cancelled(claim)? {
            return Ok((Vote::Free, None));
        }
        let drawing = self.prepare(claim, hint)?;
        match self.hindrance(claim)? {
            Hindrance::At(key) => self.refused(claim, &key, drawing),
            Hindrance::None { free } if free.is_empty() => Ok((Vote::Granted, current(drawing))),
            Hindrance::None { free } => {
                self.store(claim, &free, ttl)?;
                self.draw(claim, drawing.map(|drawing| drawing.next))
            }
        }
    }

    pub(super) fn transfer(
        &mut self,
        from: &Claim,
        to: &Claim,
        ttl: Duration,
        hint: Option<FenceHint>,
    ) -> Decision {
        if self.is_cancelled(to)? {
            return Ok((Vote::Free, None));
        }
        let drawing = self.prepare(to, hint)?;
        match self.row(to.key())?.held.clone() {
            Some(held) if held.token == *to.token() => {
                self.prolong(to.key(), ttl)?;
                Ok((Vote::Granted, current(drawing)))
            }
            Some(held) if held.token != *from.token() => Ok((self.holding(&held).into(), current(drawing))),
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

    pub(super) fn renew(
        &mut self,
        claim: &Claim,
        ttl: Duration,
        fencing_token: Option<FencingToken>,
    ) -> Decision {
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
            // Check all before changing any.
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

    pub(super) fn write_back(&mut self, claim: &Claim, fencing_token: FencingToken) -> Decision {
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

    /// Releases exclusive locks of a claim, or its share of one.
    pub(super) fn release(&mut self, claim: &Claim) -> Decision {
        if claim.mode() == Mode::Shared {
            return self.release_shared(claim);
        }
        let mut vote = Vote::Free;
        for key in claim.keys() {
            let held = match self.row(key) {
                Ok(row) => row.held.as_ref().filter(|held| held.token == *claim.token()),
                // Anything that this claim does not hold stays.
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

    pub(super) fn cancel(&mut self, claim: &Claim, linger: Duration) -> Decision {
        let ends = self.after(linger);
        let (vote, _) = self.release(claim)?;
        // A tombstone at any key stops the whole claim.
        let place: &str = claim.keys().find(|key| self.row(key).is_ok()).map_or(claim.key(), |key| key);
        let tombstones = &mut self.change(place)?.beside.tombstones;
        let kept = tombstones.entry(claim.token().random_part().to_vec()).or_default();
        *kept = ends.max(*kept);
        Ok((if vote == Vote::Free { vote } else { Vote::Granted }, None))
    }

    /// Frees a lock, and gives the turn to the first in its queue.
    pub(super) fn free(&mut self, key: &str) -> Result<Vote, NodeError> {
        let (now, queue) = (self.now, &self.row(key)?.queue);
        let turn = !queue.is_empty() && self.change_queue(key)?.next_turn(now);
        let wanted = self.change(key)?.held.take().is_some_and(|held| held.wanted);
        Ok(match (turn, wanted) {
            (true, _) => Vote::Notified,
            (false, true) => Vote::ReleasedContended,
            (false, false) => Vote::Granted,
        })
    }

    pub(super) fn forget(&mut self, key: &str) -> Decision {
        let there = self.row(key)?.counter != 0;
        if there {
            self.change(key)?.counter = 0;
        }
        Ok((if there { Vote::Granted } else { Vote::Free }, None))
    }

    pub(super) fn inspect(&self, key: &str) -> Decision {
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
