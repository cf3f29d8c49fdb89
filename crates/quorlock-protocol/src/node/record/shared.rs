//! Shared locks: readers, and writers that wait for them.

use std::time::Duration;

use crate::{Claim, FenceHint, FencingToken, WaiterId};

use super::fence::current;
use super::{Decision, Entry, Held, Record, Records};
use crate::node::Vote;

impl Records {
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
        let record = self.record(claim.key())?;
        if record.held.is_some() && !record.is_shared() {
            return self.refused(claim, &claim.key().into(), drawing);
        }
        if !record.readers.contains_key(claim.token().as_bytes()) {
            if !record.intents.is_empty() {
                return Ok((Vote::NotYourTurn, current(drawing)));
            }
            let reader = self.reader(claim, self.after(ttl));
            join(self.change(claim.key())?, claim, reader);
        }
        self.draw(claim, drawing.map(|drawing| drawing.next))
    }

    pub(super) fn renew_shared(
        &mut self,
        claim: &Claim,
        ttl: Duration,
        fencing_token: Option<FencingToken>,
    ) -> Decision {
        let ends = self.after(ttl);
        let record = self.record(claim.key())?;
        let alone = record.held.as_ref().filter(|held| held.token == *claim.token());
        if let Some(held) = alone {
            let ends = held.ends.map_or(ends, |old| old.max(ends));
            let marker = Held { wanted: held.wanted, ..Held::marker(ends) };
            let reader = self.reader(claim, ends);
            let record = self.change(claim.key())?;
            record.readers.clear();
            record.held = Some(marker);
            join(record, claim, reader);
            return Ok((Vote::Granted, None));
        }
        if let Some(held) = record.held.as_ref().filter(|_| !record.is_shared()) {
            return Ok((self.holding(held).into(), None));
        }
        if let Some(old) = record.readers.get(claim.token().as_bytes()) {
            if old.ends < ends {
                let reader = self.reader(claim, ends);
                join(self.change(claim.key())?, claim, reader);
            }
            return Ok((Vote::Granted, None));
        }
        if self.is_cancelled(claim)? {
            return Ok((Vote::Free, None));
        }
        if let Some(fencing_token) = fencing_token {
            self.raise(claim, fencing_token)?;
        }
        let reader = self.reader(claim, ends);
        join(self.change(claim.key())?, claim, reader);
        Ok((Vote::Restored, None))
    }

    pub(super) fn release_shared(&mut self, claim: &Claim) -> Decision {
        let record = self.record(claim.key())?;
        let Some(held) = &record.held else { return Ok((Vote::Free, None)) };
        if held.token == *claim.token() {
            return Ok((self.free(claim.key())?, None));
        }
        if !record.readers.contains_key(claim.token().as_bytes()) {
            return Ok((Vote::Free, None));
        }
        let record = self.change(claim.key())?;
        record.readers.remove(claim.token().as_bytes());
        let last = record.readers.values().map(|entry| entry.ends).max();
        if let (Some(last), Some(held)) = (last, &mut record.held) {
            held.ends = Some(last);
            Ok((Vote::Granted, None))
        } else {
            Ok((self.free(claim.key())?, None))
        }
    }

    pub(super) fn intend(&mut self, key: &str, waiter: WaiterId, patience: Duration) -> Decision {
        let entry = Entry { ends: self.after(patience), mark: self.mark.clone() };
        self.change(key)?.intents.insert(waiter, entry);
        Ok((Vote::Granted, None))
    }

    pub(super) fn desist(&mut self, key: &str, waiter: WaiterId) -> Decision {
        if !self.record(key)?.intents.contains_key(&waiter) {
            return Ok((Vote::Free, None));
        }
        self.change(key)?.intents.remove(&waiter);
        Ok((Vote::Granted, None))
    }

    fn reader(&self, claim: &Claim, ends: u64) -> Entry {
        Entry { ends, mark: self.held(claim.token(), ends).mark }
    }
}

/// Adds the claim to the readers. The marker lives as long as the last reader.
fn join(record: &mut Record, claim: &Claim, reader: Entry) {
    let ends = reader.ends;
    if !record.is_shared() {
        record.readers.clear();
        record.held = Some(Held::marker(ends));
    }
    record.readers.insert(claim.token().as_bytes().to_vec(), reader);
    if let Some(Held { ends: marker @ Some(_), .. }) = &mut record.held {
        *marker = (*marker).max(Some(ends));
    }
}
