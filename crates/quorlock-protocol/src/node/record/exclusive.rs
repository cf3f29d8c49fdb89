//! Exclusive locks, of one resource or several.

use std::time::Duration;

use crate::{Claim, FenceHint, FencingToken, Mode, Token, fence_counter};

use super::fence::{above_zero, current};
use super::{Decision, Entry, Held, Hindrance, Records};
use crate::node::{NodeError, Vote};

impl Records {
    pub(super) fn acquire(&mut self, claim: &Claim, ttl: Duration, hint: Option<FenceHint>) -> Decision {
        if self.is_cancelled(claim)? {
            return Ok((Vote::Free, None));
        }
        let drawing = self.prepare(claim, hint)?;
        match self.hindrance(claim)? {
            Hindrance::At(key) => self.refused(claim, &key, drawing),
            Hindrance::None { free } if !free.is_empty() && self.passes_queue(claim)? => {
                Ok((Vote::NotYourTurn, current(drawing)))
            }
            Hindrance::None { free } => {
                self.store(claim, &free, ttl)?;
                self.take_places(claim)?;
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
        match self.record(to.key())?.held.clone() {
            Some(held) if held.token == *to.token() => {
                self.prolong(to.key(), ttl)?;
                self.draw(to, drawing.map(|drawing| drawing.next))
            }
            Some(held) if held.token != *from.token() => Ok((self.holding(&held).into(), current(drawing))),
            None if self.passes_queue(to)? => Ok((Vote::NotYourTurn, current(drawing))),
            before => {
                let (was_gone, wanted) = (before.is_none(), before.is_some_and(|held| held.wanted));
                let held = Held { wanted, ..self.held(to.token(), self.after(ttl)) };
                let record = self.change(to.key())?;
                record.held = Some(held);
                record.readers.clear();
                let (vote, number) = self.draw(to, drawing.map(|drawing| drawing.next))?;
                Ok((if was_gone { Vote::Restored } else { vote }, number))
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
                let drawn = fencing_token.filter(|_| claim.is_several());
                let counter = drawn.map(|_| self.counter_of(claim, &key)).transpose()?;
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
        if self.passes_queue(claim)? {
            return Ok((Vote::NotYourTurn, None));
        }
        if let Some(fencing_token) = fencing_token {
            self.raise(claim, fencing_token)?;
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

    /// Releases exclusive locks of a claim, or its share of one.
    pub(super) fn release(&mut self, claim: &Claim) -> Decision {
        if claim.mode() == Mode::Shared {
            return self.release_shared(claim);
        }
        let mut vote = Vote::Free;
        for key in claim.keys() {
            let held = match self.record(key) {
                Ok(record) => record.held.as_ref().filter(|held| held.token == *claim.token()),
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
        let alone = claim.mode() == Mode::Exclusive && !claim.is_several();
        let (vote, _) = if alone { self.delete_own(claim)? } else { self.release(claim)? };
        // A tombstone at any key stops the whole claim.
        let place: &str = claim.keys().find(|key| self.record(key).is_ok()).map_or(claim.key(), |key| key);
        let tombstones = &mut self.change(place)?.tombstones;
        let random = claim.token().random_part();
        let ends = tombstones.get(random).map_or(ends, |kept| kept.ends.max(ends));
        tombstones.insert(random.to_vec(), Entry { ends, mark: None });
        Ok((if vote == Vote::Free { vote } else { Vote::Granted }, None))
    }

    /// Frees the lock of an attempt that is undone, which is no waiter's turn (rule W-8).
    fn delete_own(&mut self, claim: &Claim) -> Decision {
        let own = self.record(claim.key())?.held.as_ref().is_some_and(|held| held.token == *claim.token());
        if own {
            self.change(claim.key())?.held = None;
            if self.first_come {
                let now = self.now;
                self.change_queue(claim.key())?.reserve(now);
            }
        }
        Ok((if own { Vote::Granted } else { Vote::Free }, None))
    }

    /// Frees a lock, and gives the turn to the first in its queue.
    pub(super) fn free(&mut self, key: &str) -> Result<Vote, NodeError> {
        let (now, queue) = (self.now, &self.record(key)?.queue);
        let waits = !queue.is_empty();
        let turn = waits
            && if self.first_come {
                self.change_queue(key)?.reserve(now)
            } else {
                self.change_queue(key)?.next_turn(now)
            };
        if !turn && self.record(key)?.queue.has_turn() {
            self.change_queue(key)?.end_all_turns();
        }
        let wanted = self.change(key)?.held.take().is_some_and(|held| held.wanted);
        Ok(match (turn, wanted) {
            (true, _) => Vote::Notified,
            (false, true) => Vote::ReleasedContended,
            (false, false) => Vote::Granted,
        })
    }

    pub(super) fn inspect(&self, key: &str, prefix_len: usize) -> Decision {
        let record = self.record(key)?;
        let counter = fence_counter(key.get(..prefix_len).unwrap_or_default(), key);
        let counter = self.record(&counter).ok().and_then(|record| FencingToken::new(record.counter));
        let counter = counter.and_then(above_zero);
        let Some(held) = &record.held else { return Ok((Vote::Free, counter)) };
        let number = held.number.or_else(|| held.token.number()).or(counter);
        let mut shares: Vec<_> = record.readers.iter().map(|(token, entry)| (entry.ends, token)).collect();
        shares.sort_unstable();
        let readers = shares.into_iter().take(100).map(|(_, token)| Token::found(token)).collect();
        Ok((self.holding(held).with_readers(readers).into(), number))
    }
}
