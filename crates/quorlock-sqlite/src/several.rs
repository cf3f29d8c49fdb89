//! Several locks in one request: it applies to all of them or to none (rules M-1 to M-4).

use std::time::Duration;

use quorlock::node::Vote;
use quorlock::protocol::{Claim, FenceHint, FencingToken};

use crate::entries::{Entries, Held, Outcome, What, above_zero};
use crate::failure::Failure;

/// The holders of the locks of a claim.
enum Found {
    /// Another client holds this one.
    ByAnother(Claim, Held),
    /// No other client holds any: first those that the claim holds, then those that are free.
    Ours(Vec<(Claim, Held)>, Vec<Claim>),
}

impl Entries<'_> {
    pub(crate) fn acquire_several(
        &mut self,
        claim: &Claim,
        ttl: Duration,
        hint: Option<FenceHint>,
    ) -> Result<Outcome, Failure> {
        if self.any_is_cancelled(claim)? {
            return Ok((Vote::Free, None));
        }
        let free = match self.found(claim)? {
            Found::ByAnother(one, held) => {
                self.want(one.key(), &held)?;
                return self.in_the_way(&one, &held, hint.is_some());
            }
            Found::Ours(_, free) => free,
        };
        let mut number = hint.map(|_| FencingToken::ZERO);
        for key in claim.keys() {
            if let Some(drawing) = self.prepare(key, hint)? {
                let drawn = if free.is_empty() { drawing.current } else { drawing.next };
                number = number.max(Some(drawn));
            }
        }
        for one in &free {
            self.grant(one, ttl, number, false)?;
        }
        if !free.is_empty() {
            for key in claim.keys() {
                self.raise_if(key, number)?;
            }
        }
        Ok((Vote::Granted, number.and_then(above_zero)))
    }

    pub(crate) fn renew_several(
        &mut self,
        claim: &Claim,
        ttl: Duration,
        fencing_token: Option<FencingToken>,
    ) -> Result<Outcome, Failure> {
        let (ours, free) = match self.found(claim)? {
            Found::ByAnother(one, held) => return self.in_the_way(&one, &held, fencing_token.is_some()),
            Found::Ours(ours, free) => (ours, free),
        };
        if !free.is_empty() {
            if self.any_is_cancelled(claim)? {
                return Ok((Vote::Free, None));
            }
            if let Some(fencing_token) = fencing_token {
                for key in claim.keys() {
                    let counter = self.usable_counter(key)?;
                    self.raise(key, counter.max(fencing_token))?;
                }
            }
        }
        for (one, held) in &ours {
            self.prolong(one.key(), held, ttl)?;
        }
        for one in &free {
            self.grant(one, ttl, fencing_token, false)?;
        }
        Ok((if free.is_empty() { Vote::Granted } else { Vote::Restored }, None))
    }

    pub(crate) fn write_back_several(
        &mut self,
        claim: &Claim,
        fencing_token: FencingToken,
    ) -> Result<Outcome, Failure> {
        let ours = match self.found(claim)? {
            Found::ByAnother(one, held) => return self.in_the_way(&one, &held, true),
            Found::Ours(_, free) if !free.is_empty() => return Ok((Vote::Free, None)),
            Found::Ours(ours, _) => ours,
        };
        for key in claim.keys() {
            let counter = self.may_have_stood(self.usable_counter(key)?);
            if !fencing_token.may_follow(counter, self.wall) {
                return Ok(self.ahead(counter));
            }
        }
        for (one, held) in ours {
            self.raise(one.key(), fencing_token)?;
            let held = Held { number: Some(fencing_token), ..held };
            self.put(What::Lock, one.key(), b"", &held)?;
        }
        Ok((Vote::Granted, Some(fencing_token)))
    }

    /// Releases the locks that the claim holds. Anything else stays.
    pub(crate) fn release_several(&mut self, claim: &Claim) -> Result<Outcome, Failure> {
        let mut was = Vote::Free;
        for one in claim.each() {
            match self.release(&one) {
                Ok((Vote::ReleasedContended, _)) => was = Vote::ReleasedContended,
                Ok((Vote::Granted, _)) if was == Vote::Free => was = Vote::Granted,
                Ok(_) | Err(Failure::Wrong(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((was, None))
    }

    fn found(&self, claim: &Claim) -> Result<Found, Failure> {
        let (mut ours, mut free) = (Vec::new(), Vec::new());
        for one in claim.each() {
            match self.held(one.key())? {
                Some(held) if held.token == *claim.token() => ours.push((one, held)),
                Some(held) => return Ok(Found::ByAnother(one, held)),
                None => free.push(one),
            }
        }
        Ok(Found::Ours(ours, free))
    }

    /// Answers with the lock that is held, and its holder.
    fn in_the_way(&self, one: &Claim, held: &Held, fenced: bool) -> Result<Outcome, Failure> {
        let counter = if fenced { above_zero(self.usable_counter(one.key())?) } else { None };
        Ok((self.holding(held).at(one.key().into()).into(), counter))
    }

    fn any_is_cancelled(&self, claim: &Claim) -> Result<bool, Failure> {
        for one in claim.each() {
            if self.is_cancelled(&one)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
