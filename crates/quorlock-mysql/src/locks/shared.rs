//! Shared locks: readers, and writers that wait for them.

use std::time::Duration;

use quorlock::node::{NodeError, Vote};
use quorlock::protocol::{Claim, FenceHint, FencingToken, WaiterId};

use super::fence::{Drawing, current};
use super::{Decision, Rows};
use crate::row::{Held, Row};

impl Rows {
    pub(super) fn acquire_shared(
        &mut self,
        claim: &Claim,
        ttl: Duration,
        hint: Option<FenceHint>,
    ) -> Decision {
        if self.is_cancelled(claim)? {
            return Ok((Vote::Free, None));
        }
        let drawing = self.prepare(claim, hint)?;
        let row = self.row(claim.key())?;
        if row.held.is_some() && !row.is_shared() {
            return self.refused(claim, &claim.key().into(), drawing);
        }
        if row.beside.readers.contains_key(claim.token().as_bytes()) {
            return Ok((Vote::Granted, current(drawing)));
        }
        if !row.beside.intents.is_empty() {
            return Ok((Vote::NotYourTurn, current(drawing)));
        }
        let draws = drawing.filter(|drawing| !row.is_shared() || drawing.current == FencingToken::ZERO);
        let ends = self.after(ttl);
        let row = self.change(claim.key())?;
        if let Some(Drawing { next, .. }) = draws {
            row.counter = next.get();
        }
        join(row, claim, ends);
        Ok((Vote::Granted, draws.map_or(current(drawing), |drawing| Some(drawing.next))))
    }

    pub(super) fn renew_shared(
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

    pub(super) fn write_back_shared(&mut self, claim: &Claim, fencing_token: FencingToken) -> Decision {
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

    pub(super) fn release_shared(&mut self, claim: &Claim) -> Decision {
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

    pub(super) fn intend(&mut self, key: &str, waiter: WaiterId, patience: Duration) -> Decision {
        let ends = self.after(patience);
        self.change(key)?.beside.intents.insert(waiter, ends);
        Ok((Vote::Granted, None))
    }

    pub(super) fn desist(&mut self, key: &str, waiter: WaiterId) -> Decision {
        if !self.row(key)?.beside.intents.contains_key(&waiter) {
            return Ok((Vote::Free, None));
        }
        self.change(key)?.beside.intents.remove(&waiter);
        Ok((Vote::Granted, None))
    }

    /// Returns the counter that a restored share leaves: above its own number (rule S-8).
    fn raised_past(&self, key: &str, fencing_token: Option<FencingToken>) -> Result<Option<u64>, NodeError> {
        let Some(fencing_token) = fencing_token else { return Ok(None) };
        let before = self.usable_counter(key)?.max(fencing_token);
        Ok(Some(before.get().saturating_add(1).min(FencingToken::MAX.get())))
    }
}

/// Adds the claim to the readers, until `ends`. The marker lives as long as the last reader.
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
