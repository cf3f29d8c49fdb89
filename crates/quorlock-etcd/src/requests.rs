//! Carries out requests: each is one transaction where nothing is in the way, and a look before it where something is.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::places::Owner;
use quorlock::node::{
    Capabilities, Capability, Hints, NodeError, NodeErrorKind, Order, Request, Response, Vote,
};
use quorlock::protocol::{Claim, FencingToken, Moment, NoNumber};
use tonic::Code;

use crate::error::{Failure, failed};
use crate::layout::{self, RESERVED, counter, digits_of};
use crate::leases::{Attached, LEAST};
use crate::session::Session;
use crate::wire::KeyValue;

mod granting;
mod releasing;
mod renewing;

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
    Failure(Failure),
    Error(NodeError),
}

pub(crate) type Outcome = Result<Answer, Fault>;

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Fault {
        Fault::Failure(failure)
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
    pub(crate) async fn execute(self: &Arc<Session>, request: &Request) -> Result<Response, NodeError> {
        capabilities().check(request)?;
        if let Some(key) = request.keys().find(|key| key.starts_with(RESERVED)) {
            let words =
                format!("names that begin with `{RESERVED}` are this library's own, and `{key}` is one");
            return Err(failed(NodeErrorKind::Unsupported, words));
        }
        if let Some(ended) = self.connection.ended() {
            return Err(NodeError::Unreachable { reason: format!("{ended:#}").into() });
        }
        let mut outcome = self.apply(request).await;
        if let Err(Fault::Failure(Failure::Refused(Code::NotFound, _))) = &outcome {
            // A lease had ended, so nothing was done.
            outcome = self.apply(request).await;
        }
        match outcome {
            Ok(Answer { vote, number, from, revision }) => {
                let revision = u64::try_from(revision).ok().and_then(NonZeroU64::new);
                let response =
                    Response::new(vote, Arc::clone(&self.connection.identity)).with_fencing_token(number);
                let response = response.with_store_revision(revision);
                Ok(from.into_iter().fold(response, Response::counting_from))
            }
            Err(Fault::Error(error)) => Err(error),
            Err(Fault::Failure(failure)) => Err(self.note(failure)),
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
                let clock = self.memory.local.clock();
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
                let since = self.memory.local.clock().wall().saturating_sub(*elapsed);
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
        Ok(self.memory.leases.attach(&self.client, self.memory.local.clock(), ttl).await?)
    }

    /// Forgets the lease, if that is what etcd does not know.
    async fn without_ended_lease(&self, outcome: Outcome, attached: Attached) -> Outcome {
        if let Err(Fault::Failure(Failure::Refused(Code::NotFound, _))) = &outcome {
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
            self.watches.notify_of_inspection(lock);
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
