//! A connection that may vote: the session that it continues, and which history the data have.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use quorlock::node::places::{Cluster, Connection, Local};
use quorlock::node::{Hint, Identity, NodeError, Reason, Request, Response};
use quorlock::protocol::Claim;
use quorlock::runtime::{Mutex, within};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::AbortHandle;

use crate::address::Member;
use crate::client::{Client, Event, Granted, Wanted};
use crate::error::Failure;
use crate::memory::{Grants, Life, Memory, Own, Stored, Ticks};
use crate::proof::Proof;
use crate::watch::Watches;
use crate::wire::{Call, Create};

use history::{Aging, Found, Note, Opened};

mod history;
mod ticks;

/// How long a request may take, unless the node timeout is longer.
const CALL_LIMIT: Duration = Duration::from_secs(3);
/// How long it may take to connect to a member.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// How many changes wait to be passed on, before the connection is read no further.
const MOST_EVENTS: usize = 64;
/// Begins the name of a history, as answers have it.
const ID: &str = "zookeeper:";

/// A connection that may vote.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) memory: Arc<Memory>,
    pub(crate) connection: Connection,
    pub(crate) watches: Watches,
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
    identity: Mutex<Arc<Identity>>,
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
    async fn open(memory: &Arc<Memory>, member: usize) -> Result<Arc<Session>, NodeError> {
        let (address, seams) = (&memory.address, &memory.local.seams);
        let Some(member) = address.members().get(member) else {
            return Err(NodeError::Unreachable { reason: "no such member is named".into() });
        };
        let limit = CALL_LIMIT.max(seams.node_timeout().unwrap_or_default());
        let connect = seams.connect_timeout().unwrap_or(CONNECT_LIMIT);
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
            watches: Watches::default(),
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

    /// Passes the failure on, and ends the connection if another one may do better.
    pub(crate) fn note(&self, failure: Failure) -> NodeError {
        let ends = failure.ends_connection();
        let error = NodeError::from(failure);
        if ends {
            self.connection.stop(error.clone());
        }
        error
    }

    /// Records what it has seen, for the connections after it.
    fn leave(&self) {
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

    /// The history, and how old it is at least.
    pub(crate) fn identity(&self) -> Arc<Identity> {
        Arc::clone(&self.identity.lock())
    }

    /// Ends the session too: what lives with it is deleted immediately.
    pub(crate) async fn close(&self) {
        self.leave();
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
        let Some(news) = self.watches.receive(event) else { return };
        if let Some(path) = news.gone
            && self.memory.local.gone(&news.lock, &*path)
        {
            self.prefetch(&news.lock);
        }
        if news.notifies {
            self.memory.local.notify(Hint::Invalidated(news.lock.as_bytes()));
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
            Err(failure) => return drop(self.note(failure)),
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

/// Keeps the session, until that fails.
async fn keep(session: Weak<Session>, pause: Duration) {
    loop {
        let Some(kept) = session.upgrade() else { return };
        if let Err(failure) = kept.beat().await {
            drop(kept.note(failure));
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
            "{member} did not answer within {limit:?}: it hangs, or has no leader, for which a majority of the members must run \
             and reach each other"
        );
        Err(NodeError::Unresponsive { reason: reason.into() })
    })
}

/// Lists what lives with the session, below the path of the node.
pub(crate) async fn list(client: &Client, memory: &Memory) -> Result<HashSet<Arc<str>>, Failure> {
    let found = client.send(&Call::GetEphemerals { below: memory.layout.base_or_root() }).done().await?;
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
        for member in self.address.members() {
            let wanted = (Wanted { old: None, timeout }, CALL_LIMIT);
            let events = channel(1).0;
            let opening = Client::connect(&self.address, member, &self.local.seams, wanted, events);
            match in_time(self, member, CONNECT_LIMIT, opening).await {
                Ok(opened) => return Ok(opened),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl Cluster for Memory {
    type Key = Arc<str>;
    type Stored = Stored;
    type Session = Session;

    fn local(&self) -> &Local<Arc<str>, Stored> {
        &self.local
    }

    fn members(&self) -> usize {
        self.address.members().len()
    }

    async fn open(self: &Arc<Memory>, member: usize) -> Result<Arc<Session>, NodeError> {
        Session::open(self, member).await
    }

    fn connection(session: &Session) -> &Connection {
        &session.connection
    }

    async fn execute(session: &Arc<Session>, request: &Request) -> Result<Response, NodeError> {
        session.execute(request).await
    }

    fn renew_locally(session: &Session, claim: &Claim, ttl: Duration) -> Option<Response> {
        session.renew_locally(claim, ttl)
    }

    async fn delete(session: &Session, own: &Own) -> bool {
        session.delete_ended(own).await.is_ok()
    }

    async fn leave(session: &Session, is_last: bool) {
        if is_last {
            // What lives with the session is deleted immediately.
            session.close().await;
        } else {
            session.leave();
        }
    }
}
