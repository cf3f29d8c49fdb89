//! Shared locks: readers, and writers that wait for them.
//!
//! While readers share a lock, its row has the [`SHARED_MARKER`] and does not expire before the last of them.
//! Each reader also has its own row.

use std::time::Duration;

use quorlock::node::{Holding, Vote};
use quorlock::protocol::{Claim, FenceHint, FencingToken, SHARED_MARKER, Token, WaiterId};

use crate::entries::{Entries, Held, Outcome, What, current};
use crate::failure::Failure;

/// At most this many readers are listed.
const MOST_NAMED: usize = 100;

impl Entries<'_> {
    pub(crate) fn acquire_shared(
        &mut self,
        claim: &Claim,
        ttl: Duration,
        hint: Option<FenceHint>,
    ) -> Result<Outcome, Failure> {
        let key = claim.key();
        if self.is_cancelled(claim)? {
            return Ok((Vote::Free, None));
        }
        let held = self.held(key)?;
        let drawing = self.prepare(key, hint)?;
        let shared = match &held {
            Some(held) if !held.token.is_marker() => {
                self.want(key, held)?;
                return Ok((self.holding(held).into(), current(drawing)));
            }
            Some(_) => true,
            None => false,
        };
        if shared && self.share(claim)?.is_some() {
            return Ok((Vote::Granted, current(drawing)));
        }
        if !self.members(What::Intent, key)?.is_empty() {
            return Ok((Vote::NotYourTurn, current(drawing)));
        }
        let mut number = current(drawing);
        if let Some(drawing) = drawing.filter(|_| !shared || number.is_none()) {
            self.raise(key, drawing.next)?;
            number = Some(drawing.next);
        }
        let ends = self.after(ttl);
        self.join(claim, held.filter(|_| shared), ends)?;
        Ok((Vote::Granted, number))
    }

    pub(crate) fn renew_shared(
        &mut self,
        claim: &Claim,
        ttl: Duration,
        fencing_token: Option<FencingToken>,
    ) -> Result<Outcome, Failure> {
        let key = claim.key();
        let ends = self.after(ttl);
        match self.held(key)? {
            // Downgrade: a writer becomes a reader.
            Some(held) if held.token == *claim.token() => {
                self.raise_past(key, fencing_token)?;
                let wanted = Held { ends: Some(self.now), ..marker_of(held.wanted) };
                self.remove_members(What::Reader, key)?;
                self.join(claim, Some(wanted), ends.max(held.ends.unwrap_or(self.now)))?;
                Ok((Vote::Granted, None))
            }
            Some(held) if !held.token.is_marker() => Ok((self.holding(&held).into(), None)),
            held => {
                if held.is_some()
                    && let Some(share) = self.share(claim)?
                {
                    if share.ends.is_some_and(|old| old < ends) {
                        self.join(claim, held, ends)?;
                    }
                    return Ok((Vote::Granted, None));
                }
                if self.is_cancelled(claim)? {
                    return Ok((Vote::Free, None));
                }
                self.raise_past(key, fencing_token)?;
                self.join(claim, held, ends)?;
                Ok((Vote::Restored, None))
            }
        }
    }

    pub(crate) fn write_back_shared(
        &mut self,
        claim: &Claim,
        fencing_token: FencingToken,
    ) -> Result<Outcome, Failure> {
        let key = claim.key();
        match self.held(key)? {
            None => return Ok((Vote::Free, None)),
            Some(held) if !held.token.is_marker() => return Ok((self.holding(&held).into(), None)),
            Some(_) if self.share(claim)?.is_none() => return Ok((Vote::Free, None)),
            Some(_) => {}
        }
        let counter = self.may_have_stood(self.usable_counter(key)?);
        if !fencing_token.may_follow(counter, self.wall) {
            return Ok(self.ahead(counter));
        }
        self.raise(key, fencing_token)?;
        Ok((Vote::Granted, Some(fencing_token)))
    }

    /// Releases the share, and the lock with the last share; or the lock, if the token holds it exclusively.
    pub(crate) fn release_shared(&mut self, claim: &Claim) -> Result<Outcome, Failure> {
        let key = claim.key();
        let held = match self.held(key)? {
            Some(held) if held.token == *claim.token() => return self.release(claim),
            Some(held) if held.token.is_marker() => held,
            Some(_) | None => return Ok((Vote::Free, None)),
        };
        if !self.remove_member(What::Reader, key, claim.token().as_bytes())? {
            return Ok((Vote::Free, None));
        }
        let left = self.members(What::Reader, key)?;
        let Some(last) = left.iter().filter_map(|(_, reader)| reader.ends).max() else {
            self.remove(key)?;
            return Ok((if held.wanted { Vote::ReleasedContended } else { Vote::Granted }, None));
        };
        if held.ends.is_none_or(|ends| ends > last) {
            self.put(What::Lock, key, b"", &Held { ends: Some(last), ..held })?;
        }
        Ok((Vote::Granted, None))
    }

    pub(crate) fn intend(
        &mut self,
        key: &str,
        waiter: WaiterId,
        patience: Duration,
    ) -> Result<Outcome, Failure> {
        let ends = Some(self.after(patience));
        let intent = Held { ends, ..self.new_of(&Token::found(b"")) };
        self.put(What::Intent, key, waiter.to_string().as_bytes(), &intent)?;
        Ok((Vote::Granted, None))
    }

    pub(crate) fn desist(&mut self, key: &str, waiter: WaiterId) -> Result<Outcome, Failure> {
        let there = self.remove_member(What::Intent, key, waiter.to_string().as_bytes())?;
        Ok((if there { Vote::Granted } else { Vote::Free }, None))
    }

    /// Adds the readers, if there are any.
    pub(crate) fn with_readers(&self, key: &str, holding: Holding) -> Result<Holding, Failure> {
        if !holding.token.is_marker() {
            return Ok(holding);
        }
        let readers = self.members(What::Reader, key)?.into_iter().take(MOST_NAMED);
        Ok(holding.with_readers(readers.map(|(_, reader)| reader.token).collect()))
    }

    fn share(&self, claim: &Claim) -> Result<Option<Held>, Failure> {
        let members = self.members(What::Reader, claim.key())?.into_iter();
        Ok(members.map(|(_, reader)| reader).find(|reader| reader.token == *claim.token()))
    }

    /// Adds the claim as a reader until `ends`: to the existing marker, or to a new one.
    fn join(&mut self, claim: &Claim, marker: Option<Held>, ends: u64) -> Result<(), Failure> {
        let key = claim.key();
        let marker = if let Some(marker) = marker {
            marker
        } else {
            self.remove_members(What::Reader, key)?;
            Held { ends: Some(self.now), ..marker_of(false) }
        };
        let reader = Held { ends: Some(ends), ..self.new_of(claim.token()) };
        self.put(What::Reader, key, claim.token().as_bytes(), &reader)?;
        let until = marker.ends.map_or(ends, |old| old.max(ends));
        self.put(What::Lock, key, b"", &Held { ends: Some(until), ..marker })
    }

    /// Raises the counter above the number and above its current value.
    fn raise_past(&mut self, key: &str, fencing_token: Option<FencingToken>) -> Result<(), Failure> {
        let Some(fencing_token) = fencing_token else { return Ok(()) };
        let before = self.usable_counter(key)?.max(fencing_token);
        self.raise(key, FencingToken::new(before.get() + 1).unwrap_or(FencingToken::MAX))
    }
}

/// Returns the marker, which has no mark: its readers have their own.
fn marker_of(wanted: bool) -> Held {
    let token = Token::found(SHARED_MARKER.as_bytes());
    Held { token, ends: None, number: None, wanted, mark: None }
}
