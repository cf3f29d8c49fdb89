//! Carries out requests: each is one transaction where nothing is in the way, and a look before it where something is.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::places::{Owner, Role};
use quorlock::node::{
    Capabilities, Capability, Hints, NodeError, NodeErrorKind, Order, Request, Response, Vote,
};
use quorlock::protocol::{Claim, FenceHint, FencingToken, Moment, NoNumber, Token};
use tonic::Code;

use crate::error::{Trouble, failed};
use crate::layout::{
    self, RESERVED, counter, counters, digits_of, encode_counter, places, tombstone,
};
use crate::leases::{Attached, Beat, LEAST};
use crate::look::Look;
use crate::own::{Own, Stored};
use crate::session::Session;
use crate::wire::{Compare, KeyValue, Range, RequestOp, Txn};

/// What a node of this kind can do. Readers and writers that exclude each other have no place in this layout: its other
/// clients would take a reader for a holder.
pub(crate) fn capabilities() -> Capabilities {
    let able = [Capability::Transfer, Capability::Several, Capability::Queue];
    let able = able.into_iter().fold(Capabilities::default(), Capabilities::with);
    let able = able.in_order(Order::Unordered).hinting(Hints::RemovalAndExpiry).durable();
    able.by_consensus().shared_with_others().first_come()
}

/// How often a request is decided again because other clients have changed what it depends on.
const ATTEMPTS: usize = 50;

/// The answer to a request.
pub(crate) struct Answer {
    vote: Vote,
    number: Option<FencingToken>,
    /// From when the TTL of a grant counts.
    from: Option<Moment>,
    /// The revision at which the holder's place was created.
    revision: i64,
}

/// Why a request has no answer.
pub(crate) enum Fault {
    Trouble(Trouble),
    Error(NodeError),
}

pub(crate) type Outcome = Result<Answer, Fault>;

impl From<Trouble> for Fault {
    fn from(trouble: Trouble) -> Fault {
        Fault::Trouble(trouble)
    }
}

impl From<NodeError> for Fault {
    fn from(error: NodeError) -> Fault {
        Fault::Error(error)
    }
}

impl From<Vote> for Answer {
    fn from(vote: Vote) -> Answer {
        Answer { vote, number: None, from: None, revision: 0 }
    }
}

impl Answer {
    fn numbered(self, number: Option<FencingToken>) -> Answer {
        Answer { number, ..self }
    }
}

/// What a granted request stores.
struct Target {
    lock: Arc<str>,
    key: Vec<u8>,
    /// The place that becomes the holder's; `None` for a new one.
    place: Option<KeyValue>,
}

impl Session {
    /// Carries out a request.
    pub(crate) async fn carry_out(self: &Arc<Session>, request: &Request) -> Result<Response, NodeError> {
        capabilities().check(request)?;
        if let Some(key) = request.keys().find(|key| key.starts_with(RESERVED)) {
            let words =
                format!("names that begin with `{RESERVED}` are this library's own, and `{key}` is one");
            return Err(failed(NodeErrorKind::Unsupported, words));
        }
        if let Some(ended) = self.ended() {
            return Err(NodeError::Unreachable { reason: format!("{ended:#}").into() });
        }
        let mut outcome = self.apply(request).await;
        if let Err(Fault::Trouble(Trouble::Refused(Code::NotFound, _))) = &outcome {
            // A lease had ended, so nothing was done.
            outcome = self.apply(request).await;
        }
        match outcome {
            Ok(Answer { vote, number, from, revision }) => {
                let revision = u64::try_from(revision).ok().and_then(NonZeroU64::new);
                let response = Response::new(vote, Arc::clone(&self.identity)).with_fencing_token(number);
                let response = response.with_store_revision(revision);
                Ok(from.into_iter().fold(response, Response::counting_from))
            }
            Err(Fault::Error(error)) => Err(error),
            Err(Fault::Trouble(trouble)) => Err(self.note(trouble)),
        }
    }

    async fn apply(self: &Arc<Session>, request: &Request) -> Outcome {
        match request {
            Request::Acquire { claim, ttl, fence_hint } => {
                let attached = self.attach(*ttl).await?;
                let done = self.acquire(claim, *ttl, *fence_hint, attached).await;
                self.without_ended_lease(done, attached).await
            }
            Request::Transfer { from, to, ttl, fence_hint } => {
                check_ttl(*ttl)?;
                // It may stay when this process ends.
                let leases = &self.memory.leases;
                let clock = self.memory.clock();
                let attached = leases.attach_since(&self.client, clock, *ttl, Duration::ZERO).await?;
                let done = self.transfer((from, to), *ttl, *fence_hint, attached).await;
                self.without_ended_lease(done, attached).await
            }
            Request::Renew { claim, ttl, fencing_token } => {
                if let Some(answer) = self.renew_by_heartbeat(claim, *ttl).await? {
                    return Ok(answer);
                }
                let attached = self.attach(*ttl).await?;
                let done = self.renew(claim, *ttl, *fencing_token, attached).await;
                self.without_ended_lease(done, attached).await
            }
            Request::WriteBack { claim, fencing_token } => self.write_back(claim, *fencing_token).await,
            Request::Release { claim } => self.release(claim).await,
            Request::Cancel { claim, linger } => self.cancel(claim, *linger).await,
            Request::Enqueue { key, waiter, elapsed, patience, turn, context, .. } => {
                let since = self.memory.clock().wall().saturating_sub(*elapsed);
                self.enqueue(key, (*waiter, since, context), *patience, *turn).await
            }
            Request::LeaveQueue { key, waiter } => self.leave_queue(key, *waiter).await,
            Request::ListWaiters { key } => self.list_waiters(key).await,
            Request::Inspect { key, prefix_len } => self.inspect(key, *prefix_len).await,
            Request::Offer { .. } | Request::AnnounceWriter { .. } | Request::WithdrawWriter { .. } | _ => {
                Err(failed(NodeErrorKind::Unsupported, "nodes of this kind do not know this request").into())
            }
        }
    }

    async fn attach(&self, ttl: Duration) -> Result<Attached, Fault> {
        check_ttl(ttl)?;
        Ok(self.memory.leases.attach(&self.client, self.memory.clock(), ttl).await?)
    }

    /// Forgets the lease, if that is what etcd does not know.
    async fn without_ended_lease(&self, outcome: Outcome, attached: Attached) -> Outcome {
        if let Err(Fault::Trouble(Trouble::Refused(Code::NotFound, _))) = &outcome {
            self.memory.leases.forget(attached).await;
        }
        outcome
    }

    fn wall(&self) -> Duration {
        self.memory.clock().wall()
    }

    async fn acquire(
        &self,
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
            claim.keys().filter(|_| is_watched).for_each(|lock| self.watches.tell_refused(lock));
            let counters = hint.map(|_| counters(claim)).unwrap_or_default();
            let seen = self.look(claim.keys(), counters, Some(claim.token())).await?;
            if seen.is_buried {
                return Ok(Vote::Free.into());
            }
            let stands = hint.map(|_| seen.counter()).transpose()?;
            let next = drawn(hint, stands, self.wall())?;
            let current = stands.filter(|stands| *stands > FencingToken::ZERO);
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
                    self.watches.begin(claim.keys(), self.memory.now()).await?;
                    is_watched = true;
                    continue;
                }
                let vote = self.refusal(lock, first, claim.is_several()).await?;
                return Ok(Answer::from(vote).numbered(current));
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
    async fn acquire_at_once(
        &self,
        claim: &Claim,
        ttl: Duration,
        hint: Option<FenceHint>,
        attached: Attached,
    ) -> Result<Option<Answer>, Fault> {
        let Some(lock) = claim.keys().next() else { return Ok(None) };
        let place = claim.place().and_then(|waiter| self.memory.own.lock().waiter(lock, waiter).cloned());
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
    async fn store(
        &self,
        (claim, ttl, number): (&Claim, Duration, Option<FencingToken>),
        targets: &[Target],
        (seen, mut compare): (&Look, Vec<Compare>),
        attached: Attached,
    ) -> Result<Option<i64>, Trouble> {
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
    fn keep(
        &self,
        lock: &Arc<str>,
        (key, value, created): (Vec<u8>, Vec<u8>, i64),
        token: &Token,
        ttl: Duration,
        attached: Attached,
    ) {
        let now = self.memory.now();
        let stored = Stored { value, created, class: attached.class, from: attached.from, put: now };
        let own = Own::new(key, Role::Holder(token.clone()), now + ttl, stored);
        if self.memory.own.lock().put(lock, own) {
            self.memory.due.notify_one();
        }
    }

    fn put_from(&self, lock: &str, key: &[u8]) -> Option<Moment> {
        self.memory.own.lock().by_key(lock, key).map(|own| own.stored.from)
    }

    async fn transfer(
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
            let next = drawn(hint, stands, self.wall())?;
            let current = stands.filter(|stands| *stands > FencingToken::ZERO);
            let Some((lock, places)) = seen.locks.first() else { break };
            let mut target = match find_target(to, lock, places, attached) {
                Found::Free(target) => target,
                Found::Own(place) => {
                    if let Some(number) = next
                        && !self.give_number(to.token(), &[(lock, place)], number, &seen).await?
                    {
                        continue;
                    }
                    self.prolong(lock, &place.key, ttl);
                    let from = Some(attached.from);
                    let revision = place.create_revision;
                    return Ok(Answer { vote: Vote::Granted, number: next, from, revision });
                }
                Found::Hindered(first) => {
                    let is_from =
                        matches!(Owner::of(&first.value), Owner::Attempt(token, _) if token == *from.token());
                    if !is_from {
                        let vote = self.refusal(lock, first, false).await?;
                        return Ok(Answer::from(vote).numbered(current));
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
    async fn replace(
        &self,
        (claim, ttl, number): (&Claim, Duration, Option<FencingToken>),
        (lock, place): (&Arc<str>, &KeyValue),
        (seen, mut compare): (&Look, Vec<Compare>),
        attached: Attached,
    ) -> Result<Option<i64>, Trouble> {
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

    fn prolong(&self, lock: &str, key: &[u8], ttl: Duration) {
        let until = self.memory.now() + ttl;
        self.memory.own.lock().change(lock, key, |own| own.until = own.until.max(until));
    }

    /// Renews a claim from the last heartbeat of its lease, if that has listed its keys.
    async fn renew_by_heartbeat(&self, claim: &Claim, ttl: Duration) -> Result<Option<Answer>, Fault> {
        check_ttl(ttl)?;
        let (mut from, mut revision) = (Moment::NEVER, 0);
        let mut keys = Vec::new();
        for lock in claim.keys() {
            let Some(own) = self.memory.own.lock().holder(lock, claim.token()).cloned() else {
                return Ok(None);
            };
            if Duration::from_secs(own.stored.class) < ttl {
                return Ok(None);
            }
            let leases = &self.memory.leases;
            let known = (own.key.as_slice(), own.stored.put);
            let beat = leases.beat(&self.client, self.memory.clock(), own.stored.class, ttl, known).await?;
            let Beat::Confirmed(confirmed) = beat else { return Ok(None) };
            from = from.min(confirmed);
            revision = own.stored.created;
            keys.push((lock, own.key));
        }
        let mut all = self.memory.own.lock();
        let until = self.memory.now() + ttl;
        // It may have ended meanwhile, and is then being deleted.
        if keys.iter().any(|(lock, key)| all.by_key(lock, key).is_none()) {
            return Ok(None);
        }
        for (lock, key) in keys {
            all.change(lock, &key, |own| own.until = own.until.max(until));
        }
        Ok(Some(Answer { vote: Vote::Granted, number: None, from: Some(from), revision }))
    }

    /// Renews a lock without asking anybody, if the last heartbeat of its lease is recent enough and has listed its key.
    pub(crate) fn renew_at_once(&self, claim: &Claim, ttl: Duration) -> Option<Response> {
        if claim.is_several() || ttl < LEAST || self.ended().is_some() {
            return None;
        }
        let lock = claim.keys().next()?;
        let (mut all, clock) = (self.memory.own.lock(), self.memory.clock());
        let own = all.holder(lock, claim.token()).filter(|own| Duration::from_secs(own.stored.class) >= ttl)?;
        let from = self.memory.leases.last_beat(clock, own.stored.class, ttl, &own.key)?;
        let (key, until) = (own.key.clone(), clock.now() + ttl);
        all.change(lock, &key, |own| own.until = own.until.max(until));
        Some(Response::new(Vote::Granted, Arc::clone(&self.identity)).counting_from(from))
    }

    async fn renew(
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
                        let told = fencing_token.filter(|_| claim.is_several());
                        let counter = told.map(|_| seen.counter()).transpose()?;
                        let counter = counter.filter(|counter| *counter > FencingToken::ZERO);
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
                let until = self.memory.own.lock().by_key(lock, &place.key).map(|own| own.until);
                let stored = (place.key.clone(), place.value.clone(), place.create_revision);
                self.keep(lock, stored, claim.token(), ttl, attached);
                // A renewal never shortens.
                let until = until.unwrap_or(Moment::ORIGIN);
                self.memory.own.lock().change(lock, &place.key, |own| own.until = own.until.max(until));
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

    async fn write_back(&self, claim: &Claim, number: FencingToken) -> Outcome {
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
                        return Ok(Answer::from(vote).numbered(counter.filter(|at| *at > FencingToken::ZERO)));
                    }
                }
            }
            let stands = seen.counter()?;
            if stands >= number {
                let stands = Some(stands).filter(|stands| *stands > FencingToken::ZERO);
                return Ok(Answer::from(Vote::FenceAhead).numbered(stands));
            }
            if self.give_number(claim.token(), &own, number, &seen).await? {
                return Ok(Answer::from(Vote::Granted).numbered(Some(number)));
            }
        }
        Err(contended().into())
    }

    /// Raises the counters to a number for the holder of these places, if all is as it was when it was looked at.
    async fn give_number(
        &self,
        token: &Token,
        own: &[(&Arc<str>, &KeyValue)],
        number: FencingToken,
        seen: &Look,
    ) -> Result<bool, Trouble> {
        let same =
            own.iter().map(|(_, place)| Compare::value_is(place.key.as_slice(), place.value.as_slice()));
        let compare = same.chain(seen.same_counters()).collect();
        let value = Owner::attempt(token, Some(number));
        let put = |place: &KeyValue| RequestOp::put(place.key.as_slice(), value.as_slice(), place.lease);
        let success = own.iter().map(|(_, place)| put(place)).chain(seen.count(number)).collect();
        let succeeded = self.txn(Txn { compare, success, failure: Vec::new() }).await?.succeeded;
        if succeeded {
            let mut all = self.memory.own.lock();
            for (lock, place) in own {
                all.change(lock, &place.key, |own| own.stored.value.clone_from(&value));
            }
        }
        Ok(succeeded)
    }

    async fn release(&self, claim: &Claim) -> Outcome {
        let mut own = Vec::new();
        for lock in claim.keys() {
            let known = self.memory.own.lock().holder(lock, claim.token()).cloned();
            own.push((Arc::clone(lock), known.map(|own| (own.key, own.stored.value))));
        }
        if own.iter().any(|(_, known)| known.is_none()) {
            self.find(claim.token(), &mut own).await?;
        }
        Ok(self.delete(own).await?.into())
    }

    /// Finds the places of a token that this process does not know.
    async fn find(&self, token: &Token, own: &mut [Known]) -> Result<(), Trouble> {
        let seen = self.look(own.iter().map(|(lock, _)| lock), BTreeSet::new(), None).await?;
        for ((_, known), (_, places)) in own.iter_mut().zip(&seen.locks) {
            let is_of =
                |kv: &&KeyValue| matches!(Owner::of(&kv.value), Owner::Attempt(found, _) if found == *token);
            let found = places.iter().find(is_of).map(|kv| (kv.key.clone(), kv.value.clone()));
            if known.is_none() {
                *known = found;
            }
        }
        Ok(())
    }

    /// Deletes these keys if they have these values. Tells whether that is anybody's turn.
    async fn delete(&self, own: Vec<Known>) -> Result<Vote, Trouble> {
        let mut success = Vec::new();
        for (lock, known) in &own {
            let Some((key, value)) = known else { continue };
            let (start, end) = places(lock);
            success.push(RequestOp::txn(Txn {
                compare: vec![Compare::value_is(key.as_slice(), value.as_slice())],
                success: vec![
                    RequestOp::delete(key.as_slice()),
                    RequestOp::range(Range { keys_only: true, ..Range::by_creation(start, end, 16) }),
                ],
                failure: Vec::new(),
            }));
        }
        if success.is_empty() {
            return Ok(Vote::Free);
        }
        let answer = self.txn(Txn { success, ..Txn::default() }).await?;
        let (mut vote, mut at) = (Vote::Free, 0);
        for (lock, known) in own {
            let Some((key, _)) = known else { continue };
            let deleted = answer.nested(at).filter(|nested| nested.succeeded);
            at += 1;
            self.memory.own.lock().remove(&lock, &key);
            let Some(deleted) = deleted else { continue };
            let waits = deleted.range(1).iter().any(|kv| layout::is_place(&lock, &kv.key));
            if waits || vote == Vote::Free {
                vote = if waits { Vote::Notified } else { Vote::Granted };
            }
        }
        Ok(vote)
    }

    async fn cancel(&self, claim: &Claim, linger: Duration) -> Outcome {
        let tomb = tombstone(claim.token());
        let bury = async || {
            let lease = self.memory.leases.tomb(&self.client, self.memory.clock(), linger).await?;
            let success = vec![RequestOp::put(tomb.as_slice(), "", lease)];
            self.txn(Txn { success, ..Txn::default() }).await
        };
        let buried = bury().await;
        if let Err(Trouble::Refused(Code::NotFound, _)) = &buried {
            self.memory.leases.forget_tombs().await;
        }
        buried?;
        // Nothing of the attempt is stored from here on.
        let mut own = claim.keys().map(|lock| (Arc::clone(lock), None)).collect::<Vec<_>>();
        self.find(claim.token(), &mut own).await?;
        let vote = self.delete(own).await?;
        Ok(if vote == Vote::Free { vote } else { Vote::Granted }.into())
    }

    async fn inspect(&self, lock: &Arc<str>, prefix_len: usize) -> Outcome {
        if !self.memory.listeners.lock().is_empty() {
            self.watches.begin([lock].into_iter(), self.memory.now()).await?;
            self.watches.tell_inspected(lock);
        }
        let counter = counter(lock.get(..prefix_len).unwrap_or_default(), lock);
        let seen = self.look([lock].into_iter(), BTreeSet::from([counter]), None).await?;
        // What is no counter says nothing of the holder.
        let counter = seen.counter().ok().filter(|counter| *counter > FencingToken::ZERO);
        let first = seen.locks.first().and_then(|(_, places)| places.first());
        let Some((first, Owner::Attempt(token, number))) =
            first.map(|first| (first, Owner::of(&first.value)))
        else {
            return Ok(Answer::from(Vote::Free).numbered(counter));
        };
        let number = number.or_else(|| token.number()).or(counter);
        let holding = self.holding(lock, first).await?;
        Ok(Answer::from(Vote::from(holding)).numbered(number))
    }
}

/// A lock, with the key and the value of its holder if they are known.
type Known = (Arc<str>, Option<(Vec<u8>, Vec<u8>)>);

/// What an attempt finds at a lock.
enum Found<'a> {
    /// Nothing before it.
    Free(Target),
    /// It holds it.
    Own(&'a KeyValue),
    /// Another one is first.
    Hindered(&'a KeyValue),
}

/// Decides what an attempt finds at a lock.
fn find_target<'a>(claim: &Claim, lock: &Arc<str>, places: &'a [KeyValue], attached: Attached) -> Found<'a> {
    let new = || Target {
        lock: Arc::clone(lock),
        key: layout::place(lock, attached.lease, digits_of(claim.token())),
        place: None,
    };
    let Some(first) = places.first() else { return Found::Free(new()) };
    match Owner::of(&first.value) {
        Owner::Attempt(token, _) if token == *claim.token() => Found::Own(first),
        Owner::Waiter(waiter, ..) if claim.place() == Some(waiter) => {
            Found::Free(Target { lock: Arc::clone(lock), key: first.key.clone(), place: Some(first.clone()) })
        }
        Owner::Attempt(..) | Owner::Waiter(..) => Found::Hindered(first),
    }
}

/// Returns the number that is drawn where the counter stands here.
fn drawn(
    hint: Option<FenceHint>,
    stands: Option<FencingToken>,
    wall: Duration,
) -> Result<Option<FencingToken>, NodeError> {
    let drawn = hint.zip(stands).map(|(hint, stands)| hint.from(stands, wall)).transpose();
    drawn.map_err(|error| failed(NodeErrorKind::WrongData, error.to_string()))
}

/// A counter at its end draws nothing.
fn usable(stands: FencingToken) -> Result<FencingToken, NodeError> {
    if stands < FencingToken::MAX {
        return Ok(stands);
    }
    Err(failed(NodeErrorKind::WrongData, NoNumber::AtEnd.to_string()))
}

fn check_ttl(ttl: Duration) -> Result<(), NodeError> {
    if ttl >= LEAST {
        return Ok(());
    }
    let words =
        format!("etcd keeps nothing for less than {LEAST:?}, and the TTL is {ttl:?}: use a longer one");
    Err(failed(NodeErrorKind::Unsupported, words))
}

fn contended() -> NodeError {
    failed(NodeErrorKind::Busy, "other clients keep changing what the request depends on")
}
