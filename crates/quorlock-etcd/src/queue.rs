//! The places of waiters: keys like those of holders, which hold nothing yet. Whose turn begins when one goes is decided by
//! `OwnPlaces::gone` of `quorlock::node::places`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::places::{Own, OwnPlace, Owner, Role, Voter, Waiting, contended};
use quorlock::node::{QueueListing, Queued, Vote};
use quorlock::protocol::{MOST_PLACES, WaiterId};
use tonic::Code;

use crate::error::Failure;
use crate::layout::{self, is_place, listed, lock_of, places};
use crate::leases::{Beat, Listed};
use crate::own::Stored;
use crate::requests::Outcome;
use crate::session::{Memory, Session};
use crate::wire::{Compare, KeyValue, Range, RequestOp, Txn};

/// A lock is reserved for the first in the queue for at least this long, if its process lives: a turn that it loses costs
/// its place.
const LEAST_TURN: Duration = Duration::from_secs(1);
/// The most waiters that are listed.
const MOST_LISTED: usize = 100;
/// The most keys that are asked about after a list of those on a lease.
const MOST_STRAYS: usize = 64;

impl Session {
    /// Gives the waiter a place, or confirms the one that it has.
    pub(crate) async fn enqueue(
        self: &Arc<Session>,
        lock: &Arc<str>,
        (waiter, since, context): (WaiterId, Duration, &str),
        patience: Duration,
        turn: Duration,
    ) -> Outcome {
        self.watch([lock].into_iter()).await?;
        // A place may be lost, once.
        for _ in 0..3 {
            self.watched.notify_of_refusal(lock);
            let known = self.memory.local.own.lock().waiter(lock, waiter).cloned();
            let (key, found) = match known {
                Some(own) => {
                    if self.beat(&own, Duration::from_secs(own.stored.class)).await? == Beat::Gone {
                        self.memory.local.own.lock().remove(lock, &own.key);
                        continue;
                    }
                    let seen = self.look([lock].into_iter(), BTreeSet::new(), None).await?;
                    (own.key, seen.locks.into_iter().next().map(|(_, places)| places).unwrap_or_default())
                }
                None => match self.enter(lock, (waiter, since, context), patience).await? {
                    Some(entered) => entered,
                    None => continue,
                },
            };
            let place = found.iter().enumerate().find(|(_, place)| place.key == key);
            let Some((at, created)) = place.map(|(at, place)| (at, place.create_revision)) else {
                self.memory.local.own.lock().remove(lock, &key);
                continue;
            };
            self.memory.local.own.lock().change(lock, &key, |own| own.stored.created = created);
            return self.stand(lock, &key, (&found, at), (patience, turn.max(LEAST_TURN))).await;
        }
        Err(Failure::Lost("the place in the queue is lost again and again".into()))
    }

    /// Puts a place at the end of the queue. Returns its key, and all places; or `None` if another request has given the waiter
    /// one in the meantime.
    async fn enter(
        &self,
        lock: &Arc<str>,
        (waiter, since, context): (WaiterId, Duration, &str),
        patience: Duration,
    ) -> Result<Option<(Vec<u8>, Vec<KeyValue>)>, Failure> {
        let local = &self.memory.local;
        // The lease must outlive the pauses between two requests of a waiter.
        let patience = patience.max(crate::leases::LEAST);
        let attached = self.memory.leases.attach(self.link(), patience).await?;
        if local.own.lock().waiter(lock, waiter).is_some() {
            return Ok(None);
        }
        // No place has the key of an earlier one, which the watches of others know as gone.
        let digits = format!("{:016x}", local.seams.entropy().next_u64());
        let key = layout::place(lock, attached.lease, digits.as_bytes());
        let value = Owner::waiter(waiter, since, context);
        let (start, end) = places(lock);
        let success = vec![
            RequestOp::put(key.as_slice(), value.as_slice(), attached.lease),
            RequestOp::range(Range::by_creation(start, end, 0)),
        ];
        let (role, now) = (Role::Waiter(Waiting::new(waiter, LEAST_TURN)), local.now());
        let stored =
            Stored { value, created: i64::MAX, class: attached.class, from: attached.from, put: now };
        let own = OwnPlace::new(key.clone(), role, now + patience, stored);
        // Before there is an answer, which may be lost: the lease lives on for others, and the place would, too.
        local.put(lock, own.clone());
        let put = self.txn(Txn { success, ..Txn::default() }).await;
        if let Err(failure) = &put {
            if !matches!(failure, Failure::Broken(_) | Failure::Lost(_) | Failure::Silent(_)) {
                local.own.lock().remove(lock, &key);
            }
            if failure.code() == Some(Code::NotFound) {
                self.memory.leases.forget(attached).await;
            }
        }
        let put = put?;
        let now = local.now();
        local.own.lock().change(lock, &key, |own| own.stored.put = now);
        if local.own.lock().by_key(lock, &key).is_none() {
            // The waiter has left meanwhile, or has another place.
            Voter::delete(self, &own).await?;
            return Err(contended().into());
        }
        let found = put.range(1).iter().filter(|kv| is_place(lock, &kv.key)).cloned().collect();
        Ok(Some((key, found)))
    }

    /// Returns what a heartbeat says of a place of ours.
    pub(crate) async fn beat(&self, own: &Own<Memory>, life: Duration) -> Result<Beat, Failure> {
        let known = (own.key.as_slice(), own.stored.put);
        let (beat, listed) = self.memory.leases.beat(self.link(), own.stored.class, life, known).await?;
        if let Some(listed) = listed
            && let Err(failure) = self.delete_strays(&listed).await
        {
            drop(self.connection.note(failure));
        }
        Ok(beat)
    }

    /// Deletes the places of waiters among these keys of our leases that belong to no waiter: what a request has created that was
    /// given up before a member carried it out.
    async fn delete_strays(&self, listed: &Listed) -> Result<(), Failure> {
        let unknown: Vec<Vec<u8>> = {
            let own = self.memory.local.own.lock();
            let is_unknown = |key: &Vec<u8>| lock_of(key).is_some_and(|lock| own.by_key(lock, key).is_none());
            listed.iter().filter(|key| is_unknown(key)).take(MOST_STRAYS).cloned().collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let success = unknown.iter().map(|key| RequestOp::range(Range::of(key.as_slice()))).collect();
        let found = self.txn(Txn { success, ..Txn::default() }).await?;
        for place in (0..unknown.len()).filter_map(|at| found.range(at).first()) {
            // That of a holder may be of a request which is not answered yet, and which a cancellation would undo.
            if Owner::of(&place.value).is_waiter() {
                let compare = vec![Compare::changed_at(place.key.as_slice(), place.mod_revision)];
                let success = vec![RequestOp::delete(place.key.as_slice())];
                self.txn(Txn { compare, success, failure: Vec::new() }).await?;
            }
        }
        Ok(())
    }

    /// Answers a waiter whose place is the one at `at`.
    async fn stand(
        &self,
        lock: &Arc<str>,
        key: &Vec<u8>,
        (found, at): (&[KeyValue], usize),
        (patience, turn): (Duration, Duration),
    ) -> Outcome {
        let before = found.iter().take(at).map(|place| place.key.clone()).collect();
        let before = || self.watched.without_gone(lock, before);
        if self.memory.local.stand(lock, key, (patience, turn), before) {
            return Ok(Vote::Free.into());
        }
        let ahead = u32::try_from(at.saturating_sub(1)).unwrap_or(MOST_PLACES).min(MOST_PLACES);
        let holding = match found.first() {
            Some(first) if ahead < 2 && !Owner::of(&first.value).is_waiter() => {
                Some(self.holding(lock, first).await?)
            }
            Some(_) | None => None,
        };
        Ok(Vote::from(Queued::new(ahead, holding)).into())
    }

    /// Deletes the place of a waiter, and tells whether that is the turn of another one.
    pub(crate) async fn leave_queue(&self, lock: &Arc<str>, waiter: WaiterId) -> Outcome {
        let Some(own) = self.memory.local.own.lock().waiter(lock, waiter).cloned() else {
            return Ok(Vote::Free.into());
        };
        let (start, end) = places(lock);
        let txn = Txn {
            compare: vec![Compare::value_is(own.key.as_slice(), own.stored.value.as_slice())],
            success: vec![
                RequestOp::range(Range { keys_only: true, ..Range::by_creation(start, end, 16) }),
                RequestOp::delete(own.key.as_slice()),
            ],
            failure: Vec::new(),
        };
        let answer = self.txn(txn).await?;
        self.memory.local.own.lock().remove(lock, &own.key);
        if !answer.succeeded {
            return Ok(Vote::Free.into());
        }
        let mut others = answer.range(0).iter().filter(|kv| is_place(lock, &kv.key));
        let was_first = others.next().is_some_and(|first| first.key == own.key);
        Ok(if was_first && others.next().is_some() { Vote::Notified } else { Vote::Granted }.into())
    }

    pub(crate) async fn list_waiters(&self, lock: &Arc<str>) -> Outcome {
        let seen = self.look([lock].into_iter(), BTreeSet::new(), None).await?;
        let found = seen.locks.into_iter().next().map(|(_, places)| places).unwrap_or_default();
        let holds = found.first().is_some_and(|first| !Owner::of(&first.value).is_waiter());
        let mut waiting = found.iter().skip(usize::from(holds));
        let wall = self.memory.local.clock().wall();
        let waiters = waiting.by_ref().take(MOST_LISTED).map(|place| listed(place, wall)).collect();
        Ok(Vote::from(QueueListing::new(waiters, waiting.next().is_some())).into())
    }
}
