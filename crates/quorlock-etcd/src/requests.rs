//! Carries out requests: each is one transaction where nothing is in the way, and a look before it where something is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::facts::{Concern, Software};
use quorlock::node::places::{Answer, Connection, Failure as _, Own, Owner, Voter, Watched, failed, unknown};
use quorlock::node::{NodeError, NodeErrorKind, Request, Vote};
use quorlock::protocol::{Claim, Moment};
use tonic::Code;

use crate::doctor::concerns;
use crate::error::Failure;
use crate::layout::{self, counter, digits_of};
use crate::leases::{Attached, LEAST};
use crate::own::Stored;
use crate::session::{Memory, Session};
use crate::wire::{Compare, KeyValue, RequestOp, Txn};

mod granting;
mod releasing;
mod renewing;

/// How often a request is decided again because other clients have changed what it depends on.
const ATTEMPTS: usize = 50;

pub(crate) type Outcome = Result<Answer, Failure>;

/// What a granted request stores.
struct Target {
    lock: Arc<str>,
    key: Vec<u8>,
    /// The place that becomes the holder's; `None` for a new one.
    place: Option<KeyValue>,
}

impl Voter for Session {
    type Cluster = Memory;
    type Failure = Failure;

    fn cluster(&self) -> &Arc<Memory> {
        &self.memory
    }

    fn connection(&self) -> &Connection {
        &self.connection
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
                let attached = self.memory.leases.attach_since(self.link(), *ttl, Duration::ZERO).await?;
                let done = self.transfer((from, to), *ttl, *fence_hint, attached).await;
                self.without_ended_lease(done, attached).await
            }
            Request::Renew { claim, ttl, fencing_token } => {
                // Before it is read whether the keys are there. Where they may not be watched, the next renewal notices.
                if self.memory.local.is_heard() {
                    match self.watch(claim.keys()).await {
                        Ok(()) => {
                            let until = self.memory.local.now() + *ttl;
                            claim.keys().for_each(|lock| _ = self.watched.keep(lock, until));
                        }
                        Err(failure) if failure.ends_connection() => return Err(failure),
                        Err(_) => {}
                    }
                }
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
                let since = self.memory.local.clock().wall().saturating_sub(*elapsed);
                self.enqueue(key, (*waiter, since, context), *patience, *turn).await
            }
            Request::LeaveQueue { key, waiter } => self.leave_queue(key, *waiter).await,
            Request::ListWaiters { key } => self.list_waiters(key).await,
            Request::Inspect { key, prefix_len } => self.inspect(key, *prefix_len).await,
            Request::Offer { .. }
            | Request::AnnounceWriter { .. }
            | Request::WithdrawWriter { .. }
            | Request::LogHold { .. }
            | Request::ReadLog { .. }
            | _ => Err(unknown().into()),
        }
    }

    fn watched(&self) -> &Watched<Vec<u8>> {
        &self.watched
    }

    /// If the last heartbeat of its lease is recent enough and has listed its key.
    fn confirmed(&self, own: &Own<Memory>, ttl: Duration) -> Option<Moment> {
        let Stored { class, .. } = own.stored;
        if Duration::from_secs(class) < ttl {
            return None;
        }
        self.memory.leases.last_beat(self.memory.local.clock(), class, ttl, &own.key)
    }

    async fn delete(&self, own: &Own<Memory>) -> Result<(), Failure> {
        let txn = Txn {
            compare: vec![Compare::value_is(own.key.as_slice(), own.stored.value.as_slice())],
            success: vec![RequestOp::delete(own.key.as_slice())],
            failure: Vec::new(),
        };
        self.txn(txn).await.map(drop)
    }

    /// Leases end by themselves.
    async fn leave(&self, _: bool) {
        self.end();
    }

    async fn examine(&self, _: &mut Option<Software>) -> Option<Vec<Concern>> {
        concerns(&self.client, self.memory.local.clock()).await.ok()
    }
}

impl Session {
    async fn attach(&self, ttl: Duration) -> Result<Attached, Failure> {
        check_ttl(ttl)?;
        self.memory.leases.attach(self.link(), ttl).await
    }

    /// Forgets the lease, if that is what etcd does not know.
    async fn without_ended_lease(&self, outcome: Outcome, attached: Attached) -> Outcome {
        if let Err(Failure::Refused(Code::NotFound, _)) = &outcome {
            self.memory.leases.forget(attached).await;
        }
        outcome
    }

    fn wall(&self) -> Duration {
        self.memory.local.clock().wall()
    }

    async fn inspect(self: &Arc<Session>, lock: &Arc<str>, prefix_len: usize) -> Outcome {
        if self.memory.local.is_heard() {
            self.watch([lock].into_iter()).await?;
            self.watched.notify_of_inspection(lock);
        }
        let counter = counter(lock.get(..prefix_len).unwrap_or_default(), lock);
        let seen = self.look([lock].into_iter(), BTreeSet::from([counter]), None).await?;
        // What is no counter says nothing of the holder.
        let counter = seen.counter().ok();
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

fn check_ttl(ttl: Duration) -> Result<(), NodeError> {
    if ttl >= LEAST {
        return Ok(());
    }
    let words =
        format!("etcd keeps nothing for less than {LEAST:?}, and the TTL is {ttl:?}: use a longer one");
    Err(failed(NodeErrorKind::Unsupported, words))
}
