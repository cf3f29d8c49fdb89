//! Keeps a lock: by the last heartbeat of its lease, or by a transaction.

use std::time::Duration;

use quorlock::node::Vote;
use quorlock::node::places::{Answer, Owner, contended, usable};
use quorlock::protocol::{Claim, FencingToken, Moment};

use super::{ATTEMPTS, Found, Outcome, Target, check_ttl, find_target};
use crate::error::Failure;
use crate::layout::{counters, tombstone};
use crate::leases::{Attached, Beat};
use crate::session::Session;
use crate::wire::{Compare, RequestOp, Txn};

impl Session {
    /// Renews a claim from the last heartbeat of its lease, if that has listed its keys.
    pub(super) async fn renew_by_heartbeat(
        &self,
        claim: &Claim,
        ttl: Duration,
    ) -> Result<Option<Answer>, Failure> {
        check_ttl(ttl)?;
        let (mut from, mut revision) = (Moment::NEVER, 0);
        let mut keys = Vec::new();
        for lock in claim.keys() {
            let Some(own) = self.memory.local.own.lock().holder(lock, claim.token()).cloned() else {
                return Ok(None);
            };
            if Duration::from_secs(own.stored.class) < ttl {
                return Ok(None);
            }
            let Beat::Confirmed(confirmed) = self.beat(&own, ttl).await? else { return Ok(None) };
            from = from.min(confirmed);
            revision = own.stored.created;
            keys.push((lock, own.key));
        }
        let mut all = self.memory.local.own.lock();
        let until = self.memory.local.now() + ttl;
        // It may have ended meanwhile, and is then being deleted.
        if keys.iter().any(|(lock, key)| all.by_key(lock, key).is_none()) {
            return Ok(None);
        }
        for (lock, key) in keys {
            all.change(lock, &key, |own| own.until = own.until.max(until));
        }
        Ok(Some(Answer { vote: Vote::Granted, number: None, from: Some(from), revision }))
    }

    pub(super) async fn renew(
        &self,
        claim: &Claim,
        ttl: Duration,
        fencing_token: Option<FencingToken>,
        attached: Attached,
    ) -> Outcome {
        for _ in 0..ATTEMPTS {
            let counters = fencing_token.map(|_| counters(claim)).unwrap_or_default();
            let seen = self.look(claim.keys(), counters, Some(claim.token())).await?;
            let (mut targets, mut own) = (Vec::new(), Vec::new());
            for (lock, places) in &seen.locks {
                match find_target(claim, lock, places, attached) {
                    Found::Free(target) if target.place.is_none() => targets.push(target),
                    Found::Own(place) => own.push((lock, place)),
                    Found::Free(_) | Found::Hindered(_) => {
                        let Some(first) = places.first() else { continue };
                        let vote = self.refusal(lock, first, claim.is_several()).await?;
                        let drawn = fencing_token.filter(|_| claim.is_several());
                        let counter = drawn.map(|_| seen.counter()).transpose()?;
                        return Ok(Answer::from(vote).numbered(counter));
                    }
                }
            }
            if !targets.is_empty() && seen.is_buried {
                return Ok(Vote::Free.into());
            }
            let mut compare: Vec<Compare> = own
                .iter()
                .map(|(_, place)| Compare::value_is(place.key.as_slice(), place.value.as_slice()))
                .collect();
            compare.extend(targets.iter().map(|target| seen.same_places(&target.lock)));
            let mut success: Vec<RequestOp> = Vec::new();
            for (_, place) in &own {
                success.push(RequestOp::put(place.key.as_slice(), place.value.as_slice(), attached.lease));
            }
            let value = Owner::attempt(claim.token(), fencing_token);
            for target in &targets {
                success.push(RequestOp::put(target.key.as_slice(), value.as_slice(), attached.lease));
            }
            if !targets.is_empty() {
                compare.push(Compare::is_missing(tombstone(claim.token())));
            }
            if let Some(number) = fencing_token.filter(|_| !targets.is_empty()) {
                let stands = usable(seen.counter()?)?;
                success.extend(seen.count(stands.max(number)));
                compare.extend(seen.same_counters());
            }
            let answer = self.txn(Txn { compare, success, failure: Vec::new() }).await?;
            if !answer.succeeded {
                continue;
            }
            let is_restored = !targets.is_empty();
            let mut revision = answer.revision();
            for (lock, place) in own {
                let until = self.memory.local.own.lock().by_key(lock, &place.key).map(|own| own.until);
                let stored = (place.key.clone(), place.value.clone(), place.create_revision);
                self.keep(lock, stored, claim.token(), ttl, attached);
                // A renewal never shortens.
                let until = until.unwrap_or(Moment::ORIGIN);
                self.memory.local.own.lock().change(lock, &place.key, |own| own.until = own.until.max(until));
                revision = place.create_revision;
            }
            for Target { lock, key, .. } in targets {
                self.keep(&lock, (key, value.clone(), answer.revision()), claim.token(), ttl, attached);
            }
            let vote = if is_restored { Vote::Restored } else { Vote::Granted };
            return Ok(Answer { vote, number: None, from: Some(attached.from), revision });
        }
        Err(contended().into())
    }
}
