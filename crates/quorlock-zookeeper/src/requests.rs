//! Carries out requests: each is one transaction where what was read last is still so, and a look before it where it is not.
//!
//! A free lock is taken by a transaction that creates a place, and checks that its number is the next one after those that
//! were there: if another client has entered meanwhile, the number is another one, and nothing is done.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::facts::{Concern, Software};
use quorlock::node::places::{Answer, Connection, Owner, Role, Voter, Watched, failed, unknown};
use quorlock::node::{Identity, NodeErrorKind, Request, Vote};
use quorlock::protocol::{Claim, Moment, Token, printable};

use crate::doctor::concerns;
use crate::error::Failure;
use crate::layout::LAST;
use crate::look::{First, Look};
use crate::memory::{Memory, Own};
use crate::session::Session;
use crate::wire::Call;

mod granting;
mod releasing;
mod renewing;
mod storing;

/// How often a request is decided again because other clients have changed what it depends on.
const ATTEMPTS: u32 = 50;

pub(crate) type Outcome = Result<Answer, Failure>;

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

impl Voter for Session {
    type Cluster = Memory;
    type Failure = Failure;

    fn cluster(&self) -> &Arc<Memory> {
        &self.memory
    }

    fn connection(&self) -> &Connection {
        &self.connection
    }

    fn identity(&self) -> Arc<Identity> {
        Arc::clone(&self.identity.lock())
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
                if self.memory.local.is_heard() {
                    // Before it is read whether the place is there.
                    self.watch(target.lock, &target.dir);
                    self.watched.keep(target.lock, self.memory.local.now() + *ttl);
                }
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
            | Request::LogHold { .. }
            | Request::ReadLog { .. }
            | _ => Err(unknown().into()),
        }
    }

    fn watched(&self) -> &Watched<Arc<str>> {
        &self.watched
    }

    /// If the last list of what the session has is recent enough and has its place.
    fn confirmed(&self, own: &Own, ttl: Duration) -> Option<Moment> {
        self.is_listed(own).filter(|listed| *listed)?;
        self.memory.counts_from(ttl).ok()
    }

    async fn delete(&self, own: &Own) -> Result<(), Failure> {
        self.client.send(&Call::Delete { path: own.key.to_string() }).found().await.map(drop)
    }

    async fn leave(&self, is_last: bool) {
        if is_last {
            // What lives with the session is deleted immediately.
            self.close().await;
        } else {
            self.end();
        }
    }

    async fn examine(&self, software: &mut Option<Software>) -> Option<Vec<Concern>> {
        Some(concerns(self, software).await)
    }
}

impl Session {
    fn target<'a>(&self, claim: &'a Claim, fenced: bool) -> Result<Target<'a>, Failure> {
        let nothing = || failed(NodeErrorKind::Unsupported, "a claim of nothing");
        let lock = claim.keys().next().ok_or_else(nothing)?;
        let layout = &self.memory.layout;
        let counter = fenced.then(|| layout.counter(claim.key_prefix(), lock));
        Ok(Target { claim, lock, dir: layout.dir(lock), counter })
    }

    fn check_ttl(&self, ttl: Duration) -> Result<(), Failure> {
        let session = self.memory.local.address.session();
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

    /// Has all changes of the lock reported that come after the requests which were sent before. What is reported later is
    /// later: a member reports a change before it answers anything that shows it.
    pub(crate) fn watch(&self, lock: &Arc<str>, dir: &str) {
        let (is_new, ended) = self.watched.begin(lock, self.memory.local.now());
        for lock in ended {
            drop(self.client.send(&Call::RemoveWatches { path: self.memory.layout.dir(&lock) }));
        }
        if is_new {
            drop(self.client.send(&Call::AddWatch { path: dir.to_owned() }));
        }
    }

    async fn inspect(&self, lock: &Arc<str>, prefix_len: usize) -> Outcome {
        let layout = &self.memory.layout;
        let (dir, path) =
            (layout.dir(lock), layout.counter(lock.get(..prefix_len).unwrap_or_default(), lock));
        if self.memory.local.is_heard() {
            self.watch(lock, &dir);
            self.watched.notify_of_inspection(lock);
        }
        let seen = self.look(lock, Some(&path)).await?;
        // What is no counter says nothing of the holder.
        let counter = seen.counter(&path).ok().flatten().map(|(number, _)| number);
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

/// The error of a lock whose node has given the largest number to a place: the next ones would be in no order.
pub(crate) fn without_order(dir: &str) -> Failure {
    let words = format!(
        "its node `{}` has had {LAST} places, and ZooKeeper numbers no more: leave the lock alone for two minutes, in which \
         ZooKeeper deletes a node that is empty, or delete the node while no client holds the lock",
        printable(dir)
    );
    failed(NodeErrorKind::WrongData, words).into()
}

fn unexpected() -> Failure {
    Failure::Lost("a transaction has other results than were asked for".into())
}
