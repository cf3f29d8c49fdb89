//! The fencing counters of records.

use quorlock_protocol::{Claim, FenceHint, FencingToken};

use super::{Decision, Outcome, Records, wrong_data};
use crate::node::{NodeError, Reason, Vote};

/// A fencing token that can be drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawing {
    /// The current counter; of several, the largest.
    pub(super) current: FencingToken,
    pub(super) next: FencingToken,
}

impl Records {
    /// Returns the counter if it can still be raised; zero if there is none.
    pub(super) fn usable_counter(&self, key: &str) -> Result<FencingToken, NodeError> {
        let counter =
            FencingToken::new(self.record(key)?.counter).filter(|counter| *counter < FencingToken::MAX);
        counter.ok_or_else(|| wrong_data("the fencing counter is exhausted or not a number".into()))
    }

    /// Returns the largest value that the counter may have had before the store lost it.
    fn may_have_been(&self, counter: FencingToken) -> FencingToken {
        let matters = self.floor.counter_ends() > self.wall;
        if matters { counter.max(self.floor) } else { counter }
    }

    /// Determines the next number. Changes nothing; every error occurs here.
    pub(super) fn prepare(
        &self,
        claim: &Claim,
        hint: Option<FenceHint>,
    ) -> Result<Option<Drawing>, NodeError> {
        let Some(hint) = hint else { return Ok(None) };
        let mut drawing = Drawing { current: FencingToken::ZERO, next: FencingToken::ZERO };
        for key in claim.keys() {
            let current = self.usable_counter(key)?;
            let next = hint.from(self.may_have_been(current), self.wall);
            let next = next.map_err(|why| wrong_data(Reason::new(why.to_string())))?;
            drawing = Drawing { current: drawing.current.max(current), next: drawing.next.max(next) };
        }
        Ok(Some(drawing))
    }

    /// Raises the counters to the number drawn for the claim, which holds all its keys.
    pub(super) fn draw(&mut self, claim: &Claim, number: Option<FencingToken>) -> Decision {
        if let Some(number) = number {
            for key in claim.keys() {
                let record = self.change(key)?;
                record.counter = number.get();
                if let Some(held) = &mut record.held {
                    held.number = Some(number);
                }
            }
        }
        Ok((Vote::Granted, number))
    }

    /// Returns the answer to a write-back if a counter is ahead, or may have been before it was lost (rules
    /// F-5, F-10).
    pub(super) fn ahead(
        &self,
        claim: &Claim,
        fencing_token: FencingToken,
    ) -> Result<Option<Outcome>, NodeError> {
        for key in claim.keys() {
            let counter = self.may_have_been(self.usable_counter(key)?);
            if !fencing_token.may_follow(counter, self.wall) {
                let gone = counter == FencingToken::ZERO;
                let counter = if gone { FencingToken::forgotten(self.wall) } else { counter };
                return Ok(Some((Vote::FenceAhead, above_zero(counter))));
            }
        }
        Ok(None)
    }
}

pub(super) fn current(drawing: Option<Drawing>) -> Option<FencingToken> {
    drawing.and_then(|drawing| above_zero(drawing.current))
}

/// Maps a counter of zero to `None`.
pub(super) fn above_zero(counter: FencingToken) -> Option<FencingToken> {
    (counter > FencingToken::ZERO).then_some(counter)
}
