//! A connection that may vote: the session that it continues, and which history the data have.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use quorlock::node::facts::{ClockReading, Facts, Fsync, Memory as MemoryLimit, Role};
use quorlock::node::{Hint, Identity, NodeError, Reason};
use quorlock::protocol::turn_key;
use quorlock::runtime::{Clock, Mutex, within};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::AbortHandle;

use crate::address::{Member, ZooKeeperAddress};
use crate::client::{Client, Event, Granted, Wanted};
use crate::error::Failure;
use crate::memory::{Life, Memory, Ticks};
use crate::proof::Proof;
use crate::watch::Watches;
use crate::wire::{Call, Create};

use history::{Note, Opened};

mod history;
mod ticks;

/// How long a request may take, unless the node timeout is longer.
const CALL_LIMIT: Duration = Duration::from_secs(3);
/// How long it may take to connect to a member.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Begins the name of a history, as answers have it.
const ID: &str = "zookeeper:";

/// A connection that may vote.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) memory: Arc<Memory>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) facts: Facts,
    pub(crate) round_trip: Duration,
    pub(crate) watches: Watches,
    /// The number of the session.
    pub(crate) id: i64,
    /// Which of the node's connections this is.
    pub(crate) generation: u64,
    zxid: AtomicI64,
    /// Why it has ended.
    ended: Mutex<Option<NodeError>>,
    pub(crate) end: Notify,
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
    pub(crate) async fn open(
        address: &ZooKeeperAddress,
        member: &Member,
        memory: &Arc<Memory>,
    ) -> Result<Arc<Session>, NodeError> {
        let seams = &memory.seams;
        let limit = CALL_LIMIT.max(seams.node_timeout().unwrap_or_default());
        let connect = seams.connect_timeout().unwrap_or(CONNECT_LIMIT);
        let known = *memory.ticks.lock();
        let ticks = match known {
            Some(ticks) => ticks,
            None => in_time(memory, member, connect, Ticks::ask(address, member, memory)).await?,
        };
        ticks.allow(address.session())?;
        *memory.ticks.lock() = Some(ticks);
        let (events, heard) = unbounded_channel();
        let wants = |old| (Wanted { old, timeout: address.session() }, limit);
        let old = memory.life.lock().as_ref().map(|life| life.granted.clone());
        let mut sent = memory.now();
        let opening = Client::connect(address, member, seams, wants(old.clone()), events.clone());
        let (mut client, mut granted) = in_time(memory, member, connect, opening).await?;
        if granted.id == 0 {
            // It has ended.
            memory.forget();
            sent = memory.now();
            let opening = Client::connect(address, member, seams, wants(None), events);
            (client, granted) = in_time(memory, member, connect, opening).await?;
        }
        let answered = memory.now();
        let is_same = old.as_ref().is_some_and(|old| old.id == granted.id);
        let id = granted.id;
        let generation = memory.connected((granted, is_same), (sent, answered), ticks);
        let opened = Opened { client, memory, id, is_same };
        let (identity, zxid, round_trip) = opened.history().await?;
        if is_same {
            opened.reconcile().await.map_err(Failure::before_anything_changed)?;
        }
        let client = opened.client;
        let mut facts = Facts::default();
        facts.identity = Some((&*identity.id).into());
        facts.uptime = Some(identity.age);
        facts.hints = Some(true);
        // What it has answered is on the disks of a majority, and no node goes before its session. Sessions end by the rate of
        // its clock, which it does not show.
        facts.role = Some(Role::Master);
        (facts.append_only, facts.fsync) = (Some(true), Some(Fsync::Always));
        (facts.replicas, facts.memory) = (Some(0), Some(MemoryLimit::new(0, None, "noeviction")));
        facts.clock = Some(ClockReading::new(0, Duration::ZERO));
        facts.user = address.login(seams).map(|(user, _)| user.into());
        let session = Arc::new(Session {
            client,
            memory: Arc::clone(memory),
            identity: Arc::new(identity),
            facts,
            round_trip,
            watches: Watches::default(),
            id,
            generation,
            zxid: AtomicI64::new(zxid),
            ended: Mutex::new(None),
            end: Notify::new(),
            listing: tokio::sync::Mutex::default(),
            tasks: Mutex::default(),
        });
        let listening = tokio::spawn(listen(Arc::downgrade(&session), heard));
        let keeping = tokio::spawn(keep(Arc::downgrade(&session), ticks.pause(address.session())));
        *session.tasks.lock() = vec![listening.abort_handle(), keeping.abort_handle()];
        Ok(session)
    }

    /// Records that a write was committed which was sent at this moment.
    pub(crate) fn committed(&self, sent: quorlock::protocol::Moment, zxid: i64) {
        self.zxid.fetch_max(zxid, Ordering::Relaxed);
        let answered = self.memory.now();
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
            self.stop(error.clone());
        }
        error
    }

    fn stop(&self, error: NodeError) {
        self.ended.lock().get_or_insert(error);
        self.end.notify_one();
    }

    /// Returns why it has ended.
    pub(crate) fn ended(&self) -> Option<NodeError> {
        self.ended.lock().clone()
    }

    /// Records what it has seen, for the connections after it.
    pub(crate) fn leave(&self) {
        self.tasks.lock().drain(..).for_each(|task| task.abort());
        let mut seen = self.memory.seen.lock();
        seen.zxid = seen.zxid.max(self.zxid.load(Ordering::Relaxed));
    }

    /// Ends the session too: what lives with it is deleted immediately.
    pub(crate) async fn close(&self) {
        self.leave();
        self.memory.forget();
        self.client.clone().close().await;
    }

    /// Passes on what the server reports.
    async fn hear(self: &Arc<Session>, event: Event) {
        if event.path == self.memory.layout.history() {
            return self.reread().await;
        }
        let Some(news) = self.watches.receive(event) else { return };
        if let Some(path) = news.gone {
            let waiters = self.memory.own.lock().gone(&news.lock, &*path, self.memory.now());
            if !waiters.is_empty() {
                self.prefetch(&news.lock);
            }
            for waiter in waiters {
                self.memory.due.notify_one();
                self.memory.notify(Hint::Invalidated(turn_key(&news.lock, waiter).as_bytes()));
            }
        }
        if news.notifies {
            self.memory.notify(Hint::Invalidated(news.lock.as_bytes()));
        }
    }

    /// Reads the note of the history again, and ends the connection if it is that of another one.
    async fn reread(&self) {
        let note = Call::GetData { path: self.memory.layout.history(), watch: false };
        let note = match self.client.send(&note).found().await {
            Ok(note) => note,
            Err(failure) => return drop(self.note(failure)),
        };
        let name = note.and_then(|answer| Some(Note::of(answer.data().ok()?.0)?.name));
        if name.as_deref() != self.identity.id.strip_prefix(ID) {
            self.stop(disconnected("another history has begun"));
        }
    }

    /// Keeps the session, by a write.
    async fn beat(&self) -> Result<(), Failure> {
        let path = self.memory.layout.alive(self.id);
        let (data, version) = (self.memory.seams.label().as_bytes().to_vec(), -1);
        let beat = self.client.send(&Call::SetData { path: path.clone(), data: data.clone(), version });
        let sent = beat.at;
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
async fn listen(session: Weak<Session>, mut events: UnboundedReceiver<Event>) {
    while let Some(event) = events.recv().await {
        match session.upgrade() {
            Some(session) => session.hear(event).await,
            None => return,
        }
    }
    if let Some(session) = session.upgrade() {
        session.stop(disconnected("the connection has ended"));
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
        // Counted from the answer, so that the next one proves this one.
        let clock = Arc::clone(kept.memory.seams.clock());
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
    within(memory.clock(), limit, work).await.unwrap_or_else(|| {
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
        let (generation, tick) = (self.next_generation(), ticks.pause(granted.timeout));
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
            let events = unbounded_channel().0;
            let opening = Client::connect(&self.address, member, &self.seams, wanted, events);
            match in_time(self, member, CONNECT_LIMIT, opening).await {
                Ok(opened) => return Ok(opened),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &**self.seams.clock()
    }
}
