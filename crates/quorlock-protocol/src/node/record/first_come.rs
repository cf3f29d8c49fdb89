//! The queue of a store that serves waiters in the order of entry: [`Grants::FirstCome`](crate::node::Grants::FirstCome).
//!
//! A place is the right to be next. It ends with its waiter's patience, or with a turn that is not taken.

use std::time::Duration;

use crate::{Claim, MOST_PLACES, WaiterId, micros};

use super::{Decision, Record, Records};
use crate::node::{NodeError, Queued, Vote};

impl Records {
    /// Adds the waiter to the end of the queue, or keeps its place.
    pub(super) fn enter(
        &mut self,
        key: &str,
        (waiter, context): (WaiterId, &str),
        patience: Duration,
        turn: Duration,
    ) -> Decision {
        let (now, ends) = (self.now, self.after(patience));
        let is_free = self.record(key)?.held.is_none();
        let queue = self.change_queue(key)?;
        queue.drop_silent(now);
        if is_free {
            queue.end_turn(waiter, now, micros(turn));
        }
        queue.join(waiter, now, ends, context);
        let place = queue.place(waiter);
        if is_free && place == Some(0) {
            queue.reserve(now);
            return Ok((Vote::Free, None));
        }
        // The first of a free lock does not wait: it is its turn.
        let ahead = place.and_then(|place| u32::try_from(place.saturating_sub(usize::from(is_free))).ok());
        let ahead = ahead.map_or(MOST_PLACES, |ahead| ahead.min(MOST_PLACES));
        let holding = self.record(key)?.held.as_ref().filter(|_| ahead < 2).map(|held| self.holding(held));
        Ok((Queued::new(ahead, holding).into(), None))
    }

    /// Removes a waiter from the queue. If it was its turn, that goes to the next one.
    pub(super) fn withdraw(&mut self, key: &str, waiter: WaiterId) -> Decision {
        let now = self.now;
        let Record { held, queue, .. } = self.record(key)?;
        if queue.place(waiter).is_none() {
            return Ok((Vote::Free, None));
        }
        let was_turn = held.is_none() && queue.first(now) == Some(waiter);
        let queue = self.change_queue(key)?;
        queue.leave(waiter);
        let notifies = was_turn && queue.reserve(now);
        Ok((if notifies { Vote::Notified } else { Vote::Granted }, None))
    }

    /// Whether a waiter stands before this claim, which takes the free ones of its keys.
    pub(super) fn passes_queue(&self, claim: &Claim) -> Result<bool, NodeError> {
        if !self.first_come {
            return Ok(false);
        }
        for key in claim.keys() {
            let Record { held, queue, .. } = self.record(key)?;
            let first = queue.first(self.now).filter(|first| claim.place() != Some(*first));
            if held.is_none() && first.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The places of a claim that was granted are those of a holder.
    pub(super) fn take_places(&mut self, claim: &Claim) -> Result<(), NodeError> {
        if let Some(waiter) = claim.place().filter(|_| self.first_come) {
            for key in claim.keys() {
                if self.record(key)?.queue.place(waiter).is_some() {
                    self.change_queue(key)?.leave(waiter);
                }
            }
        }
        Ok(())
    }
}
