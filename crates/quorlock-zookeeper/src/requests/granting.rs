//! Gives a lock to an attempt, and its numbers.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::Vote;
use quorlock::node::places::{Answer, Owner, contended, drawn};
use quorlock::protocol::{FenceHint, FencingToken};

use super::{ATTEMPTS, Found, Outcome, Target, find, is_turn};
use crate::error::Failure;
use crate::layout::stands;
use crate::look::Look;
use crate::session::Session;
use crate::wire::Call;

impl Session {
    pub(super) async fn acquire(
        &self,
        target: &Target<'_>,
        ttl: Duration,
        hint: Option<FenceHint>,
    ) -> Outcome {
        self.check_ttl(ttl)?;
        let Target { claim, lock, dir, counter: path } = target;
        let (mut looked, mut misses): (Option<Look>, u32) = (None, 0);
        for _ in 0..ATTEMPTS {
            if self.is_buried(claim.token()) {
                return Ok(Vote::Free.into());
            }
            self.watched.notify_of_refusal(lock);
            let counter = match (path, &looked) {
                (None, _) => Some(None),
                (Some(path), Some(look)) => Some(look.counter(path)?),
                (Some(path), None) => self.memory.cache.lock().counters.get(path).copied(),
            };
            let place =
                claim.place().and_then(|waiter| self.memory.local.own.lock().waiter(lock, waiter).cloned());
            let found = match (&looked, &place) {
                (Some(look), _) => Some(find(claim, place.as_ref(), look)),
                (None, Some(own)) => is_turn(own).then_some(Found::Place(Arc::clone(&own.key))),
                (None, None) => self.memory.cache.lock().empty.get(dir).map(|made| Found::Free(Some(*made))),
            };
            let (Some(found), Some(counter)) = (found, counter) else {
                match (path, &place) {
                    (Some(path), Some(own)) if is_turn(own) && looked.is_none() => {
                        self.read_counter(path).await?;
                    }
                    // A refusal must not be old.
                    _ if self.watched.has(lock) => looked = Some(self.look(lock, path.as_deref()).await?),
                    _ => looked = Some(self.glance(lock, path.as_deref()).await?),
                }
                continue;
            };
            let next = drawn(hint, stands(counter), self.memory.local.clock().wall())?;
            let stood = match found {
                Found::Free(made) => {
                    let stood = self.create(target, (made, misses), next, (next, counter)).await?;
                    misses += 1;
                    stood
                }
                Found::Place(path) => self.take(target, path, (next, counter)).await?,
                Found::Own(first) if first.stat.owner == self.id => {
                    self.give_number(target, &first, (next, counter)).await?
                }
                Found::Own(first) => self.replace(target, &first, looked.as_ref(), (next, counter)).await?,
                Found::Hindered(first) => {
                    if !self.watched.has(lock) {
                        // From now on removals are reported; so what was read may be old.
                        self.watch(lock, dir);
                        looked = None;
                        self.forget(target);
                        continue;
                    }
                    return Ok(Answer::from(self.refusal(lock, &first)).numbered(Some(stands(counter))));
                }
            };
            if let Ok(stood) = stood {
                let (czxid, known) =
                    (stood.czxid, self.memory.local.own.lock().holder(lock, claim.token()).cloned());
                let until = known.map_or(self.memory.local.now() + ttl, |known| known.until);
                self.keep(target, stood, until)?;
                let from = Some(self.memory.counts_from(ttl)?);
                return Ok(Answer { vote: Vote::Granted, number: next, from, revision: czxid });
            }
            looked = None;
            self.forget(target);
        }
        Err(contended().into())
    }

    /// Forgets what was read of the lock.
    pub(super) fn forget(&self, target: &Target<'_>) {
        let mut cache = self.memory.cache.lock();
        cache.empty.remove(&target.dir);
        if let Some(counter) = &target.counter {
            cache.counters.remove(counter);
        }
    }

    /// Reads a counter into the cache.
    async fn read_counter(&self, path: &str) -> Result<(), Failure> {
        let found = self.client.send(&Call::GetData { path: path.to_owned(), watch: false }).found().await?;
        let counter = match &found {
            Some(answer) => answer.data()?,
            None => (&[][..], crate::wire::Stat::default()),
        };
        let counter = crate::look::counter(path, found.is_some().then_some((counter.0, counter.1.version)))?;
        self.memory.cache.lock().remember_counter(path.to_owned(), counter);
        Ok(())
    }

    /// It is the turn of a waiter of this process: reads what its attempt will need. Another holder has raised the counter.
    pub(crate) fn prefetch(self: &Arc<Session>, lock: &str) {
        let path = self.memory.layout.counter(self.memory.local.seams.key_prefix(), lock);
        self.memory.cache.lock().counters.remove(&path);
        let session = Arc::clone(self);
        tokio::spawn(async move { drop(session.read_counter(&path).await) });
    }

    pub(super) async fn write_back(&self, target: &Target<'_>, number: FencingToken) -> Outcome {
        let Target { claim, lock, counter: path, .. } = target;
        for _ in 0..ATTEMPTS {
            let look = self.look(lock, path.as_deref()).await?;
            let counter = path.as_ref().map(|path| look.counter(path)).transpose()?.flatten();
            let Some(first) = &look.first else { return Ok(Vote::Free.into()) };
            match &first.owner {
                Owner::Waiter(..) => return Ok(Vote::Free.into()),
                Owner::Attempt(token, _) if token != claim.token() => {
                    return Ok(self.refusal(lock, first).into());
                }
                Owner::Attempt(..) => {}
            }
            if stands(counter) >= number {
                return Ok(Answer::from(Vote::FenceAhead).numbered(Some(stands(counter))));
            }
            if self.give_number(target, first, (Some(number), counter)).await?.is_ok() {
                return Ok(Answer::from(Vote::Granted).numbered(Some(number)));
            }
            self.forget(target);
        }
        Err(contended().into())
    }
}
