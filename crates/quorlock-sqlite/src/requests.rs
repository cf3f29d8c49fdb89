//! Applies requests as the contract specifies; here for one exclusive lock.

use std::time::Duration;

use quorlock::node::{NodeError, NodeErrorKind, Reason, Request, Vote};
use quorlock::protocol::{Claim, FenceHint, FencingToken, Mode, fence_counter};

use crate::entries::{Entries, Held, Outcome, What, above_zero, current};
use crate::failure::Failure;

impl Entries<'_> {
    /// Applies the request.
    #[expect(clippy::wildcard_enum_match_arm, reason = "refused above, or newer than this node")]
    pub(crate) fn carry_out(&mut self, request: &Request) -> Result<Outcome, Failure> {
        match request {
            Request::Acquire { claim, ttl, fence_hint } => match kind(claim) {
                Kind::Shared => self.acquire_shared(claim, *ttl, *fence_hint),
                Kind::Several => self.acquire_several(claim, *ttl, *fence_hint),
                Kind::Plain => self.acquire(claim, *ttl, *fence_hint),
            },
            Request::Renew { claim, ttl, fencing_token } => match kind(claim) {
                Kind::Shared => self.renew_shared(claim, *ttl, *fencing_token),
                Kind::Several => self.renew_several(claim, *ttl, *fencing_token),
                Kind::Plain => self.renew(claim, *ttl, *fencing_token),
            },
            Request::WriteBack { claim, fencing_token } => match kind(claim) {
                Kind::Shared => self.write_back_shared(claim, *fencing_token),
                Kind::Several => self.write_back_several(claim, *fencing_token),
                Kind::Plain => self.write_back(claim, *fencing_token),
            },
            Request::Release { claim } => self.give_up(claim),
            Request::Cancel { claim, linger } => {
                let (vote, _) = self.give_up(claim)?;
                self.bury(claim, *linger)?;
                Ok((if vote == Vote::Free { Vote::Free } else { Vote::Granted }, None))
            }
            Request::Transfer { from, to, ttl, fence_hint } => self.transfer(from, to, *ttl, *fence_hint),
            Request::AnnounceWriter { key, waiter, patience } => self.intend(key, *waiter, *patience),
            Request::WithdrawWriter { key, waiter } => self.desist(key, *waiter),
            Request::DeleteFencingCounter { key } => self.forget(key),
            Request::Inspect { key } => self.inspect(key),
            _ => {
                let reason = Reason::new("a SQLite node does not know this request");
                Err(NodeError::Failed { kind: NodeErrorKind::Unsupported, reason }.into())
            }
        }
    }

    fn give_up(&mut self, claim: &Claim) -> Result<Outcome, Failure> {
        match kind(claim) {
            Kind::Shared => self.release_shared(claim),
            Kind::Several => self.release_several(claim),
            Kind::Plain => self.release(claim),
        }
    }

    fn acquire(&mut self, claim: &Claim, ttl: Duration, hint: Option<FenceHint>) -> Result<Outcome, Failure> {
        if self.is_cancelled(claim)? {
            return Ok((Vote::Free, None));
        }
        let drawing = self.prepare(claim.key(), hint)?;
        match self.held(claim.key())? {
            None => {
                let number = drawing.map(|drawing| drawing.next);
                self.grant(claim, ttl, number, false)?;
                self.raise_if(claim.key(), number)?;
                Ok((Vote::Granted, number))
            }
            Some(held) if held.token == *claim.token() => Ok((Vote::Granted, current(drawing))),
            Some(held) => {
                // Without fencing a refusal leaves nothing.
                if drawing.is_some() {
                    self.want(claim.key(), &held)?;
                }
                Ok((self.holding(&held).into(), current(drawing)))
            }
        }
    }

    fn transfer(
        &mut self,
        from: &Claim,
        to: &Claim,
        ttl: Duration,
        hint: Option<FenceHint>,
    ) -> Result<Outcome, Failure> {
        if self.is_cancelled(to)? {
            return Ok((Vote::Free, None));
        }
        let drawing = self.prepare(to.key(), hint)?;
        let held = self.held(to.key())?;
        match &held {
            Some(held) if held.token == *to.token() => {
                self.prolong(to.key(), held, ttl)?;
                Ok((Vote::Granted, current(drawing)))
            }
            Some(held) if held.token != *from.token() => Ok((self.holding(held).into(), current(drawing))),
            Some(_) | None => {
                let number = drawing.map(|drawing| drawing.next);
                self.grant(to, ttl, number, held.is_some_and(|held| held.wanted))?;
                self.raise_if(to.key(), number)?;
                Ok((Vote::Granted, number))
            }
        }
    }

    fn renew(
        &mut self,
        claim: &Claim,
        ttl: Duration,
        fencing_token: Option<FencingToken>,
    ) -> Result<Outcome, Failure> {
        let key = claim.key();
        match self.held(key)? {
            Some(held) if held.token == *claim.token() => {
                self.prolong(key, &held, ttl)?;
                Ok((Vote::Granted, None))
            }
            Some(held) => Ok((self.holding(&held).into(), None)),
            None if self.is_cancelled(claim)? => Ok((Vote::Free, None)),
            None => {
                if let Some(fencing_token) = fencing_token {
                    let counter = self.usable_counter(key)?;
                    self.raise(key, counter.max(fencing_token))?;
                }
                self.grant(claim, ttl, fencing_token, false)?;
                Ok((Vote::Restored, None))
            }
        }
    }

    /// Releases a lock: `Wanted` if another client was refused in the meantime.
    pub(crate) fn release(&mut self, claim: &Claim) -> Result<Outcome, Failure> {
        let Some(held) = self.held_by(claim)? else { return Ok((Vote::Free, None)) };
        self.remove(claim.key())?;
        Ok((if held.wanted { Vote::ReleasedContended } else { Vote::Granted }, None))
    }

    pub(crate) fn held_by(&self, claim: &Claim) -> Result<Option<Held>, Failure> {
        Ok(self.held(claim.key())?.filter(|held| held.token == *claim.token()))
    }

    fn write_back(&mut self, claim: &Claim, fencing_token: FencingToken) -> Result<Outcome, Failure> {
        match self.held(claim.key())? {
            None => Ok((Vote::Free, None)),
            Some(held) if held.token != *claim.token() => Ok((self.holding(&held).into(), None)),
            Some(held) => {
                let counter = self.may_have_stood(self.usable_counter(claim.key())?);
                if !fencing_token.may_follow(counter, self.wall) {
                    return Ok(self.ahead(counter));
                }
                self.raise(claim.key(), fencing_token)?;
                let held = Held { number: Some(fencing_token), ..held };
                self.put(What::Lock, claim.key(), b"", &held)?;
                Ok((Vote::Granted, Some(fencing_token)))
            }
        }
    }

    fn forget(&mut self, key: &str) -> Result<Outcome, Failure> {
        let counter = fence_counter(key);
        let there = self.exists(&counter)?;
        if there {
            self.remove(&counter)?;
        }
        Ok((if there { Vote::Granted } else { Vote::Free }, None))
    }

    fn inspect(&self, key: &str) -> Result<Outcome, Failure> {
        // A holder is reported even if the counter is unreadable.
        let counter = || self.counter(key).ok().and_then(above_zero);
        Ok(match self.held(key)? {
            None => (Vote::Free, counter()),
            Some(held) => {
                let number = held.number.or_else(|| held.token.number()).or_else(counter);
                (self.with_readers(key, self.holding(&held))?.into(), number)
            }
        })
    }

    pub(crate) fn raise_if(&mut self, key: &str, number: Option<FencingToken>) -> Result<(), Failure> {
        number.map_or(Ok(()), |number| self.raise(key, number))
    }
}

enum Kind {
    Plain,
    Shared,
    Several,
}

fn kind(claim: &Claim) -> Kind {
    match claim.mode() {
        Mode::Shared => Kind::Shared,
        Mode::Exclusive if claim.is_several() => Kind::Several,
        Mode::Exclusive => Kind::Plain,
    }
}
