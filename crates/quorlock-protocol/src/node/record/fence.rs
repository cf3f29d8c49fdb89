//! The fencing counters. Each is a record of its own, under a key that all locks of a hash slot share.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::{Claim, FenceHint, FencingToken, Mode, fence_counter};

use super::{Decision, Hindrance, Records, wrong_data};
use crate::node::{NodeError, Reason, Request, Vote};

/// A fencing token that can be drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawing {
    /// The current counter; of several, the largest.
    pub(super) current: FencingToken,
    pub(super) next: FencingToken,
}

impl Records {
    /// Returns the keys of the records that the request needs: of its locks, and of the counters from which it draws.
    #[must_use]
    pub fn needed_for(request: &Request) -> BTreeSet<Arc<str>> {
        let mut keys: BTreeSet<Arc<str>> = request.keys().cloned().collect();
        match request {
            Request::Acquire { claim, fence_hint: Some(_), .. }
            | Request::Transfer { to: claim, fence_hint: Some(_), .. }
            | Request::Renew { claim, fencing_token: Some(_), .. }
            | Request::WriteBack { claim, .. } => keys.extend(counters(claim)),
            Request::Inspect { key, prefix_len } => {
                keys.insert(fence_counter(key.get(..*prefix_len).unwrap_or_default(), key).into());
            }
            Request::Acquire { .. }
            | Request::Transfer { .. }
            | Request::Renew { .. }
            | Request::Release { .. }
            | Request::Offer { .. }
            | Request::Cancel { .. }
            | Request::AnnounceWriter { .. }
            | Request::WithdrawWriter { .. }
            | Request::Enqueue { .. }
            | Request::LeaveQueue { .. }
            | Request::ListWaiters { .. }
            | Request::LogHold { .. }
            | Request::ReadLog { .. } => {}
        }
        keys
    }

    /// Returns the counter of the claim's lock at `key` if it can still be raised; zero if there is none.
    pub(super) fn counter_of(&self, claim: &Claim, key: &str) -> Result<FencingToken, NodeError> {
        self.usable_counter(&fence_counter(claim.key_prefix(), key))
    }

    fn usable_counter(&self, counter: &str) -> Result<FencingToken, NodeError> {
        let number =
            FencingToken::new(self.record(counter)?.counter).filter(|number| *number < FencingToken::MAX);
        number.ok_or_else(|| wrong_data("the fencing counter is exhausted or not a number".into()))
    }

    /// Determines the next number. Changes nothing; every error occurs here.
    pub(super) fn prepare(
        &self,
        claim: &Claim,
        hint: Option<FenceHint>,
    ) -> Result<Option<Drawing>, NodeError> {
        let Some(hint) = hint else { return Ok(None) };
        let mut drawing = Drawing { current: FencingToken::ZERO, next: FencingToken::ZERO };
        for counter in counters(claim) {
            let current = self.usable_counter(&counter)?;
            let next = hint.from(current.max(self.floor), self.wall);
            let next = next.map_err(|why| wrong_data(Reason::new(why.to_string())))?;
            drawing = Drawing { current: drawing.current.max(current), next: drawing.next.max(next) };
        }
        Ok(Some(drawing))
    }

    /// Raises the counters to the number drawn for the claim, and records it with the keys that the claim holds. A held
    /// lock counts as changed, also by a reader: a store that compares what it replaces then raises no counter for a claim
    /// that has lost it since (rule F-4).
    pub(super) fn draw(&mut self, claim: &Claim, number: Option<FencingToken>) -> Decision {
        if let Some(number) = number {
            self.raise(claim, number)?;
            for key in claim.keys() {
                let is_own = |held: &&mut super::Held| held.token == *claim.token();
                if self.record(key)?.held.is_some()
                    && let Some(held) = self.change(key)?.held.as_mut().filter(is_own)
                {
                    held.number = Some(number);
                }
            }
        }
        Ok((Vote::Granted, number))
    }

    /// Raises the counters to the number. None is lowered.
    pub(super) fn raise(&mut self, claim: &Claim, number: FencingToken) -> Result<(), NodeError> {
        let mut due = Vec::new();
        for counter in counters(claim) {
            if self.usable_counter(&counter)? < number {
                due.push(counter);
            }
        }
        for counter in due {
            self.change(&counter)?.counter = number.get();
        }
        Ok(())
    }

    /// Raises the counters to an attempt's number, if its locks are still its own, or it still shares the one (rule F-4),
    /// and all counters are below (rule F-5).
    pub(super) fn write_back(&mut self, claim: &Claim, number: FencingToken) -> Decision {
        let record = self.record(claim.key())?;
        if claim.mode() == Mode::Shared && record.is_shared() {
            if !record.readers.contains_key(claim.token().as_bytes()) {
                return Ok((Vote::Free, None));
            }
        } else {
            match self.hindrance(claim)? {
                Hindrance::At(key) => return Ok((self.holding_at(claim, &key)?, None)),
                Hindrance::None { free } if !free.is_empty() => return Ok((Vote::Free, None)),
                Hindrance::None { .. } => {}
            }
        }
        for counter in counters(claim) {
            let current = self.usable_counter(&counter)?.max(self.floor);
            if current >= number {
                return Ok((Vote::FenceAhead, above_zero(current)));
            }
        }
        self.draw(claim, Some(number))
    }
}

/// Returns the keys of the claim's counters.
fn counters(claim: &Claim) -> impl Iterator<Item = Arc<str>> {
    claim.keys().map(|key| fence_counter(claim.key_prefix(), key).into())
}

pub(super) fn current(drawing: Option<Drawing>) -> Option<FencingToken> {
    drawing.and_then(|drawing| above_zero(drawing.current))
}

/// Maps a counter of zero to `None`.
pub(super) fn above_zero(counter: FencingToken) -> Option<FencingToken> {
    (counter > FencingToken::ZERO).then_some(counter)
}

#[cfg(test)]
mod tests {
    use crate::{SHARED_MARKER, Token};

    use super::super::{Entry, Held, Record};
    use super::*;

    #[test]
    fn f4_a_write_back_depends_on_the_lock_as_it_was_read() {
        let token = Token::new(7, "anna:1");
        let claim = Claim::new("a".into(), token.clone());
        let number = FencingToken::new(42).unwrap();
        for is_shared in [false, true] {
            let (mut record, mut claim) = (Record::default(), claim.clone());
            let found = if is_shared { Token::found(SHARED_MARKER.as_bytes()) } else { token.clone() };
            record.held = Some(Held { token: found, ends: Some(9), number: None, wanted: false, mark: None });
            if is_shared {
                claim = claim.shared();
                record.readers.insert(token.as_bytes().to_vec(), Entry { ends: 9, mark: None });
            }
            let mut records = Records::at(1);
            records.add("a".into(), Some(1), Ok(record));
            records.add(claim.fence_counter().into(), None, Ok(Record::default()));
            assert_eq!(records.write_back(&claim, number), Ok((Vote::Granted, Some(number))));
            let changed: Vec<&str> = records.changes().iter().map(|change| change.key).collect();
            assert_eq!(changed.len(), 2, "the lock as well as the counter: {changed:?}");
        }
    }
}
