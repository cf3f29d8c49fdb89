//! The places of waiters: nodes like those of holders, which hold nothing yet. Whose turn begins when one goes is decided by
//! `OwnPlaces::gone` of `quorlock::node::places`.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use quorlock::node::places::{OwnPlace, Owner, Role, Waiting};
use quorlock::node::{QueueListing, Queued, Vote};
use quorlock::protocol::{MOST_PLACES, WaiterId};

use crate::client::Answer;
use crate::error::Failure;
use crate::layout::{self, Place, listed, places};
use crate::look::First;
use crate::memory::Stored;
use crate::requests::{Outcome, without_order};
use crate::session::Session;
use crate::wire::{Call, Create, code};

/// A lock is reserved for the first in the queue for at least this long, if its process lives: a turn that it loses costs
/// its place.
const LEAST_TURN: Duration = Duration::from_secs(1);
/// The most waiters that are listed.
const MOST_LISTED: usize = 100;

impl Session {
    /// Gives the waiter a place, or confirms the one that it has.
    pub(crate) async fn enqueue(
        &self,
        lock: &Arc<str>,
        (waiter, since, context): (WaiterId, Duration, &str),
        patience: Duration,
        turn: Duration,
    ) -> Outcome {
        let dir = self.memory.layout.dir(lock);
        self.watch(lock, &dir);
        // A place may be lost, once.
        for _ in 0..3 {
            self.watched.notify_of_refusal(lock);
            let known = self.memory.local.own.lock().waiter(lock, waiter).map(|own| Arc::clone(&own.key));
            let (path, found) = match known {
                Some(path) => (path, self.read(&dir).await?),
                None => {
                    self.enter((lock, &dir), waiter, &Owner::waiter(waiter, since, context), patience).await?
                }
            };
            let Some(at) = found.iter().position(|place| place.path == path) else {
                self.memory.local.own.lock().remove(lock, &*path);
                continue;
            };
            return self.stand(lock, &path, (&found, at), (patience, turn.max(LEAST_TURN))).await;
        }
        Err(Failure::Lost("the place in the queue is lost again and again".into()))
    }

    async fn read(&self, dir: &str) -> Result<Vec<Place>, Failure> {
        let children = self.client.send(&Call::GetChildren { path: dir.to_owned() }).found().await?;
        let Some(children) = children else { return Ok(Vec::new()) };
        let (names, _) = children.children()?;
        Ok(places(dir, names))
    }

    /// Puts a place at the end of the queue. Returns its path, and all places.
    async fn enter(
        &self,
        (lock, dir): (&Arc<str>, &str),
        waiter: WaiterId,
        data: &[u8],
        patience: Duration,
    ) -> Result<(Arc<str>, Vec<Place>), Failure> {
        let create = || {
            let (path, how) = (layout::waiter(dir, waiter, self.id), Create::EphemeralSequential);
            let created = self.client.send(&Call::Create { path, data: data.to_vec(), how });
            (created, self.client.send(&Call::GetChildren { path: dir.to_owned() }))
        };
        let (mut created, mut children) = create();
        let mut put = created.at;
        let mut answer = created.done().await;
        if let Err(Failure::Refused(code::NO_NODE)) = answer {
            self.make(dir);
            (created, children) = create();
            put = created.at;
            answer = created.done().await;
        }
        let answer = answer?;
        self.committed(put, answer.zxid);
        let (path, stat) = answer.created()?;
        let path: Arc<str> = path.into();
        if !layout::is_ordered(&path, &layout::waiter(dir, waiter, self.id)) {
            drop(self.client.send(&Call::Delete { path: path.to_string() }));
            return Err(without_order(dir));
        }
        self.memory.cache.lock().empty.remove(dir);
        let role = Role::Waiter(Waiting::new(waiter, LEAST_TURN));
        let stored = Stored { czxid: stat.czxid, put };
        let own = OwnPlace::new(Arc::clone(&path), role, self.memory.local.now() + patience, stored);
        if !self.memory.keep(lock, own, self.generation) {
            return Err(Failure::Lost("another connection has begun since".into()));
        }
        let children = children.found().await?;
        let names = children.as_ref().map(Answer::children).transpose()?;
        let found = names.map(|(names, _)| places(dir, names)).unwrap_or_default();
        Ok((path, found))
    }

    /// Answers a waiter whose place is the one at `at`.
    async fn stand(
        &self,
        lock: &Arc<str>,
        path: &Arc<str>,
        (found, at): (&[Place], usize),
        (patience, turn): (Duration, Duration),
    ) -> Outcome {
        let before = found.iter().take(at).map(|place| Arc::clone(&place.path)).collect();
        let before = || self.watched.without_gone(lock, before);
        if self.memory.local.stand(lock, path, (patience, turn), before) {
            return Ok(Vote::Free.into());
        }
        let ahead = u32::try_from(at.saturating_sub(1)).unwrap_or(MOST_PLACES).min(MOST_PLACES);
        let holding = match found.first() {
            Some(first) if ahead < 2 => self.first(first).await?.filter(|first| !first.owner.is_waiter()),
            Some(_) | None => None,
        };
        let holding = holding.map(|first| self.holding(lock, &first));
        Ok(Vote::from(Queued::new(ahead, holding)).into())
    }

    async fn first(&self, place: &Place) -> Result<Option<First>, Failure> {
        let (path, watch) = (place.path.to_string(), false);
        let Some(answer) = self.client.send(&Call::GetData { path, watch }).found().await? else {
            return Ok(None);
        };
        let (data, stat) = answer.data()?;
        Ok(Some(First { path: Arc::clone(&place.path), owner: Owner::of(data), stat }))
    }

    /// Deletes the place of a waiter, and tells whether that is the turn of another one.
    pub(crate) async fn leave_queue(&self, lock: &Arc<str>, waiter: WaiterId) -> Outcome {
        let own = self.memory.local.own.lock().waiter(lock, waiter).map(|own| Arc::clone(&own.key));
        let Some(path) = own else { return Ok(Vote::Free.into()) };
        let dir = self.memory.layout.dir(lock);
        let children = self.client.send(&Call::GetChildren { path: dir.clone() });
        let deleted = self.client.send(&Call::Delete { path: path.to_string() });
        let sent = deleted.at;
        let children = children.found().await?;
        let deleted = deleted.found().await?;
        self.memory.local.own.lock().remove(lock, &*path);
        let Some(deleted) = deleted else { return Ok(Vote::Free.into()) };
        self.committed(sent, deleted.zxid);
        let names = children.as_ref().map(Answer::children).transpose()?;
        let others = names.map(|(names, _)| places(&dir, names)).unwrap_or_default();
        let was_first = others.first().is_some_and(|first| first.path == path);
        Ok(if was_first && others.len() > 1 { Vote::Notified } else { Vote::Granted }.into())
    }

    pub(crate) async fn list_waiters(&self, lock: &Arc<str>) -> Outcome {
        let seen = self.look(lock, None).await?;
        let holds = seen.first.is_some_and(|first| !first.owner.is_waiter());
        let waiting: Vec<&Place> = seen.places.iter().skip(usize::from(holds)).collect();
        let asked: Vec<_> = waiting
            .iter()
            .take(MOST_LISTED)
            .map(|place| {
                self.client.send(&Call::GetData { path: place.path.to_string(), watch: false }).found()
            })
            .collect();
        let wall = self.memory.local.clock().wall();
        let mut waiters = Vec::new();
        for (place, answer) in waiting.iter().zip(join_all(asked).await) {
            // It may have gone since.
            let Some(answer) = answer? else { continue };
            waiters.push(listed(answer.data()?.0, place, wall));
        }
        Ok(Vote::from(QueueListing::new(waiters, waiting.len() > MOST_LISTED)).into())
    }
}
