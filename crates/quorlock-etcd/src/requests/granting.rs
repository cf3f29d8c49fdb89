//! Gives a lock to an attempt, and its numbers.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::Vote;
use quorlock::node::places::{Answer, OwnPlace, Owner, Role, contended, drawn, encode_counter};
use quorlock::protocol::{Claim, FenceHint, FencingToken, Moment, Token};

use super::{ATTEMPTS, Found, Outcome, Target, find_target};
use crate::error::Failure;
use crate::layout::{self, counter, counters, digits_of, places, tombstone};
use crate::leases::Attached;
use crate::look::Look;
use crate::own::Stored;
use crate::session::Session;
use crate::wire::{Compare, KeyValue, RequestOp, Txn};

impl Session {
    pub(super) async fn acquire(
        self: &Arc<Session>,
        claim: &Arc<Claim>,
        ttl: Duration,
        hint: Option<FenceHint>,
        attached: Attached,
    ) -> Outcome {
        if !claim.is_several()
            && let Some(answer) = self.acquire_at_once(claim, ttl, hint, attached).await?
        {
            return Ok(answer);
        }
        let mut is_watched = self.watches.are_ready(claim.keys());
        for _ in 0..ATTEMPTS {
            claim.keys().filter(|_| is_watched).for_each(|lock| self.watched.notify_of_refusal(lock));
            let counters = hint.map(|_| counters(claim)).unwrap_or_default();
            let seen = self.look(claim.keys(), counters, Some(claim.token())).await?;
            if seen.is_buried {
                return Ok(Vote::Free.into());
            }
            let stands = hint.map(|_| seen.counter()).transpose()?;
            let next = drawn(hint, stands.unwrap_or(FencingToken::ZERO), self.wall())?;
            let (mut targets, mut own, mut hindered) = (Vec::new(), Vec::new(), None);
            for (lock, places) in &seen.locks {
                match find_target(claim, lock, places, attached) {
                    Found::Free(target) => targets.push(target),
                    Found::Own(place) => own.push((lock, place)),
                    Found::Hindered(first) => hindered = hindered.or(Some((lock, first))),
                }
            }
            if let Some((lock, first)) = hindered {
                if !is_watched {
                    // From now on removals are reported; so what was read may be old.
                    self.watch(claim.keys()).await?;
                    is_watched = true;
                    continue;
                }
                let vote = self.refusal(lock, first, claim.is_several()).await?;
                return Ok(Answer::from(vote).numbered(stands));
            }
            if targets.is_empty() {
                if let Some(number) = next
                    && !self.give_number(claim.token(), &own, number, &seen).await?
                {
                    continue;
                }
                let first =
                    own.first().map(|(lock, place)| (self.put_from(lock, &place.key), place.create_revision));
                let (from, revision) = first.unwrap_or((None, 0));
                return Ok(Answer { vote: Vote::Granted, number: next, from, revision });
            }
            let held =
                own.iter().map(|(_, place)| Compare::value_is(place.key.as_slice(), place.value.as_slice()));
            let granted = self.store((claim, ttl, next), &targets, (&seen, held.collect()), attached).await?;
            if let Some(revision) = granted {
                let number = next;
                return Ok(Answer { vote: Vote::Granted, number, from: Some(attached.from), revision });
            }
        }
        Err(contended().into())
    }

    /// Acquires one lock without a look: no place is before the claim's, and the counter is below the hint or not there.
    pub(super) async fn acquire_at_once(
        &self,
        claim: &Claim,
        ttl: Duration,
        hint: Option<FenceHint>,
        attached: Attached,
    ) -> Result<Option<Answer>, Failure> {
        let Some(lock) = claim.keys().next() else { return Ok(None) };
        let place =
            claim.place().and_then(|waiter| self.memory.local.own.lock().waiter(lock, waiter).cloned());
        let Ok(number) = hint.map(|hint| hint.from(FencingToken::ZERO, self.wall())).transpose() else {
            return Ok(None);
        };
        let (start, end) = places(lock);
        let mut compare = vec![Compare::is_missing(tombstone(claim.token()))];
        let key = if let Some(place) = &place {
            compare.push(Compare::none_before(start, end, place.stored.created));
            compare.push(Compare::value_is(place.key.as_slice(), place.stored.value.as_slice()));
            place.key.clone()
        } else {
            compare.push(Compare::none_in(start, end));
            layout::place(lock, attached.lease, digits_of(claim.token()))
        };
        let value = Owner::attempt(claim.token(), number);
        let mut puts = vec![RequestOp::put(key.as_slice(), value.as_slice(), attached.lease)];
        let success = if let Some(number) = number {
            let counter = counter(claim.key_prefix(), lock);
            puts.push(RequestOp::put(counter.as_slice(), encode_counter(number), 0));
            let if_missing = Txn {
                compare: vec![Compare::is_missing(counter.as_slice())],
                success: puts.clone(),
                failure: Vec::new(),
            };
            vec![RequestOp::txn(Txn {
                compare: vec![Compare::value_below(counter, encode_counter(number))],
                success: puts,
                failure: vec![RequestOp::txn(if_missing)],
            })]
        } else {
            puts
        };
        let answer = self.txn(Txn { compare, success, failure: Vec::new() }).await?;
        let counted = answer
            .nested(0)
            .is_none_or(|nested| nested.succeeded || nested.nested(0).is_some_and(|nested| nested.succeeded));
        if !(answer.succeeded && counted) {
            return Ok(None);
        }
        let created = place.map_or(answer.revision(), |place| place.stored.created);
        self.keep(lock, (key, value, created), claim.token(), ttl, attached);
        let from = Some(attached.from);
        Ok(Some(Answer { vote: Vote::Granted, number, from, revision: created }))
    }

    /// Stores an attempt, if all is as it was when it was looked at. Returns the revision at which its first place was
    /// created, or `None` if something has changed.
    pub(super) async fn store(
        &self,
        (claim, ttl, number): (&Claim, Duration, Option<FencingToken>),
        targets: &[Target],
        (seen, mut compare): (&Look, Vec<Compare>),
        attached: Attached,
    ) -> Result<Option<i64>, Failure> {
        compare.extend(targets.iter().map(|target| seen.same_places(&target.lock)));
        compare.push(Compare::is_missing(tombstone(claim.token())));
        let value = Owner::attempt(claim.token(), number);
        let put = |target: &Target| RequestOp::put(target.key.as_slice(), value.as_slice(), attached.lease);
        let mut success: Vec<RequestOp> = targets.iter().map(put).collect();
        if let Some(number) = number {
            success.extend(seen.count(number));
            compare.extend(seen.same_counters());
        }
        let answer = self.txn(Txn { compare, success, failure: Vec::new() }).await?;
        if !answer.succeeded {
            return Ok(None);
        }
        let mut first = None;
        for Target { lock, key, place } in targets {
            let created = place.as_ref().map_or(answer.revision(), |place| place.create_revision);
            self.keep(lock, (key.clone(), value.clone(), created), claim.token(), ttl, attached);
            first = first.or(Some(created));
        }
        Ok(first)
    }

    /// Remembers what was stored.
    pub(super) fn keep(
        &self,
        lock: &Arc<str>,
        (key, value, created): (Vec<u8>, Vec<u8>, i64),
        token: &Token,
        ttl: Duration,
        attached: Attached,
    ) {
        let now = self.memory.local.now();
        let stored = Stored { value, created, class: attached.class, from: attached.from, put: now };
        let own = OwnPlace::new(key, Role::Holder(token.clone()), now + ttl, stored);
        self.memory.local.put(lock, own);
    }

    pub(super) fn put_from(&self, lock: &str, key: &[u8]) -> Option<Moment> {
        self.memory.local.own.lock().by_key(lock, key).map(|own| own.stored.from)
    }

    pub(super) async fn transfer(
        &self,
        (from, to): (&Claim, &Claim),
        ttl: Duration,
        hint: Option<FenceHint>,
        attached: Attached,
    ) -> Outcome {
        for _ in 0..ATTEMPTS {
            let counters = hint.map(|_| counters(to)).unwrap_or_default();
            let seen = self.look(to.keys(), counters, Some(to.token())).await?;
            if seen.is_buried {
                return Ok(Vote::Free.into());
            }
            let stands = hint.map(|_| seen.counter()).transpose()?;
            let next = drawn(hint, stands.unwrap_or(FencingToken::ZERO), self.wall())?;
            let Some((lock, places)) = seen.locks.first() else { break };
            let mut target = match find_target(to, lock, places, attached) {
                Found::Free(target) => target,
                Found::Own(place) => {
                    if let Some(number) = next
                        && !self.give_number(to.token(), &[(lock, place)], number, &seen).await?
                    {
                        continue;
                    }
                    self.memory.local.prolong(lock, &place.key, ttl);
                    let from = Some(attached.from);
                    let revision = place.create_revision;
                    return Ok(Answer { vote: Vote::Granted, number: next, from, revision });
                }
                Found::Hindered(first) => {
                    let is_from =
                        matches!(Owner::of(&first.value), Owner::Attempt(token, _) if token == *from.token());
                    if !is_from {
                        let vote = self.refusal(lock, first, false).await?;
                        return Ok(Answer::from(vote).numbered(stands));
                    }
                    Target { lock: Arc::clone(lock), key: first.key.clone(), place: Some(first.clone()) }
                }
            };
            let mut compare = Vec::new();
            if let Some(place) = &target.place {
                // Waiters may come behind it.
                compare.push(Compare::value_is(place.key.as_slice(), place.value.as_slice()));
            }
            let passes = target.place.take();
            let targets = [target];
            let stored = if let Some(place) = passes {
                self.replace((to, ttl, next), (lock, &place), (&seen, compare), attached).await?
            } else {
                self.store((to, ttl, next), &targets, (&seen, compare), attached).await?
            };
            if let Some(revision) = stored {
                return Ok(Answer { vote: Vote::Granted, number: next, from: Some(attached.from), revision });
            }
        }
        Err(contended().into())
    }

    /// Makes a place that of another attempt, whichever clients wait behind it.
    pub(super) async fn replace(
        &self,
        (claim, ttl, number): (&Claim, Duration, Option<FencingToken>),
        (lock, place): (&Arc<str>, &KeyValue),
        (seen, mut compare): (&Look, Vec<Compare>),
        attached: Attached,
    ) -> Result<Option<i64>, Failure> {
        compare.push(Compare::is_missing(tombstone(claim.token())));
        let value = Owner::attempt(claim.token(), number);
        let mut success = vec![RequestOp::put(place.key.as_slice(), value.as_slice(), attached.lease)];
        if let Some(number) = number {
            success.extend(seen.count(number));
            compare.extend(seen.same_counters());
        }
        if !self.txn(Txn { compare, success, failure: Vec::new() }).await?.succeeded {
            return Ok(None);
        }
        self.keep(lock, (place.key.clone(), value, place.create_revision), claim.token(), ttl, attached);
        Ok(Some(place.create_revision))
    }

    pub(super) async fn write_back(&self, claim: &Claim, number: FencingToken) -> Outcome {
        for _ in 0..ATTEMPTS {
            let seen = self.look(claim.keys(), counters(claim), None).await?;
            let mut own = Vec::new();
            for (lock, places) in &seen.locks {
                let Some(first) = places.first() else { return Ok(Vote::Free.into()) };
                match Owner::of(&first.value) {
                    Owner::Attempt(token, _) if token == *claim.token() => own.push((lock, first)),
                    Owner::Waiter(..) => return Ok(Vote::Free.into()),
                    Owner::Attempt(..) => {
                        let vote = self.refusal(lock, first, claim.is_several()).await?;
                        let counter = if claim.is_several() { Some(seen.counter()?) } else { None };
                        return Ok(Answer::from(vote).numbered(counter));
                    }
                }
            }
            let stands = seen.counter()?;
            if stands >= number {
                return Ok(Answer::from(Vote::FenceAhead).numbered(Some(stands)));
            }
            if self.give_number(claim.token(), &own, number, &seen).await? {
                return Ok(Answer::from(Vote::Granted).numbered(Some(number)));
            }
        }
        Err(contended().into())
    }

    /// Raises the counters to a number for the holder of these places, if all is as it was when it was looked at.
    pub(super) async fn give_number(
        &self,
        token: &Token,
        own: &[(&Arc<str>, &KeyValue)],
        number: FencingToken,
        seen: &Look,
    ) -> Result<bool, Failure> {
        let same =
            own.iter().map(|(_, place)| Compare::value_is(place.key.as_slice(), place.value.as_slice()));
        let compare = same.chain(seen.same_counters()).collect();
        let value = Owner::attempt(token, Some(number));
        let put = |place: &KeyValue| RequestOp::put(place.key.as_slice(), value.as_slice(), place.lease);
        let success = own.iter().map(|(_, place)| put(place)).chain(seen.count(number)).collect();
        let succeeded = self.txn(Txn { compare, success, failure: Vec::new() }).await?.succeeded;
        if succeeded {
            let mut all = self.memory.local.own.lock();
            for (lock, place) in own {
                all.change(lock, &place.key, |own| own.stored.value.clone_from(&value));
            }
        }
        Ok(succeeded)
    }
}
