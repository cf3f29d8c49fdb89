//! A connection that may vote: the history of the data, and whether the answers come from it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use quorlock::node::facts::Software;
use quorlock::node::places::{Connection, Local, Member, Watched, failed};
use quorlock::node::{Identity, NodeError, NodeErrorKind};
use quorlock::runtime::{Mutex, within};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tonic::{Status as Refusal, Streaming};

use crate::client::{AuthToken, Client};
use crate::error::{Failure, unmet};
use crate::layout::{HISTORY, MAX_TTL, YOUNG};
use crate::leases::{Leases, Link, grant};
use crate::watch::Watches;
use crate::wire::{
    Compare, Header, KeyValue, Range, RequestOp, Status, StatusRequest, TimeToLive, TimeToLiveResponse, Txn,
    TxnResponse, WatchResponse,
};

/// What outlives the connections of a node.
pub(crate) struct Memory {
    pub(crate) local: Local<Memory>,
    pub(crate) leases: Leases,
    /// The latest state of the data that was seen.
    seen: Mutex<Seen>,
}

/// A state of the data: it never falls, unless an older copy was put in its place.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// The note of the history that it was of.
    note: Vec<u8>,
    term: u64,
    revision: i64,
    /// What the log of the cluster had at least. It begins anew where a snapshot is restored, also one with a raised revision.
    entries: u64,
}

impl Memory {
    pub(crate) fn new(local: Local<Memory>) -> Memory {
        Memory { local, leases: Leases::default(), seen: Mutex::default() }
    }
}

/// A connection that may vote.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) memory: Arc<Memory>,
    pub(crate) connection: Connection,
    pub(crate) watches: Watches,
    pub(crate) watched: Watched<Vec<u8>>,
    /// The latest state that an answer has shown: that of a later connection may not be older. A restored snapshot takes a
    /// restart of all members, which ends this one.
    term: AtomicU64,
    revision: AtomicI64,
    /// The login of the latest stream of watches.
    watched_as: tokio::sync::Mutex<AuthToken>,
    /// Read the streams of watches, which keep the connection open.
    listening: Mutex<Vec<AbortHandle>>,
}

impl Session {
    /// Connects to a member, and reads which history its data have.
    ///
    /// # Errors
    ///
    /// Why it cannot vote.
    pub(crate) async fn open(memory: &Arc<Memory>, member: &Member) -> Result<Arc<Session>, NodeError> {
        let Local { address, seams, .. } = &memory.local;
        let (limit, connect) = (memory.local.call_limit(), memory.local.connect_limit());
        let opening = Client::connect(address, member, seams, limit);
        let client = within(memory.local.clock(), connect, opening).await.unwrap_or_else(|| {
            let likely =
                "it hangs, or is a server of another kind or without TLS; etcd's port for clients is 2379";
            let reason = format!("no connection to {member} within {connect:?}: {likely}").into();
            Err(NodeError::Unresponsive { reason })
        })?;
        let status = status(&client).await.map_err(|failure| unmet(failure, member))?;
        check(&status, member)?;
        let (identity, header, round_trip) = history(&client, memory, status.raft_index).await?;
        let (sender, requests) = mpsc::unbounded_channel();
        let watches = Watches::new(sender);
        let token = client.token();
        let stream = client.watch(requests, &token).await.map_err(Failure::before_anything_changed)?;
        let user = address.user(seams);
        let mut connection = Connection::new(identity, round_trip, user);
        connection.facts.software = Some(Software::new("etcd", status.version.as_str()));
        let session = Arc::new(Session {
            client,
            memory: Arc::clone(memory),
            connection,
            watches,
            watched: Watched::default(),
            term: AtomicU64::new(header.raft_term),
            revision: AtomicI64::new(header.revision),
            watched_as: tokio::sync::Mutex::new(token),
            listening: Mutex::default(),
        });
        session.keep_listening(listen(Arc::downgrade(&session), stream, session.watches.stream()));
        Ok(session)
    }

    fn keep_listening(&self, listening: impl Future<Output = ()> + Send + 'static) {
        let mut all = self.listening.lock();
        all.retain(|listening| !listening.is_finished());
        all.push(tokio::spawn(listening).abort_handle());
    }

    /// Returns what leases are asked for over.
    pub(crate) fn link(&self) -> Link<'_> {
        Link { client: &self.client, clock: self.memory.local.clock(), connection: &self.connection }
    }

    /// Watches these locks from before it returns, unless the member is silent. Where the login of the stream has ended, on
    /// another one.
    pub(crate) async fn watch(
        self: &Arc<Session>,
        locks: impl Iterator<Item = &Arc<str>> + Clone,
    ) -> Result<(), Failure> {
        let (watches, now) = (&self.watches, self.memory.local.now());
        let stream = watches.stream();
        let limit = self.memory.local.call_limit();
        let begin = async |locks| {
            let made = watches.begin(&self.watched, locks, now);
            let made = within(self.memory.local.clock(), limit, made).await;
            made.unwrap_or(Err(Failure::Silent(limit)))
        };
        if begin(locks.clone()).await? {
            return Ok(());
        }
        if self.client.has_user() {
            self.watch_anew(stream).await?;
            if begin(locks).await? {
                return Ok(());
            }
        }
        let words = "etcd does not let the user watch the places of the lock";
        Err(Failure::Refused(tonic::Code::PermissionDenied, words.into()))
    }

    /// Opens another stream of watches, with a new login, unless another request has done so since.
    async fn watch_anew(self: &Arc<Session>, refused: usize) -> Result<(), Failure> {
        let mut watched_as = self.watched_as.lock().await;
        if self.watches.stream() != refused {
            return Ok(());
        }
        let token = self.client.log_in_again(&watched_as).await?;
        let (sender, requests) = mpsc::unbounded_channel();
        let number = self.watches.go_on(sender);
        watched_as.clone_from(&token);
        let (client, session) = (self.client.clone(), Arc::downgrade(self));
        self.keep_listening(async move {
            match client.watch(requests, &token).await {
                Ok(stream) => listen(session, stream, number).await,
                Err(failure) => drop(session.upgrade().map(|session| session.connection.note(failure))),
            }
        });
        Ok(())
    }

    /// Sends a transaction, which changes something or reads the latest state.
    pub(crate) async fn txn(&self, txn: Txn) -> Result<TxnResponse, Failure> {
        let answer: TxnResponse = self.client.call("/etcdserverpb.KV/Txn", txn).await?;
        let header = answer.header.unwrap_or_default();
        self.term.fetch_max(header.raft_term, Ordering::Relaxed);
        self.revision.fetch_max(header.revision, Ordering::Relaxed);
        Ok(answer)
    }

    /// Records what it has seen, for the connections after it.
    pub(crate) fn end(&self) {
        self.watches.end();
        self.listening.lock().drain(..).for_each(|listening| listening.abort());
        let (term, revision) = (self.term.load(Ordering::Relaxed), self.revision.load(Ordering::Relaxed));
        let mut seen = self.memory.seen.lock();
        // Each change is an entry of its own.
        let changes = u64::try_from(revision.saturating_sub(seen.revision)).unwrap_or(0);
        seen.entries = seen.entries.saturating_add(changes);
        (seen.term, seen.revision) = (seen.term.max(term), seen.revision.max(revision));
    }

    /// Passes on what a stream of watches reports. Returns whether it goes on.
    fn hear(&self, message: Result<Option<WatchResponse>, Refusal>, stream: usize) -> bool {
        let message = match message {
            Ok(Some(message)) => message,
            // There is another one, and all watches of this one have ended.
            Ok(None) | Err(_) if !self.watches.need(stream) => return false,
            Ok(None) => {
                self.connection.stop(disconnected("the stream of watches has ended".into()));
                return false;
            }
            Err(status) => {
                drop(self.connection.note(Failure::from(status)));
                return false;
            }
        };
        let Some(news) = self.watches.receive(message, stream) else {
            self.connection.stop(disconnected("etcd has ended a watch, or another history has begun".into()));
            return false;
        };
        if let Some((lock, gone)) = news {
            self.memory.local.changed(&self.watched, &lock, &gone);
        }
        true
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.listening.lock().drain(..).for_each(|listening| listening.abort());
    }
}

/// Reads a stream of watches, until it or the session ends.
async fn listen(session: Weak<Session>, mut stream: Streaming<WatchResponse>, number: usize) {
    loop {
        let message = stream.message().await;
        if !session.upgrade().is_some_and(|session| session.hear(message, number)) {
            return;
        }
    }
}

fn disconnected(reason: quorlock::node::Reason) -> NodeError {
    NodeError::Disconnected { reason }
}

/// Refuses a member that cannot answer.
fn check(status: &Status, member: &Member) -> Result<(), NodeError> {
    if status.is_learner {
        let words =
            format!("{member} is a learner, which takes no requests: name the voting members of the cluster");
        return Err(failed(NodeErrorKind::WrongServer, words));
    }
    if status.leader == 0 {
        let reason =
            format!("{member} has no leader: a majority of the members must run and reach each other").into();
        return Err(NodeError::Unreachable { reason });
    }
    Ok(())
}

async fn status(client: &Client) -> Result<Status, Failure> {
    client.call("/etcdserverpb.Maintenance/Status", StatusRequest {}).await
}

/// Reads the history of the data, and begins a new one if there is none, or if these data were written elsewhere. The member
/// knew this number of entries before.
async fn history(
    client: &Client,
    memory: &Memory,
    entries: u64,
) -> Result<(Identity, Header, Duration), NodeError> {
    let unread = Failure::before_anything_changed;
    let guarded = memory.local.seams.guards_restarts();
    for _ in 0..5 {
        let sent = memory.local.now();
        let looks = [HISTORY, YOUNG, MAX_TTL].map(|key| RequestOp::range(Range::of(key)));
        let look = Txn { success: looks.into(), ..Txn::default() };
        let found: TxnResponse = client.call("/etcdserverpb.KV/Txn", look).await.map_err(unread)?;
        let round_trip = memory.local.now().since(sent);
        let header = found.header.unwrap_or_default();
        let seen = memory.seen.lock().clone();
        // A member that was behind the others has caught up by now, or it could not have answered.
        let is_behind = entries < seen.entries;
        let log = if is_behind { status(client).await.map_err(unread)?.raft_index } else { entries };
        let [note, young, max_ttl] = [0, 1, 2].map(|at| found.range(at).first().cloned());
        let quarantine = compare_max_ttls(client, memory, max_ttl.as_ref()).await.map_err(unread)?;
        let is_same = seen.note.is_empty() || note.as_ref().is_some_and(|note| note.value == seen.note);
        let known = note.as_ref().and_then(Note::of).filter(|known| {
            let has_fallen =
                header.raft_term < seen.term || header.revision < seen.revision || log < seen.entries;
            let is_long = !guarded || known.quarantine >= quarantine;
            known.cluster == header.cluster_id && !(is_same && has_fallen) && is_long
        });
        let Some(known) = known else {
            begin(client, memory, note.as_ref(), (header, quarantine)).await.map_err(unread)?;
            continue;
        };
        let age = match young.filter(|_| guarded) {
            // At least; more need not be known.
            None => known.quarantine,
            Some(young) => {
                let asked = TimeToLive { id: young.lease, keys: false };
                let left: TimeToLiveResponse =
                    client.call("/etcdserverpb.Lease/LeaseTimeToLive", asked).await.map_err(unread)?;
                // In whole seconds, rounded down.
                let passed = left.granted_ttl.saturating_sub(left.ttl.max(0)).saturating_sub(1);
                Duration::from_secs(u64::try_from(passed).unwrap_or(0))
            }
        };
        let note = note.map(|note| note.value).unwrap_or_default();
        // What was known before this revision was read: changes after it are counted in addition.
        let entries = if is_same { entries.max(seen.entries) } else { entries };
        *memory.seen.lock() = Seen { note, term: header.raft_term, revision: header.revision, entries };
        let id = format!("etcd:{:x}/{}", header.cluster_id, known.name);
        return Ok((Identity::new(id, sent, age), header, round_trip));
    }
    Err(NodeError::Unresponsive { reason: "other clients keep changing the note of the history".into() })
}

/// The note of a history.
struct Note {
    name: String,
    cluster: u64,
    quarantine: Duration,
}

impl Note {
    fn of(kv: &KeyValue) -> Option<Note> {
        let mut words = str::from_utf8(&kv.value).ok()?.split(' ');
        let (name, cluster, quarantine) = (words.next()?, words.next()?, words.next()?);
        let cluster = u64::from_str_radix(cluster, 16).ok()?;
        Some(Note {
            name: name.to_owned(),
            cluster,
            quarantine: Duration::from_secs(quarantine.parse().ok()?),
        })
    }
}

/// Begins a new history, unless another client does so first.
async fn begin(
    client: &Client,
    memory: &Memory,
    old: Option<&KeyValue>,
    (header, quarantine): (Header, Duration),
) -> Result<(), Failure> {
    let seconds = quarantine.as_secs().max(1);
    // A second longer, because it is reported in whole seconds.
    let lease = grant(client, seconds.saturating_add(1)).await?;
    let name = memory.local.seams.entropy().next_u64();
    let note = format!("{name:016x} {:x} {seconds}", header.cluster_id);
    let txn = Txn {
        compare: vec![Compare::changed_at(HISTORY, old.map_or(0, |old| old.mod_revision))],
        success: vec![RequestOp::put(HISTORY, note, 0), RequestOp::put(YOUNG, "", lease)],
        failure: Vec::new(),
    };
    client.call::<_, TxnResponse>("/etcdserverpb.KV/Txn", txn).await.map(drop)
}

/// Compares the largest `max_ttl` of the clients with ours, and records ours if it is larger. Returns for how long a new
/// history must not vote.
async fn compare_max_ttls(
    client: &Client,
    memory: &Memory,
    recorded: Option<&KeyValue>,
) -> Result<Duration, Failure> {
    let (quarantine, larger) = memory.local.quarantine(recorded.map(|kv| kv.value.as_slice()));
    if let Some(ours) = larger {
        let txn = Txn {
            compare: vec![Compare::changed_at(MAX_TTL, recorded.map_or(0, |kv| kv.mod_revision))],
            success: vec![RequestOp::put(MAX_TTL, ours, 0)],
            failure: Vec::new(),
        };
        client.call::<_, TxnResponse>("/etcdserverpb.KV/Txn", txn).await?;
    }
    Ok(quarantine)
}
