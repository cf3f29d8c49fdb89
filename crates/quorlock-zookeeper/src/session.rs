//! A connection that may vote: the session that it continues, and which history the data have.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::join_all;
use quorlock::node::facts::{ClockReading, Facts, Fsync, Memory as MemoryLimit, Role};
use quorlock::node::{Hint, Identity, NodeError, NodeErrorKind, Reason};
use quorlock::protocol::{Drift, turn_key};
use quorlock::runtime::{Clock, Mutex, within};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::AbortHandle;

use crate::address::{Member, ZooKeeperAddress};
use crate::client::{Client, Event, Granted, Wanted};
use crate::error::{Trouble, failed};
use crate::memory::{Life, Memory, Ticks};
use crate::proof::Proof;
use crate::watch::Watches;
use crate::wire::{Call, Create, Stat, code};

/// How long a request may take, unless the node timeout is longer.
const CALL_LIMIT: Duration = Duration::from_secs(3);
/// How long it may take to connect to a member.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// For how long a new history does not vote, where no client says.
const USUAL_MAX_TTL: Duration = Duration::from_secs(60);
/// How many writes keep a session in the time of its timeout, unless ticks are longer. What is proven is at most two of these
/// pauses old.
const PARTS: u32 = 10;
/// Begins the name of a history, as answers have it.
const ID: &str = "zookeeper:";
/// How many orphans are deleted together.
const TOGETHER: usize = 500;

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
            opened.reconcile().await.map_err(Trouble::before_anything_changed)?;
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

    /// Passes the trouble on, and ends the connection if another one may do better.
    pub(crate) fn note(&self, trouble: Trouble) -> NodeError {
        let ends = trouble.ends_connection();
        let error = NodeError::from(trouble);
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

    /// Ends the session too: what lives with it goes at once.
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
                self.memory.tell(Hint::Invalidated(turn_key(&news.lock, waiter).as_bytes()));
            }
        }
        if news.tells {
            self.memory.tell(Hint::Invalidated(news.lock.as_bytes()));
        }
    }

    /// Reads the note of the history again, and ends the connection if it is that of another one.
    async fn reread(&self) {
        let note = Call::GetData { path: self.memory.layout.history(), watch: false };
        let note = match self.client.send(&note).found().await {
            Ok(note) => note,
            Err(trouble) => return drop(self.note(trouble)),
        };
        let name = note.and_then(|answer| Some(Note::of(answer.data().ok()?.0)?.name));
        if name.as_deref() != self.identity.id.strip_prefix(ID) {
            self.stop(disconnected("another history has begun"));
        }
    }

    /// Keeps the session, by a write.
    async fn beat(&self) -> Result<(), Trouble> {
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
        if let Err(trouble) = kept.beat().await {
            drop(kept.note(trouble));
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

/// A connection of which the history is not known yet.
struct Opened<'a> {
    client: Client,
    memory: &'a Arc<Memory>,
    id: i64,
    is_same: bool,
}

/// The note of a history.
struct Note {
    name: String,
    quarantine: Duration,
    /// How much of it had passed when `young` was made.
    passed: Duration,
    /// For how long `young` lasts.
    part: Duration,
}

impl Note {
    fn of(data: &[u8]) -> Option<Note> {
        let mut words = str::from_utf8(data).ok()?.split(' ');
        let name = words.next().filter(|name| !name.is_empty())?.to_owned();
        let mut seconds = || Some(Duration::from_secs(words.next()?.parse().ok()?));
        Some(Note { name, quarantine: seconds()?, passed: seconds()?, part: seconds()? })
    }

    fn text(&self) -> Vec<u8> {
        let [quarantine, passed, part] = [self.quarantine, self.passed, self.part].map(|time| time.as_secs());
        format!("{} {quarantine} {passed} {part}", self.name).into_bytes()
    }
}

impl Opened<'_> {
    /// Reads the history of the data, and begins a new one if there is none, or if these data are older than those that this
    /// client has seen.
    async fn history(&self) -> Result<(Identity, i64, Duration), NodeError> {
        let unread = Trouble::before_anything_changed;
        let layout = &self.memory.layout;
        let guarded = self.memory.seams.guards_restarts();
        for _ in 0..8 {
            let get = |path| self.client.send(&Call::GetData { path, watch: false });
            let asked = self.memory.now();
            // All at once: the member catches up with the leader before it reads.
            let alive = self.alive();
            let synced = self.client.send(&Call::Sync { path: layout.history() });
            let watched = self.client.send(&Call::AddWatch { path: layout.history() });
            let (note, young) =
                (get(layout.history()), self.client.send(&Call::Exists { path: layout.young() }));
            let (max_ttl, last) = (get(layout.max_ttl()), self.memory.seen.lock().counter.clone());
            let counter = last.as_ref().map(|(path, _)| get(path.clone()));
            let is_alive = self.made(alive).await.map_err(unread)?;
            let zxid = synced.done().await.map_err(unread)?.zxid;
            let round_trip = self.memory.now().since(asked);
            watched.done().await.map_err(unread)?;
            let (note, young) = (note.found().await.map_err(unread)?, young.found().await.map_err(unread)?);
            let max_ttl = max_ttl.found().await.map_err(unread)?;
            let max_ttl = max_ttl.as_ref().map(|answer| answer.data()).transpose().map_err(unread)?;
            if !is_alive {
                self.make_roots().await.map_err(unread)?;
                continue;
            }
            let quarantine = self.compare_max_ttls(max_ttl).await.map_err(unread)?;
            let note = note.as_ref().map(|answer| answer.data()).transpose().map_err(unread)?;
            let seen = self.memory.seen.lock().clone();
            let mut is_older = zxid < seen.zxid;
            if let (Some(counter), Some((_, number))) = (counter, &last) {
                let found = counter.found().await.map_err(unread)?;
                let found =
                    found.as_ref().and_then(|answer| crate::layout::decode_counter(answer.data().ok()?.0));
                is_older |= found.is_none_or(|found| found < *number);
            }
            let known = note.and_then(|(data, _)| Note::of(data)).filter(|known| {
                let is_same = seen.name.is_empty() || known.name == seen.name;
                !(is_same && is_older) && (!guarded || known.quarantine >= quarantine)
            });
            let version = note.map(|(_, stat)| stat.version);
            let Some(known) = known else {
                let name = format!("{:016x}", self.memory.seams.entropy().next_u64());
                let (passed, part) = (Duration::ZERO, Duration::ZERO);
                self.begin(Note { name, quarantine, passed, part }, version, young.is_some()).await?;
                continue;
            };
            let passed = known.passed + if young.is_some() { Duration::ZERO } else { known.part };
            if guarded && young.is_none() && passed < known.quarantine {
                self.begin(Note { passed, ..known }, version, false).await?;
                continue;
            }
            // At least; more need not be known.
            let age = if young.is_some() && guarded { passed } else { known.quarantine };
            *self.memory.seen.lock() = crate::memory::Seen { name: known.name.clone(), zxid, counter: last };
            let id = format!("{ID}{}", known.name);
            return Ok((Identity::new(id, asked, age), zxid, round_trip));
        }
        Err(NodeError::Unresponsive { reason: "other clients keep changing the note of the history".into() })
    }

    /// Asks for the node that keeps the session.
    fn alive(&self) -> crate::client::Sent {
        let path = self.memory.layout.alive(self.id);
        let data = self.memory.seams.label().as_bytes().to_vec();
        self.client.send(&Call::Create { path, data, how: Create::Ephemeral })
    }

    /// Whether that node is there; not if those above are missing.
    async fn made(&self, alive: crate::client::Sent) -> Result<bool, Trouble> {
        match alive.done().await {
            Ok(_) | Err(Trouble::Refused(code::NODE_EXISTS)) => Ok(true),
            Err(Trouble::Refused(code::NO_NODE)) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    async fn make_roots(&self) -> Result<(), Trouble> {
        let create =
            |path| self.client.send(&Call::Create { path, data: Vec::new(), how: Create::Persistent });
        let created: Vec<_> = self.memory.layout.roots().into_iter().map(create).collect();
        for created in created {
            match created.done().await {
                Ok(_) | Err(Trouble::Refused(code::NODE_EXISTS)) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(())
    }

    /// Writes the note of a history, which is young for as long as a session lasts that nobody keeps.
    async fn begin(&self, note: Note, version: Option<i32>, is_young: bool) -> Result<(), NodeError> {
        let layout = &self.memory.layout;
        let unread = Trouble::before_anything_changed;
        // What follows is no news.
        self.client.send(&Call::RemoveWatches { path: layout.history() }).done().await.map_err(unread)?;
        let left = note.quarantine.saturating_sub(note.passed);
        let (client, granted) = self.memory.another_session(left + Duration::from_secs(1)).await?;
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
    async fn compare_max_ttls(&self, recorded: Option<(&[u8], Stat)>) -> Result<Duration, Trouble> {
        let seams = &self.memory.seams;
        let millis = |data: &[u8]| Some(u64::from_be_bytes(data.try_into().ok()?));
        let theirs =
            recorded.and_then(|(data, _)| millis(data)).map_or(Duration::ZERO, Duration::from_millis);
        let notes = seams.max_ttls().filter(|_| seams.guards_restarts());
        let ours = notes.map_or(Duration::ZERO, quorlock::node::MaxTtlNotes::ours);
        if let Some(notes) = notes {
            if theirs > Duration::ZERO {
                notes.hear(theirs);
            }
            if ours > theirs {
                let (path, millis) =
                    (self.memory.layout.max_ttl(), u64::try_from(ours.as_millis()).unwrap_or(u64::MAX));
                let data = millis.to_be_bytes().to_vec();
                let write = match recorded {
                    None => Call::Create { path, data, how: Create::Persistent },
                    Some((_, stat)) => Call::SetData { path, data, version: stat.version },
                };
                match self.client.send(&write).done().await {
                    Ok(_) | Err(Trouble::Refused(code::NODE_EXISTS | code::BAD_VERSION | code::NO_NODE)) => {}
                    Err(trouble) => return Err(trouble),
                }
            }
        }
        let longest = ours.max(theirs);
        let longest = if longest.is_zero() { USUAL_MAX_TTL } else { longest };
        Ok(Duration::from_secs(Drift::default().stretch(longest).as_secs() + 1))
    }

    /// Deletes what the session has without anybody knowing, from requests whose outcome was lost, and forgets what it lacks.
    async fn reconcile(&self) -> Result<(), Trouble> {
        debug_assert!(self.is_same, "a new session has nothing");
        let listed = list(&self.client, self.memory).await?;
        let orphans: Vec<Call> = {
            let mut own = self.memory.own.lock();
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

/// Lists what lives with the session, below the path of the node.
pub(crate) async fn list(client: &Client, memory: &Memory) -> Result<HashSet<Arc<str>>, Trouble> {
    let found = client.send(&Call::GetEphemerals { below: memory.layout.base_or_root() }).done().await?;
    Ok(found.paths()?.into_iter().map(Arc::from).collect())
}

impl Ticks {
    /// Learns of the length of the servers' ticks what they show: the shortest session that they grant has two, the longest
    /// twenty, unless an administrator has set that otherwise.
    async fn ask(address: &ZooKeeperAddress, member: &Member, memory: &Memory) -> Result<Ticks, NodeError> {
        let ask = async |timeout| {
            let wanted = (Wanted { old: None, timeout }, CALL_LIMIT);
            let (client, granted) =
                Client::connect(address, member, &memory.seams, wanted, unbounded_channel().0).await?;
            client.close().await;
            Ok::<Duration, NodeError>(granted.timeout)
        };
        let longest = Duration::from_millis(u64::from(i32::MAX.unsigned_abs()));
        let (least, most) = futures::try_join!(ask(Duration::from_millis(1)), ask(longest))?;
        Ok(Ticks { least, tick: (least / 2).max(most / 20) })
    }

    /// How long to wait between two writes that keep a session.
    fn pause(self, session: Duration) -> Duration {
        self.tick.max(session / PARTS)
    }

    /// Refuses a session that is too short for these ticks.
    fn allow(self, session: Duration) -> Result<(), NodeError> {
        let least = self.least.max(self.tick * 4);
        if session >= least {
            return Ok(());
        }
        let words = format!(
            "its servers have ticks of up to {:?}, and so keep sessions of {least:?} or more, and the session of this node is \
             {session:?}: write `?session={}s` in the URL, or lower tickTime",
            self.tick,
            least.as_millis().div_ceil(1000),
        );
        Err(failed(NodeErrorKind::Misconfigured, words))
    }
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
        let mut trouble = NodeError::Unreachable { reason: Reason::new("no member is named") };
        for member in self.address.members() {
            let wanted = (Wanted { old: None, timeout }, CALL_LIMIT);
            let events = unbounded_channel().0;
            let opening = Client::connect(&self.address, member, &self.seams, wanted, events);
            match in_time(self, member, CONNECT_LIMIT, opening).await {
                Ok(opened) => return Ok(opened),
                Err(error) => trouble = error,
            }
        }
        Err(trouble)
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &**self.seams.clock()
    }
}
