//! Stores the place of an attempt, with the number that it was given, in one transaction.

use std::sync::Arc;

use quorlock::node::NodeErrorKind;
use quorlock::node::places::{OwnPlace, Owner, Role, contended, encode_counter, failed};
use quorlock::protocol::{FencingToken, Moment};

use super::{Stale, Stood, Target, unexpected, without_order};
use crate::error::Failure;
use crate::layout::{Counter, LAST, attempt, numbered, with_parents};
use crate::look::{First, Look};
use crate::memory::{Grants, Stored};
use crate::session::Session;
use crate::wire::{Call, Create, Done, code};

impl Session {
    /// Sets the counter to a number, if it is as it was read.
    fn count(target: &Target<'_>, (number, counter): (Option<FencingToken>, Counter)) -> Option<Call> {
        let (path, data) = (target.counter.clone()?, encode_counter(number?).to_vec());
        Some(match counter {
            Some((_, version)) => Call::SetData { path, data, version },
            None => Call::Create { path, data, how: Create::Persistent },
        })
    }

    /// Carries out a transaction, which ends with what was said of the counter. Returns what its first operations have done,
    /// or what was not as it was read.
    async fn transact(
        &self,
        target: &Target<'_>,
        mut calls: Vec<Call>,
        (number, counter): (Option<FencingToken>, Counter),
    ) -> Result<Result<(Vec<Done>, Moment), Stale>, Failure> {
        let own = calls.len();
        calls.extend(Session::count(target, (number, counter)));
        let (path, at_grants) = (self.memory.layout.grants(), calls.len());
        calls.push(Call::SetData { path, data: Vec::new(), version: -1 });
        let sent = self.client.send(&Call::Multi(calls));
        let at = sent.at;
        let (done, zxid) = sent.results().await?;
        // What has failed because of another operation says so.
        let is_cause = |done: &Done| matches!(done, Done::Failed(number) if !matches!(number, 0 | -2));
        if let Some(cause) = done.iter().position(is_cause) {
            if cause == at_grants {
                return Err(Failure::Lost("what every grant writes is gone".into()));
            }
            return match done.get(cause) {
                Some(Done::Failed(code::NO_NODE | code::BAD_VERSION | code::NODE_EXISTS)) => {
                    Ok(Err(if cause < own { Stale::Places } else { Stale::Counter }))
                }
                Some(Done::Failed(other)) => Err(Failure::of(*other)),
                Some(Done::Created(..) | Done::Set(_) | Done::Nothing) | None => Err(contended().into()),
            };
        }
        self.committed(at, zxid);
        match done.get(at_grants) {
            Some(Done::Set(stat)) => self.granted(Grants::at(stat.version)),
            Some(Done::Created(..) | Done::Nothing | Done::Failed(_)) | None => {
                return Err(unexpected());
            }
        }
        if let (Some(number), Some(path)) = (number, &target.counter) {
            let version = match done.get(own) {
                Some(Done::Set(stat) | Done::Created(_, stat)) => stat.version,
                Some(Done::Nothing | Done::Failed(_)) | None => return Err(unexpected()),
            };
            self.memory.cache.lock().remember_counter(path.clone(), Some((number, version)));
        }
        Ok(Ok((done, at)))
    }

    /// Creates the place of an attempt with this number, if there has been none since that number was read.
    pub(super) async fn create(
        &self,
        target: &Target<'_>,
        (made, misses): (Option<i32>, u32),
        number: Option<FencingToken>,
        counted: (Option<FencingToken>, Counter),
    ) -> Result<Result<Stood, Stale>, Failure> {
        let Target { claim, dir, .. } = target;
        match (made, misses) {
            (Some(_), _) => {}
            // Those above it are there, most of the time.
            (None, 0) => drop(self.client.send(&Call::CreateContainer { path: dir.clone() })),
            (None, _) => self.make(dir),
        }
        let path = attempt(dir, claim.token());
        let check = Call::Check { path: next(dir, &path, made.unwrap_or(0))?, version: -1 };
        let data = Owner::attempt(claim.token(), number);
        let create = Call::Create { path, data, how: Create::EphemeralSequential };
        self.stored(target, vec![create, check], 0, counted).await
    }

    /// Asks for the node of a lock and those above it, which the server deletes when they have been empty for a while.
    pub(crate) fn make(&self, dir: &str) {
        let base = self.memory.layout.base().len();
        for path in with_parents(dir).into_iter().filter(|path| path.len() > base) {
            drop(self.client.send(&Call::CreateContainer { path }));
        }
    }

    /// Carries out a transaction of which the operation at `at` creates the place.
    async fn stored(
        &self,
        target: &Target<'_>,
        calls: Vec<Call>,
        at: usize,
        counted: (Option<FencingToken>, Counter),
    ) -> Result<Result<Stood, Stale>, Failure> {
        let (done, sent) = match self.transact(target, calls, counted).await? {
            Ok(done) => done,
            Err(stale) => return Ok(Err(stale)),
        };
        let Some(Done::Created(path, stat)) = done.into_iter().nth(at) else {
            return Err(unexpected());
        };
        self.memory.cache.lock().empty.remove(&target.dir);
        Ok(Ok(Stood { path: path.into(), czxid: stat.czxid, sent }))
    }

    /// Makes the place of a waiter that of the attempt: it is the first.
    pub(super) async fn take(
        &self,
        target: &Target<'_>,
        path: Arc<str>,
        counted: (Option<FencingToken>, Counter),
    ) -> Result<Result<Stood, Stale>, Failure> {
        let taken = self.rewrite(target, Arc::clone(&path), -1, counted).await?;
        if let Err(Stale::Places) = taken {
            // It is lost.
            self.memory.local.own.lock().remove(target.lock, &*path);
        }
        Ok(taken)
    }

    /// Writes an attempt and its number into a place.
    async fn rewrite(
        &self,
        target: &Target<'_>,
        path: Arc<str>,
        version: i32,
        (number, counter): (Option<FencingToken>, Counter),
    ) -> Result<Result<Stood, Stale>, Failure> {
        let data = Owner::attempt(target.claim.token(), number);
        let write = Call::SetData { path: path.to_string(), data, version };
        let (done, sent) = match self.transact(target, vec![write], (number, counter)).await? {
            Ok(done) => done,
            Err(stale) => return Ok(Err(stale)),
        };
        let Some(Done::Set(stat)) = done.first() else { return Err(unexpected()) };
        Ok(Ok(Stood { path, czxid: stat.czxid, sent }))
    }

    /// Gives another number to an attempt that holds the lock.
    pub(super) async fn give_number(
        &self,
        target: &Target<'_>,
        first: &First,
        counted: (Option<FencingToken>, Counter),
    ) -> Result<Result<Stood, Stale>, Failure> {
        if counted.0.is_some() {
            return self.rewrite(target, Arc::clone(&first.path), first.stat.version, counted).await;
        }
        let sent = self.memory.local.now();
        Ok(Ok(Stood { path: Arc::clone(&first.path), czxid: first.stat.czxid, sent }))
    }

    /// Replaces the place of an attempt of ours that does not live with this session, if no other client waits behind it.
    pub(super) async fn replace(
        &self,
        target: &Target<'_>,
        first: &First,
        look: Option<&Look>,
        (number, counter): (Option<FencingToken>, Counter),
    ) -> Result<Result<Stood, Stale>, Failure> {
        let made = look.filter(|look| look.places.len() == 1).and_then(|look| look.created);
        let Some(made) = made else {
            let words = "an old place of this attempt, from a session that has ended, is still there, and others wait behind it";
            return Err(failed(NodeErrorKind::Busy, words).into());
        };
        let delete = Call::Delete { path: first.path.to_string() };
        let path = attempt(&target.dir, target.claim.token());
        let check = Call::Check { path: next(&target.dir, &path, made)?, version: -1 };
        let drawn = match &first.owner {
            Owner::Attempt(_, drawn) => *drawn,
            Owner::Waiter(..) => None,
        };
        let data = Owner::attempt(target.claim.token(), number.or(drawn));
        let create = Call::Create { path, data, how: Create::EphemeralSequential };
        self.stored(target, vec![delete, create, check], 1, (number, counter)).await
    }

    /// Remembers what was stored.
    pub(super) fn keep(&self, target: &Target<'_>, stood: Stood, until: Moment) -> Result<(), Failure> {
        let stored = Stored { czxid: stood.czxid, put: stood.sent };
        let own = OwnPlace::new(stood.path, Role::Holder(target.claim.token().clone()), until, stored);
        if self.memory.keep(target.lock, own, self.generation) {
            return Ok(());
        }
        Err(Failure::Lost("another connection has begun since".into()))
    }
}

/// Returns the name that the next place with this path will have, which shows that no other has come before. With the largest
/// number it would not.
fn next(dir: &str, path: &str, made: i32) -> Result<String, Failure> {
    if made == LAST { Err(without_order(dir)) } else { Ok(numbered(path, made)) }
}
