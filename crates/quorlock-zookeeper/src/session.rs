//! A connection that may vote: the session that it continues, and which history the data have.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use quorlock::node::places::{CALL_LIMIT, CONNECT_LIMIT, Connection, Local, Member, Watched};
use quorlock::node::{Identity, NodeError, Reason};
use quorlock::runtime::{Mutex, within};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::AbortHandle;

use crate::client::{Change, Client, Event, Granted, Wanted};
use crate::error::Failure;
use crate::layout::{parent, sequence};
use crate::memory::{Grants, Life, Memory, Ticks};
use crate::proof::Proof;
use crate::wire::{Call, Create, LONGEST};

use history::{Aging, Found, Note, Opened};

mod history;
mod ticks;

/// How many changes wait to be passed on, before the connection is read no further.
const MOST_EVENTS: usize = 64;
/// Begins the name of a history, as answers have it.
const ID: &str = "zookeeper:";

/// A connection that may vote.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) memory: Arc<Memory>,
    pub(crate) connection: Connection,
    pub(crate) watched: Watched<Arc<str>>,
    /// The number of the session.
    pub(crate) id: i64,
    /// Which of the node's connections this is.
    pub(crate) generation: u64,
    zxid: AtomicI64,
    /// How often a lock has been granted, by any client.
    grants: Mutex<Grants>,
    /// While the history is too young to vote: what is noted of its age.
    aging: Mutex<Option<Aging>>,
    /// The history, and how old it is at least.
    pub(crate) identity: Mutex<Arc<Identity>>,
    /// How often the note of the history was reported to have changed, since what reads it has begun.
    news: AtomicUsize,
    /// Held by the request that lists what the session has.
    pub(crate) listing: tokio::sync::Mutex<()>,
    /// Listens, and keeps the session.
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Session {
    /// Connects to a member, continues the session of the process or begins one, and reads which history the data have.
    ///
    /// # Errors
    ///
    /// Why it cannot vote.
    pub(crate) async fn open(memory: &Arc<Memory>, member: &Member) -> Result<Arc<Session>, NodeError> {
        let Local { address, seams, .. } = &memory.local;
        let (limit, connect) =
            (call_limit(address.session(), seams.node_timeout()), memory.local.connect_limit());
        let known = *memory.ticks.lock();
        let ticks = match known {
            Some(ticks) => ticks,
            None => in_time(memory, member, connect, Ticks::ask(address, member, memory)).await?,
        };
        ticks.allow(address.session())?;
        *memory.ticks.lock() = Some(ticks);
        let (events, heard) = channel(MOST_EVENTS);
        let wants = |old| (Wanted { old, timeout: address.session() }, limit);
        let old = memory.life.lock().as_ref().map(|life| life.granted.clone());
        let mut sent = memory.local.now();
        let opening = Client::connect(address, member, seams, wants(old.clone()), events.clone());
        let (mut client, mut granted) = in_time(memory, member, connect, opening).await?;
        if granted.id == 0 {
            // It has ended.
            memory.forget();
            sent = memory.local.now();
            let opening = Client::connect(address, member, seams, wants(None), events);
            (client, granted) = in_time(memory, member, connect, opening).await?;
        }
        let answered = memory.local.now();
        let is_same = old.as_ref().is_some_and(|old| old.id == granted.id);
        let id = granted.id;
        let pause = ticks.pause(granted.timeout);
        let generation = memory.connected((granted, is_same), (sent, answered), ticks);
        let opened = Opened { client, memory, id, is_same };
        let Found { identity, zxid, grants, aging, round_trip } = opened.history().await?;
        if is_same {
            opened.reconcile().await.map_err(Failure::before_anything_changed)?;
        }
        let client = opened.client;
        let user = address.members.user(seams);
        let connection = Connection::new(identity, round_trip, user);
        let identity = Mutex::new(Arc::clone(&connection.identity));
        let session = Arc::new(Session {
            client,
            memory: Arc::clone(memory),
            connection,
            watched: Watched::default(),
            id,
            generation,
            zxid: AtomicI64::new(zxid),
            grants: Mutex::new(grants),
            aging: Mutex::new(aging),
            identity,
            news: AtomicUsize::new(0),
            listing: tokio::sync::Mutex::default(),
            tasks: Mutex::default(),
        });
        let listening = tokio::spawn(listen(Arc::downgrade(&session), heard));
        let keeping = tokio::spawn(keep(Arc::downgrade(&session), pause));
        *session.tasks.lock() = vec![listening.abort_handle(), keeping.abort_handle()];
        Ok(session)
    }

    /// Records that a write was committed which was sent at this moment.
    pub(crate) fn committed(&self, sent: quorlock::protocol::Moment, zxid: i64) {
        self.zxid.fetch_max(zxid, Ordering::Relaxed);
        let answered = self.memory.local.now();
        if let Some(life) = &mut *self.memory.life.lock()
            && life.generation == self.generation
        {
            life.proof.committed(sent, answered);
        }
    }

    /// Records what it has seen, for the connections after it.
    pub(crate) fn end(&self) {
        self.tasks.lock().drain(..).for_each(|task| task.abort());
        let mut seen = self.memory.seen.lock();
        seen.zxid = seen.zxid.max(self.zxid.load(Ordering::Relaxed));
        seen.grants = seen.grants.later(*self.grants.lock());
    }

    /// Records that a lock has been granted, or that another client has been seen to get one.
    pub(crate) fn granted(&self, grants: Grants) {
        let mut known = self.grants.lock();
        *known = known.later(grants);
    }

    /// Ends the session too: what lives with it is deleted immediately.
    pub(crate) async fn close(&self) {
        self.end();
        self.memory.forget();
        self.client.clone().close().await;
    }

    /// Passes on what the server reports. Waits for no answer, since none is read meanwhile.
    fn hear(self: &Arc<Session>, event: Event) {
        if event.path == self.memory.layout.history() {
            // One reader is enough for any number of reports.
            if self.news.fetch_add(1, Ordering::SeqCst) == 0 {
                tokio::spawn(Arc::clone(self).reread_all());
            }
            return;
        }
        let Event { change, path } = event;
        let lock = sequence(&path).and_then(|_| self.memory.layout.lock(parent(&path)));
        let Some(lock) = lock.map(Arc::from) else { return };
        let gone: Vec<Arc<str>> = (change == Change::Deleted).then(|| path.into()).into_iter().collect();
        if self.memory.local.changed(&self.watched, &lock, &gone) {
            self.prefetch(&lock);
        }
    }

    /// Reads the note of the history again, until it is newer than the last report.
    async fn reread_all(self: Arc<Session>) {
        loop {
            let known = self.news.load(Ordering::SeqCst);
            self.reread().await;
            let is_last = self.news.compare_exchange(known, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
            if is_last || self.connection.ended().is_some() {
                return;
            }
        }
    }

    /// Reads the note of the history again, and ends the connection if it is that of another one.
    async fn reread(&self) {
        let asked = self.memory.local.now();
        let note = Call::GetData { path: self.memory.layout.history(), watch: false };
        let note = match self.client.send(&note).found().await {
            Ok(note) => note,
            Err(failure) => return drop(self.connection.note(failure)),
        };
        let note = note.and_then(|answer| {
            let (data, stat) = answer.data().ok()?;
            Some((Note::of(data)?, stat.version))
        });
        match note {
            Some((note, version)) if Some(&*note.name) == self.connection.identity.id.strip_prefix(ID) => {
                self.age(note, version, asked);
            }
            Some(_) | None => self.connection.stop(disconnected("another history has begun")),
        }
    }

    /// Keeps the session, by a write.
    async fn beat(&self) -> Result<(), Failure> {
        let path = self.memory.layout.alive(self.id);
        let (data, version) = (self.memory.local.seams.label().as_bytes().to_vec(), -1);
        let beat = self.client.send(&Call::SetData { path: path.clone(), data: data.clone(), version });
        let grants = self.client.send(&Call::GetData { path: self.memory.layout.grants(), watch: false });
        let sent = beat.at;
        if let Some(grants) = grants.found().await? {
            self.granted(Grants::of(&grants)?);
        }
        if let Some(answer) = beat.found().await? {
            self.committed(sent, answer.zxid);
            return Ok(());
        }
        // Somebody has deleted it.
        let create = self.client.send(&Call::Create { path, data, how: Create::Ephemeral });
        let sent = create.at;
        let answer = create.done().await?;
        self.committed(sent, answer.zxid);
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.tasks.lock().drain(..).for_each(|task| task.abort());
    }
}

/// Takes the events of a connection, until it ends.
async fn listen(session: Weak<Session>, mut events: Receiver<Event>) {
    while let Some(event) = events.recv().await {
        match session.upgrade() {
            Some(session) => session.hear(event),
            None => return,
        }
    }
    if let Some(session) = session.upgrade() {
        session.connection.stop(disconnected("the connection has ended"));
    }
}

/// The least time that a request may take: a healthy member may wait for a disk, or for its processor.
const LEAST_CALL_LIMIT: Duration = Duration::from_millis(1_500);

/// Returns how long a request may take: a member that hangs must be given up while locks can still be kept over another one.
fn call_limit(session: Duration, node_timeout: Option<Duration>) -> Duration {
    (session / 5).clamp(LEAST_CALL_LIMIT, CALL_LIMIT).max(node_timeout.unwrap_or_default())
}

/// Keeps the session, until that fails.
async fn keep(session: Weak<Session>, pause: Duration) {
    loop {
        let Some(kept) = session.upgrade() else { return };
        if let Err(failure) = kept.beat().await {
            drop(kept.connection.note(failure));
            return;
        }
        kept.note_age();
        // Counted from the answer, so that the next one proves this one.
        let clock = Arc::clone(kept.memory.local.seams.clock());
        drop(kept);
        let until = clock.now() + pause;
        while clock.now() < until {
            clock.sleep_until(until).await;
        }
    }
}

fn disconnected(reason: &'static str) -> NodeError {
    NodeError::Disconnected { reason: reason.into() }
}

async fn in_time<T>(
    memory: &Memory,
    member: &Member,
    limit: Duration,
    work: impl Future<Output = Result<T, NodeError>>,
) -> Result<T, NodeError> {
    within(memory.local.clock(), limit, work).await.unwrap_or_else(|| {
        let reason = format!(
            "{member} did not answer within {limit:?}: it hangs, has no leader, for which a majority of the members must run \
             and reach each other, or this is another port than the one for clients (2181)"
        );
        Err(NodeError::Unresponsive { reason: reason.into() })
    })
}

/// The longest path of ours.
const LONGEST_PATH: usize = 2 << 10;

/// Lists what lives with the session, which this process has put there, below the path of the node.
pub(crate) async fn list(client: &Client, memory: &Memory) -> Result<HashSet<Arc<str>>, Failure> {
    let own = memory.local.own.lock().keys().count();
    let longest = own.saturating_mul(LONGEST_PATH).saturating_add(LONGEST);
    let call = Call::GetEphemerals { below: memory.layout.base_or_root() };
    let found = client.send_for(&call, longest).done().await?;
    Ok(found.paths()?.into_iter().map(Arc::from).collect())
}

impl Memory {
    /// Records a connection, and returns its number.
    fn connected(
        &self,
        (granted, is_same): (Granted, bool),
        (sent, answered): (quorlock::protocol::Moment, quorlock::protocol::Moment),
        ticks: Ticks,
    ) -> u64 {
        if !is_same {
            self.forget();
        }
        let mut life = self.life.lock();
        let (generation, tick) = (self.next_generation(), ticks.tick);
        *self.proven.lock() = ticks.proven(granted.timeout);
        match &mut *life {
            Some(life) => {
                life.generation = generation;
                life.granted = granted;
                life.proof.continued(sent, answered);
            }
            none => {
                let proof = Proof::of_new(sent, tick);
                *none = Some(Life { granted, proof, generation, listed: HashSet::new(), listed_at: sent });
            }
        }
        generation
    }

    /// Opens another session, at any member.
    async fn another_session(&self, timeout: Duration) -> Result<(Client, Granted), NodeError> {
        let mut failure = NodeError::Unreachable { reason: Reason::new("no member is named") };
        for member in self.local.address.members() {
            let wanted = (Wanted { old: None, timeout }, CALL_LIMIT);
            let events = channel(1).0;
            let opening = Client::connect(&self.local.address, member, &self.local.seams, wanted, events);
            match in_time(self, member, CONNECT_LIMIT, opening).await {
                Ok(opened) => return Ok(opened),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_hangs_is_given_up_while_the_session_can_be_kept() {
        let seconds = Duration::from_secs_f64;
        for (session, limit) in [(2.0, 1.5), (8.0, 1.6), (10.0, 2.0), (30.0, 3.0)] {
            assert_eq!(call_limit(seconds(session), None), seconds(limit), "{session}");
        }
        assert_eq!(call_limit(seconds(10.0), Some(seconds(2.5))), seconds(2.5));
    }
}
