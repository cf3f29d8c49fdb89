//! Carries out requests: each is one transaction where what was read last is still so, and a look before it where it is not.
//!
//! A free lock is taken by a transaction that creates a place, and checks that its number is the next one after those that
//! were there: if another client has entered meanwhile, the number is another one, and nothing is done.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::places::{Owner, Role};
use quorlock::node::{
    Capabilities, Capability, Hints, NodeError, NodeErrorKind, Order, Request, Response, Vote,
};
use quorlock::protocol::{Claim, FencingToken, Moment, NoNumber, Token};

use crate::error::{Failure, failed};
use crate::layout::{Counter, RESERVED};
use crate::look::{First, Look};
use crate::memory::Own;
use crate::session::Session;
use crate::wire::Call;

mod granting;
mod releasing;
mod renewing;
mod storing;

/// What a node of this kind can do. This layout has no place for readers and writers that exclude each other, since its other
/// clients would take a reader for a holder; nor for a lock that outlives the session of its holder.
pub(crate) fn capabilities() -> Capabilities {
    let able = Capabilities::default().with(Capability::Queue);
    let able = able.in_order(Order::Unordered).hinting(Hints::RemovalAndExpiry).durable();
    able.by_consensus().shared_with_others().first_come()
}

/// How often a request is decided again because other clients have changed what it depends on.
const ATTEMPTS: u32 = 50;

/// The answer to a request.
pub(crate) struct Answer {
    vote: Vote,
    number: Option<FencingToken>,
    /// From when the TTL of a grant counts.
    from: Option<Moment>,
    /// The change that created the holder's place.
    czxid: i64,
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
        Answer { vote, number: None, from: None, czxid: 0 }
    }
}

impl Answer {
    fn numbered(self, number: Option<FencingToken>) -> Answer {
        Answer { number, ..self }
    }
}

/// A claim of one lock, and where it is stored.
struct Target<'a> {
    claim: &'a Claim,
    lock: &'a Arc<str>,
    dir: String,
    /// The counter; nothing without fencing.
    counter: Option<String>,
}

/// What a transaction found changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stale {
    Places,
    Counter,
}

/// What was stored.
struct Stood {
    path: Arc<str>,
    czxid: i64,
    /// When it was asked for.
    sent: Moment,
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
        match self.apply(request).await {
            Ok(Answer { vote, number, from, czxid }) => {
                let revision = u64::try_from(czxid).ok().and_then(NonZeroU64::new);
                let response = Response::new(vote, self.identity()).with_fencing_token(number);
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
                let fenced = fence_hint.is_some();
                let done = self.acquire(&self.target(claim, fenced)?, *ttl, *fence_hint).await;
                // If this vote counts, that of a client that comes next does.
                self.note_age();
                done
            }
            Request::Renew { claim, ttl, fencing_token } => {
                let target = self.target(claim, fencing_token.is_some())?;
                self.renew(&target, *ttl, *fencing_token).await
            }
            Request::WriteBack { claim, fencing_token } => {
                self.write_back(&self.target(claim, true)?, *fencing_token).await
            }
            Request::Release { claim } => self.release(&self.target(claim, false)?).await,
            Request::Cancel { claim, linger } => self.cancel(&self.target(claim, false)?, *linger).await,
            Request::Enqueue { key, waiter, elapsed, patience, turn, context, .. } => {
                let since = self.memory.local.clock().wall().saturating_sub(*elapsed);
                self.enqueue(key, (*waiter, since, context), *patience, *turn).await
            }
            Request::LeaveQueue { key, waiter } => self.leave_queue(key, *waiter).await,
            Request::ListWaiters { key } => self.list_waiters(key).await,
            Request::Inspect { key, prefix_len } => self.inspect(key, *prefix_len).await,
            Request::Transfer { .. }
            | Request::Offer { .. }
            | Request::AnnounceWriter { .. }
            | Request::WithdrawWriter { .. }
            | _ => {
                Err(failed(NodeErrorKind::Unsupported, "nodes of this kind do not know this request").into())
            }
        }
    }

    fn target<'a>(&self, claim: &'a Claim, fenced: bool) -> Result<Target<'a>, Fault> {
        let nothing = || failed(NodeErrorKind::Unsupported, "a claim of nothing");
        let lock = claim.keys().next().ok_or_else(nothing)?;
        let layout = &self.memory.layout;
        let counter = fenced.then(|| layout.counter(claim.key_prefix(), lock));
        Ok(Target { claim, lock, dir: layout.dir(lock), counter })
    }

    fn check_ttl(&self, ttl: Duration) -> Result<(), Fault> {
        let session = self.memory.address.session();
        if ttl >= session {
            return Ok(());
        }
        let words = format!(
            "the session of this node lasts {session:?}, and the TTL is {ttl:?}: use a longer one, or a shorter `?session=`"
        );
        Err(failed(NodeErrorKind::Unsupported, words).into())
    }

    fn is_buried(&self, token: &Token) -> bool {
        self.memory.tombs.lock().have(token, self.memory.local.now())
    }

    /// Has all changes of the lock reported that come after the requests which were sent before.
    pub(crate) fn watch(&self, lock: &Arc<str>, dir: &str) {
        let changed = self.watches.begin(dir, lock, self.memory.local.now());
        for path in changed.end {
            drop(self.client.send(&Call::RemoveWatches { path }));
        }
        if changed.begin {
            drop(self.client.send(&Call::AddWatch { path: dir.to_owned() }));
        }
    }

    async fn inspect(&self, lock: &Arc<str>, prefix_len: usize) -> Outcome {
        let layout = &self.memory.layout;
        let (dir, path) =
            (layout.dir(lock), layout.counter(lock.get(..prefix_len).unwrap_or_default(), lock));
        if self.memory.local.is_heard() {
            self.watch(lock, &dir);
            self.watches.notify_of_inspection(&dir);
        }
        let seen = self.look(lock, Some(&path)).await?;
        // What is no counter says nothing of the holder.
        let counter = seen.counter(&path).ok().flatten().map(|(number, _)| number);
        let counter = counter.filter(|counter| *counter > FencingToken::ZERO);
        let Some((first, Owner::Attempt(token, number))) =
            seen.first.as_ref().map(|first| (first, &first.owner))
        else {
            return Ok(Answer::from(Vote::Free).numbered(counter));
        };
        let number = number.or_else(|| token.number()).or(counter);
        Ok(Answer::from(Vote::from(self.holding(lock, first))).numbered(number))
    }
}

/// What an attempt finds at a lock.
enum Found {
    /// Nothing before it. With how many places were ever made, if the lock's node exists.
    Free(Option<i32>),
    /// Its waiter's place is first.
    Place(Arc<str>),
    /// It holds it.
    Own(First),
    /// Another one is first.
    Hindered(First),
}

/// Decides what an attempt finds at a lock.
fn find(claim: &Claim, place: Option<&Own>, look: &Look) -> Found {
    let Some(first) = &look.first else { return Found::Free(look.created) };
    if let Some(place) = place.filter(|place| place.key == first.path) {
        return Found::Place(Arc::clone(&place.key));
    }
    match &first.owner {
        Owner::Attempt(token, _) if token == claim.token() => Found::Own(first.clone()),
        Owner::Attempt(..) | Owner::Waiter(..) => Found::Hindered(first.clone()),
    }
}

/// Whether it is this waiter's turn.
fn is_turn(own: &Own) -> bool {
    matches!(&own.role, Role::Waiter(waiting) if waiting.turn_ends.is_some())
}

/// A counter at its end draws nothing.
fn usable(counter: Counter) -> Result<FencingToken, NodeError> {
    let stands = counter.map_or(FencingToken::ZERO, |(number, _)| number);
    if stands < FencingToken::MAX {
        return Ok(stands);
    }
    Err(failed(NodeErrorKind::WrongData, NoNumber::AtEnd.to_string()))
}

fn contended() -> NodeError {
    failed(NodeErrorKind::Busy, "other clients keep changing what the request depends on")
}

fn unexpected() -> Failure {
    Failure::Lost("a transaction has other results than were asked for".into())
}
