//! Which history the data have that a connection reaches, and whether it is old enough to vote.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use quorlock::node::{Identity, NodeError};
use quorlock::protocol::Moment;

use super::{ID, Session, list};
use crate::client::Client;
use crate::error::Failure;
use crate::memory::{Grants, Memory, Seen};
use crate::wire::{Call, Create, Stat, code};

/// How many orphans are deleted together.
const TOGETHER: usize = 500;

/// A connection of which the history is not known yet.
pub(super) struct Opened<'a> {
    pub(super) client: Client,
    pub(super) memory: &'a Arc<Memory>,
    pub(super) id: i64,
    pub(super) is_same: bool,
}

/// The note of a history.
pub(super) struct Note {
    pub(super) name: String,
    quarantine: Duration,
    /// How much of it had passed when `young` was made.
    passed: Duration,
    /// For how long `young` lasts.
    part: Duration,
    /// How much of it a client has lived through, in milliseconds.
    observed: Duration,
}

/// What is noted of the age of a history that is too young to vote.
pub(super) struct Aging {
    note: Note,
    version: i32,
}

/// What a connection may vote for.
pub(super) struct Found {
    pub(super) identity: Identity,
    pub(super) zxid: i64,
    pub(super) grants: Grants,
    pub(super) aging: Option<Aging>,
    pub(super) round_trip: Duration,
}

/// A client that lives through part of the time in which a history must not vote notes that for clients that come later: in
/// this number of parts, and more often at the end, when the first of them may vote.
const NOTED: u32 = 8;
const END: Duration = Duration::from_secs(1);
const NOTED_AT_END: Duration = Duration::from_millis(100);

impl Note {
    pub(super) fn of(data: &[u8]) -> Option<Note> {
        let mut words = str::from_utf8(data).ok()?.split(' ');
        let name = words.next().filter(|name| !name.is_empty())?.to_owned();
        let mut number = || words.next()?.parse().ok();
        let [quarantine, passed, part] = [number()?, number()?, number()?].map(Duration::from_secs);
        // Clients of an earlier version note none.
        let observed = number().map_or(Duration::ZERO, Duration::from_millis);
        Some(Note { name, quarantine, passed, part, observed })
    }

    fn text(&self) -> Vec<u8> {
        let [quarantine, passed, part] = [self.quarantine, self.passed, self.part].map(|time| time.as_secs());
        let observed = self.observed.as_millis();
        format!("{} {quarantine} {passed} {part} {observed}", self.name).into_bytes()
    }

    /// How old the history is at least; more than the quarantine need not be known.
    fn age(&self, is_young: bool) -> Duration {
        let passed = self.passed.saturating_add(if is_young { Duration::ZERO } else { self.part });
        passed.max(self.observed).min(self.quarantine)
    }
}

impl Session {
    /// The note of the history has been read, which was asked for then: another client may have lived through more of it.
    pub(super) fn age(&self, note: Note, version: i32, asked: Moment) {
        let mut identity = self.identity.lock();
        if note.observed > identity.age_at(asked) {
            *identity = Arc::new(Identity::new(&*identity.id, asked, note.observed));
        }
        drop(identity);
        let is_young = self.memory.local.seams.guards_restarts() && note.observed < note.quarantine;
        *self.aging.lock() = is_young.then_some(Aging { note, version });
    }

    /// Notes how much of the time in which the history must not vote this client has lived through.
    pub(crate) fn note_age(&self) {
        let mut aging = self.aging.lock();
        let Some(Aging { note, version }) = &mut *aging else { return };
        let age = self.identity.lock().age_at(self.memory.local.now()).min(note.quarantine);
        let part = if age + END < note.quarantine { note.quarantine / NOTED } else { NOTED_AT_END };
        if age < note.quarantine.min(note.observed + part) {
            return;
        }
        note.observed = age;
        let (path, data) = (self.memory.layout.history(), note.text());
        // The change is reported, to this client as well; it fails after one of another client.
        drop(self.client.send(&Call::SetData { path, data, version: *version }));
        *aging = None;
    }
}

impl Opened<'_> {
    /// Reads the history of the data, and begins a new one if there is none, or if these data are older than those that this
    /// client has seen.
    pub(super) async fn history(&self) -> Result<Found, NodeError> {
        let unread = Failure::before_anything_changed;
        let layout = &self.memory.layout;
        let guarded = self.memory.local.seams.guards_restarts();
        for _ in 0..8 {
            let get = |path| self.client.send(&Call::GetData { path, watch: false });
            let asked = self.memory.local.now();
            // In one message: the member catches up with the leader before it reads.
            let alive = self.alive();
            let synced = self.client.send(&Call::Sync { path: layout.history() });
            let watched = self.client.send(&Call::AddWatch { path: layout.history() });
            let (note, young) =
                (get(layout.history()), self.client.send(&Call::Exists { path: layout.young() }));
            let (max_ttl, grants) = (get(layout.max_ttl()), get(layout.grants()));
            let is_alive = self.made(alive).await.map_err(unread)?;
            let zxid = synced.done().await.map_err(unread)?.zxid;
            let round_trip = self.memory.local.now().since(asked);
            watched.done().await.map_err(unread)?;
            let (note, young) = (note.found().await.map_err(unread)?, young.found().await.map_err(unread)?);
            let max_ttl = max_ttl.found().await.map_err(unread)?;
            let max_ttl = max_ttl.as_ref().map(|answer| answer.data()).transpose().map_err(unread)?;
            let grants = grants.found().await.map_err(unread)?;
            let Some(grants) = grants.filter(|_| is_alive) else {
                self.make_roots().await.map_err(unread)?;
                continue;
            };
            let grants = Grants::of(&grants).map_err(unread)?;
            let quarantine = self.compare_max_ttls(max_ttl).await.map_err(unread)?;
            let note = note.as_ref().map(|answer| answer.data()).transpose().map_err(unread)?;
            let seen = self.memory.seen.lock().clone();
            let is_older = zxid < seen.zxid || grants.are_before(seen.grants);
            let known = note.and_then(|(data, _)| Note::of(data)).filter(|known| {
                !(known.name == seen.name && is_older) && (!guarded || known.quarantine >= quarantine)
            });
            let version = note.map(|(_, stat)| stat.version);
            let Some(known) = known else {
                let name = format!("{:016x}", self.memory.local.seams.entropy().next_u64());
                let [passed, part, observed] = [Duration::ZERO; 3];
                self.begin(Note { name, quarantine, passed, part, observed }, version, young.is_some())
                    .await?;
                continue;
            };
            let age = if guarded { known.age(young.is_some()) } else { known.quarantine };
            if young.is_none() && age < known.quarantine {
                self.begin(Note { passed: age, ..known }, version, false).await?;
                continue;
            }
            *self.memory.seen.lock() = Seen { name: known.name.clone(), zxid, grants };
            let identity = Identity::new(format!("{ID}{}", known.name), asked, age);
            let is_young = age < known.quarantine;
            let aging = version.filter(|_| is_young).map(|version| Aging { note: known, version });
            return Ok(Found { identity, zxid, grants, aging, round_trip });
        }
        Err(NodeError::Unresponsive { reason: "other clients keep changing the note of the history".into() })
    }

    /// Asks for the node that keeps the session.
    fn alive(&self) -> crate::client::Sent {
        let path = self.memory.layout.alive(self.id);
        let data = self.memory.local.seams.label().as_bytes().to_vec();
        self.client.send(&Call::Create { path, data, how: Create::Ephemeral })
    }

    /// Whether that node is there; not if those above are missing.
    async fn made(&self, alive: crate::client::Sent) -> Result<bool, Failure> {
        match alive.done().await {
            Ok(_) | Err(Failure::Refused(code::NODE_EXISTS)) => Ok(true),
            Err(Failure::Refused(code::NO_NODE)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    async fn make_roots(&self) -> Result<(), Failure> {
        let create =
            |path| self.client.send(&Call::Create { path, data: Vec::new(), how: Create::Persistent });
        let created: Vec<_> = self.memory.layout.roots().into_iter().map(create).collect();
        for created in created {
            match created.done().await {
                Ok(_) | Err(Failure::Refused(code::NODE_EXISTS)) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Writes the note of a history, which is young for as long as a session lasts that no client keeps alive.
    async fn begin(&self, note: Note, version: Option<i32>, is_young: bool) -> Result<(), NodeError> {
        let layout = &self.memory.layout;
        let unread = Failure::before_anything_changed;
        // What follows is no news.
        self.client.send(&Call::RemoveWatches { path: layout.history() }).done().await.map_err(unread)?;
        let left = note.quarantine.saturating_sub(note.passed);
        let (client, granted) =
            self.memory.another_session(left.saturating_add(Duration::from_secs(1))).await?;
        let part = Duration::from_secs(granted.timeout.as_secs());
        let (path, data) = (layout.history(), Note { part, ..note }.text());
        let write = match version {
            None => Call::Create { path, data, how: Create::Persistent },
            Some(version) => Call::SetData { path, data, version },
        };
        let deletes = is_young.then(|| Call::Delete { path: layout.young() });
        let young = Call::Create { path: layout.young(), data: Vec::new(), how: Create::Ephemeral };
        let calls = [write].into_iter().chain(deletes).chain([young]).collect();
        // Its connection ends here, and it itself when its time has passed. It may fail because of another client.
        client.send(&Call::Multi(calls)).results().await.map(drop).map_err(unread)
    }

    /// Compares the largest `max_ttl` of the clients with ours, and records ours if it is larger. Returns for how long a new
    /// history must not vote.
    async fn compare_max_ttls(&self, recorded: Option<(&[u8], Stat)>) -> Result<Duration, Failure> {
        let (quarantine, larger) = self.memory.local.quarantine(recorded.map(|(data, _)| data));
        if let Some(ours) = larger {
            let (path, data) = (self.memory.layout.max_ttl(), ours.to_vec());
            let write = match recorded {
                None => Call::Create { path, data, how: Create::Persistent },
                Some((_, stat)) => Call::SetData { path, data, version: stat.version },
            };
            match self.client.send(&write).done().await {
                Ok(_) | Err(Failure::Refused(code::NODE_EXISTS | code::BAD_VERSION | code::NO_NODE)) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(quarantine)
    }

    /// Deletes what the session has without anybody knowing, from requests whose outcome was lost, and forgets what it lacks.
    pub(super) async fn reconcile(&self) -> Result<(), Failure> {
        debug_assert!(self.is_same, "a new session has nothing");
        let listed = list(&self.client, self.memory).await?;
        let orphans: Vec<Call> = {
            let mut own = self.memory.local.own.lock();
            own.retain(|own| listed.contains(&*own.key));
            let known: HashSet<&Arc<str>> = own.keys().collect();
            let alive = self.memory.layout.alive(self.id);
            let is_orphan = |path: &&Arc<str>| ***path != *alive && !known.contains(*path);
            let delete = |path: &Arc<str>| Call::Delete { path: path.to_string() };
            listed.iter().filter(is_orphan).map(delete).collect()
        };
        for orphans in orphans.chunks(TOGETHER) {
            let deleted: Vec<_> = orphans.iter().map(|orphan| self.client.send(orphan).found()).collect();
            for deleted in join_all(deleted).await {
                deleted?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_with_the_largest_numbers_is_of_an_age() {
        let most = u64::MAX;
        let note = Note::of(format!("a 9 {most} {most} {most}").as_bytes()).unwrap();
        assert_eq!([false, true].map(|is_young| note.age(is_young)), [Duration::from_secs(9); 2]);
    }
}
