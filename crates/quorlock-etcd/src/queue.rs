//! The places of waiters: keys like those of holders, which hold nothing yet. Whose turn begins when one goes is decided by
//! `OwnPlaces::gone` of `quorlock::node::places`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::places::{OwnPlace, Owner, Role, Waiting};
use quorlock::node::{QueueListing, Queued, Vote};
use quorlock::protocol::{MOST_PLACES, WaiterId};
use tonic::Code;

use crate::error::Failure;
use crate::layout::{self, is_place, listed, places};
use crate::leases::Beat;
use crate::own::Stored;
use crate::requests::Outcome;
use crate::session::Session;
use crate::wire::{Compare, KeyValue, Range, RequestOp, Txn};

/// A lock is reserved for the first in the queue for at least this long, if its process lives: a turn that it loses costs
/// its place.
const LEAST_TURN: Duration = Duration::from_secs(1);
/// The most waiters that are listed.
const MOST_LISTED: usize = 100;

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
                    let leases = &self.memory.leases;
                    let life = Duration::from_secs(own.stored.class);
                    let put = (own.key.as_slice(), own.stored.put);
                    if leases.beat(self.link(), own.stored.class, life, put).await? == Beat::Gone {
                        self.memory.local.own.lock().remove(lock, &own.key);
                        continue;
                    }
                    let seen = self.look([lock].into_iter(), BTreeSet::new(), None).await?;
                    (own.key, seen.locks.into_iter().next().map(|(_, places)| places).unwrap_or_default())
                }
                None => self.enter(lock, (waiter, since, context), patience).await?,
            };
            let Some(at) = found.iter().position(|place| place.key == key) else {
                self.memory.local.own.lock().remove(lock, &key);
                continue;
            };
            return self.stand(lock, &key, (&found, at), (patience, turn.max(LEAST_TURN))).await;
        }
        Err(Failure::Lost("the place in the queue is lost again and again".into()))
    }

    /// Puts a place at the end of the queue. Returns its key, and all places.
    async fn enter(
        &self,
        lock: &Arc<str>,
        (waiter, since, context): (WaiterId, Duration, &str),
        patience: Duration,
    ) -> Result<(Vec<u8>, Vec<KeyValue>), Failure> {
        // The lease must outlive the pauses between two requests of a waiter.
        let patience = patience.max(crate::leases::LEAST);
        let attached = self.memory.leases.attach(self.link(), patience).await?;
        let key = layout::place(lock, attached.lease, waiter.to_string().as_bytes());
        let value = Owner::waiter(waiter, since, context);
        let (start, end) = places(lock);
        let success = vec![
            RequestOp::put(key.as_slice(), value.as_slice(), attached.lease),
            RequestOp::range(Range::by_creation(start, end, 0)),
        ];
        let put = self.txn(Txn { success, ..Txn::default() }).await;
        if let Err(Failure::Refused(Code::NotFound, _)) = &put {
            self.memory.leases.forget(attached).await;
        }
        let put = put?;
        let found: Vec<KeyValue> =
            put.range(1).iter().filter(|kv| is_place(lock, &kv.key)).cloned().collect();
        let created = found.iter().find(|kv| kv.key == key).map_or(put.revision(), |kv| kv.create_revision);
        let now = self.memory.local.now();
        let role = Role::Waiter(Waiting::new(waiter, LEAST_TURN));
        let stored = Stored { value, created, class: attached.class, from: attached.from, put: now };
        let own = OwnPlace::new(key.clone(), role, now + patience, stored);
        self.memory.local.put(lock, own);
        Ok((key, found))
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
