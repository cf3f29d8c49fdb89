//! Makes a connection that may carry votes: finds the server, dials, logs in, and asks who it is.
//!
//! A vote counts only if it is known which process gave it, that the process is a master, and for how long it
//! has remembered what it granted. All three are read here, on the connection that then carries the votes
//! (I-14), because a connection cannot outlive the process at its other end. The result is a
//! `ReadyConnection` or the reason why there is none. There is no retry here: the supervisor has the backoff.
//!
//! ```text
//!  Sentinels? ─► dial, TLS ─► HELLO, AUTH ─► introduction ─► promoted? ─► kill old ─► recognise
//!   (T-1)                      SELECT          │              note of      connections   │
//!                                              │              promotion    (I-5)         ▼
//!                                              ├ note of the start (I-24)  (I-17) ReadyConnection
//!                                              ├ CLIENT TRACKING: hints           with an Identity
//!                                              ├ note of `max_ttl` (I-37)
//!                                              ├ SUBSCRIBE: offers (O-8)
//!                                              └ INFO: process, role, uptime
//! ```
//!
//! # Steps
//!
//! 1. `greet` finds the address (for a service, the master that most Sentinels name), dials and logs in.
//!    A server without RESP3 is asked again in RESP2, and then sends no hints.
//! 2. The *introduction* is one write of all questions that need no earlier answer. Each reply is taken by
//!    the name of its question. What is optional (hints, offers, cheaper commands) may fail without harm. Without a password
//!    and in database 0 it is sent with the login, which decides nothing about it then.
//! 3. `Process::fit_to_vote` refuses what must not vote: replicas, Sentinels, a cluster member given as a
//!    node of its own, a server without `run_id` (I-25). So is an address at which processes alternate (I-23).
//! 4. A master that was a replica before is asked for the note of its promotion (I-17).
//! 5. `end_abandoned` has this process close our earlier connections on which a request may still arrive.
//!    Then nothing that was sent before can follow what is sent from here on (I-5). A process that does not
//!    close them is sent only commands that look for tombstones (I-41).
//! 6. `recognise` dates the process and gives it its `Identity`.
//!
//! # The age
//!
//! The age in an `Identity` is a lower bound: the smallest of the uptime less one second, the time since the
//! start that other clients have noted (I-24), the time since the promotion (I-17), and the time since the
//! last reply of the process that was here before; for a promoted master, less eight seconds where Sentinels
//! or a cluster promote (T-2, C-6). A process that is recognised keeps its identity, and then ages by our
//! monotonic clock alone, whatever its own clock says. By the operator's word (`?forgets=never`) a process is old from the
//! beginning, unless its data were seen to be lost (I-53). `Round::read` compares the age with the quarantine; see `quorlock-protocol/src/restart.rs`.
//!
//! # Timeouts and cancellation
//!
//! Each step has its own deadline (`Steps`), so a hung server is given up early and a distant one is not.
//! The handshake requests no vote, so it may be dropped at any await: the connection closes, and nothing is
//! left on the server but notes and the secret of the inboxes.
//!
//! What was rejected: docs/adr/0002-which-votes-count.md.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use redis::{Pipeline, Value, cmd};

use super::command::plain::{self, SupportedCommands};
use super::connect_timeout::ConnectTimeout;
use super::connection::{Connection, ConnectionError, server_error, text};
use super::error::{Peer, refused, unconnected, unexpected};
use super::inbox_secret::InboxSecret;
use super::info::{Info, facts_in, time_in};
use super::introduction::{Introduction, Replies, ReplyTo};
use super::last_seen::{AskedMarks, HoldingBack, LastSeen, Marks};
use super::login::Login;
use super::max_ttl::{MaxTtlNote, max_ttl_answer};
use super::node_lists::NodeListsNote;
use super::process::{Process, history_in};
use super::promotion::master_since;
use super::push::Listeners;
use super::redisson::{self, Publishing};
use super::seen_processes::SeenProcesses;
use super::sentinel::{Sentinels, Watch};
use super::settings::{Membership, Settings};
use super::start::{self, Note, ToNote, WallClocks};
use crate::address::{Address, Endpoint, Layout};
use crate::node::facts::{Facts, Role};
use crate::node::{Identity, NodeError, NodeErrorKind};
use crate::runtime::entropy::Entropy;
use quorlock_protocol::{InboxId, Moment, Past, SUCCESSION, believed};

/// The name of our connections in a server's list of clients. Without spaces.
const CLIENT_NAME: &str = "quorlock";

/// Returns whether the server may offer locks (rule O-8): not where Sentinels or a cluster bound the age of a
/// vote (rules T-1, T-2 and C-6), or without the restart guard or by the operator's word (rule I-53), where it
/// depends on the server what is remembered: it may push an offer before it has stored it for good.
pub(crate) fn may_offer(address: &Address, settings: &Settings) -> bool {
    settings.membership == Membership::Alone
        && address.service().is_none()
        && !address.never_forgets()
        && address.layout() == Layout::Own
        && settings.gate.is_some()
}

/// A connection that may carry votes.
pub(crate) struct ReadyConnection {
    pub(crate) connection: Connection,
    /// The server process.
    pub(crate) identity: Arc<Identity>,
    /// Whether the server pushes changes.
    pub(crate) hints: bool,
    /// Whether it also pushes changes by our own scripts, as Redis 6.0 does.
    pub(crate) pushes_own: bool,
    /// The secret that proves messages to our inboxes (rule O-11), if it pushes them.
    pub(crate) inbox: Option<Box<[u8]>>,
    /// The note of the largest `max_ttl`, unless the user may not read it.
    pub(crate) max_ttl: Option<MaxTtlNote>,
    /// The facts of the handshake.
    pub(crate) facts: Facts,
    /// The history ID of its data, if it is a cluster member.
    pub(crate) history: Option<Arc<str>>,
    /// The view of its Sentinels, if they reported the address.
    pub(crate) watch: Option<Watch>,
    /// The commands that it supports besides scripts.
    pub(crate) supported: SupportedCommands,
    /// How releases are published, if the layout is Redisson's.
    pub(crate) redisson: Option<Publishing>,
    /// How long the handshake took.
    pub(crate) round_trip: Duration,
}

/// The questions of an introduction.
struct Asked {
    introduction: Introduction,
    /// Whether the server is asked to push changes.
    hints: bool,
    start: Option<ReplyTo>,
    /// The server's wall clock.
    time: Option<ReplyTo>,
    tracking: Option<ReplyTo>,
    max_ttl: Option<MaxTtlNote>,
    noted: Option<ReplyTo>,
    supported: Option<plain::Asked>,
    publishing: Option<redisson::Asked>,
    marks: AskedMarks,
    inbox: Option<ReplyTo>,
    info: ReplyTo,
}

/// Connects to one address, and remembers the last server process.
pub(crate) struct Connector {
    login: Login,
    settings: Settings,
    listeners: Arc<Listeners>,
    last: Option<LastSeen>,
    seen_processes: SeenProcesses,
    /// The IDs of earlier connections to that process over which a request may still arrive that stores a
    /// key.
    abandoned: Vec<i64>,
    /// Whether there was one that the server does not end for us.
    has_unclosed: bool,
    /// Whether the server pushes messages to channels, as far as is known.
    has_channels: bool,
    secret: InboxSecret,
}

impl Connector {
    pub(crate) fn new(address: Address, settings: Settings, listeners: Arc<Listeners>) -> Connector {
        Connector {
            login: Login::new(address, Peer::Server, &settings),
            secret: InboxSecret::new(&settings.key_prefix),
            settings,
            listeners,
            last: None,
            seen_processes: SeenProcesses::default(),
            abandoned: Vec::new(),
            has_unclosed: false,
            has_channels: true,
        }
    }

    /// Records that the connection has ended while requests were unanswered. `client` is its ID, if the server
    /// can end it for us.
    pub(crate) fn abandon(&mut self, client: Option<i64>) {
        match client {
            Some(client) => self.abandoned.push(client),
            None => self.has_unclosed = true,
        }
    }

    /// Returns whether a request of an earlier connection to the process may still arrive.
    pub(super) fn expects_late_requests(&self) -> bool {
        self.has_unclosed || !self.abandoned.is_empty()
    }

    /// Returns the ACL user of the requests.
    pub(crate) fn user(&self) -> &str {
        self.login.user()
    }

    /// Returns where to compare the lists of nodes of the clients.
    pub(super) fn node_lists(&self) -> Option<NodeListsNote> {
        NodeListsNote::of(&self.settings)
    }

    /// Returns how to read the secret of the inboxes again.
    pub(super) fn secret(&self) -> InboxSecret {
        self.secret.clone()
    }

    /// Returns the randomness of a new secret.
    pub(super) fn entropy(&self) -> Arc<dyn Entropy> {
        Arc::clone(&self.settings.entropy)
    }

    /// Returns whether the server can push, as found at the last login.
    pub(super) fn hears_pushes(&self) -> bool {
        self.login.hears_pushes()
    }

    /// Records that the process was alive at `now`.
    pub(crate) fn answered(&mut self, now: Moment) {
        if let Some(last) = &mut self.last {
            last.answered(now);
        }
    }

    /// Records that the process has invalidated all keys at `now`: its data may be others (rule I-51).
    pub(crate) fn invalidated(&mut self, now: Moment) {
        if let Some(last) = &mut self.last {
            last.invalidated(now);
        }
    }

    /// Records that the process has another secret, although its data are the same.
    pub(crate) fn has_secret(&mut self, secret: Box<[u8]>) {
        if let Some(last) = &mut self.last {
            last.has_secret(secret);
        }
    }

    /// Dials, logs in and performs the handshake, within the timeouts.
    pub(crate) async fn connect(&mut self) -> Result<ReadyConnection, NodeError> {
        let late = self.login.steps.late();
        if let Either::Left((result, _)) = select(pin!(self.attempt()), pin!(late)).await {
            return result;
        }
        Err(self.out_of_time())
    }

    /// Like [`connect`](Connector::connect), without the handshake.
    pub(super) async fn greet_in_time(&mut self) -> Result<(Connection, Option<Watch>), NodeError> {
        let late = self.login.steps.late();
        if let Either::Left((result, _)) = select(pin!(self.greet()), pin!(late)).await {
            return result;
        }
        Err(self.out_of_time())
    }

    async fn attempt(&mut self) -> Result<ReadyConnection, NodeError> {
        let mut asked = self.introduction();
        let (mut connection, watch, sent) = self.greet_and(Some(&asked.introduction)).await?;
        let sent = if let Some(sent) = sent {
            sent
        } else {
            if asked.hints != self.asks_for_hints() {
                asked = self.introduction();
            }
            asked.introduction.write(&mut connection);
            self.settings.clock.now()
        };
        self.login.steps.next(1);
        let mut replies = asked.introduction.replies(&mut connection).await.map_err(unconnected)?;
        let round_trip = self.settings.clock.now().since(sent);
        let Asked {
            start, time, tracking, max_ttl, noted, supported, publishing, marks, inbox, info, ..
        } = asked;
        let wall = time.and_then(|time| replies.take(time)).and_then(time_in);
        let info = match replies.take(info) {
            Some(Value::ServerError(error)) => return Err(refused(&error, self.login.asked("INFO"))),
            info => info.and_then(text).ok_or_else(|| unexpected("unexpected answer to INFO"))?,
        };
        let info = Info::of(&info);
        let mut marks = marks.of(&mut replies);
        let has_inbox =
            inbox.map(|asked| self.has_subscribed(&mut replies, asked)).transpose()? == Some(true);
        let inbox = marks.secret.clone().filter(|_| has_inbox);
        let mut facts = Facts { never_forgets: self.login.address.never_forgets(), ..facts_in(&info) };
        let membership = self.settings.membership;
        let mut process =
            Process::fit_to_vote(&info, membership).map_err(|unfit| self.not_yet(unfit, &facts))?;
        if membership == Membership::Alone && self.login.address.service().is_none() {
            self.seen_processes.note(&process, self.settings.clock.now())?;
        }
        let history = match membership {
            Membership::Alone => None,
            Membership::OfCluster => Some(history_in(&info)?.into()),
        };
        let supported = if let Some(asked) = supported {
            let (client, software, now) =
                (connection.client, facts.software.as_ref(), self.settings.clock.now());
            SupportedCommands::read(&mut replies, &asked, wall, client, software, now).map_err(|reason| {
                NodeError::Unfit { kind: NodeErrorKind::WrongServer, reason: reason.into() }
            })?
        } else {
            SupportedCommands::default()
        };
        let publishing = publishing.map(|asked| Publishing::read(&mut replies, &asked, self.user()));
        let redisson = publishing.transpose()?;
        let supported = if redisson.is_some() { supported.scripts_only() } else { supported };
        let noted = noted.and_then(|noted| replies.take(noted));
        facts.max_ttl = noted.as_ref().and_then(max_ttl_answer);
        let max_ttl = max_ttl.filter(|_| matches!(noted, Some(Value::Int(_))));
        // Hints are optional: a server or user that does not support them can still vote.
        let hints = tracking.is_some_and(|reply| matches!(replies.take(reply), Some(Value::Okay)));
        let note = start.and_then(|start| replies.take(start));
        self.date(&mut connection, (note, wall), (&mut process, &mut marks, &mut facts)).await?;
        let pushes_own = facts
            .software
            .as_ref()
            .is_some_and(|software| software.name == "redis" && software.numbers() < [6, 2, 0]);
        facts.service = self.login.address.service().map(Into::into);
        let mut past = Past::Master;
        if let (Some(gate), Some(history)) = (&self.settings.gate, &process.history) {
            self.login.steps.next(1);
            let master_since = master_since(&mut connection, gate, &process, history, self.user()).await?;
            facts.master_since = Some(master_since);
            past = Past::Promoted { master_since };
        }
        let supported = self.end_abandoned(&mut connection, &process, supported).await?;
        let now = self.settings.clock.now();
        let identity = self.recognise(process, past, marks, now);
        if connection.is_invalidated {
            self.invalidated(now);
            return Err(unconnected(ConnectionError::Invalidated));
        }
        Ok(ReadyConnection {
            connection,
            identity,
            hints,
            pushes_own,
            inbox,
            max_ttl,
            facts,
            history,
            watch,
            supported,
            redisson,
            round_trip,
        })
    }

    /// Returns all questions that need no earlier answer.
    fn introduction(&self) -> Asked {
        let mut introduction = Introduction::new();
        let gate = self.settings.gate.as_ref();
        let start = gate.map(|gate| introduction.add(&start::request(gate)));
        // The name is for people who read the server's list of clients. The reply does not check: a user
        // without the permission can still vote.
        introduction.add(cmd("CLIENT").arg("SETNAME").arg(CLIENT_NAME));
        let hints = self.asks_for_hints();
        // NOLOOP: our own changes need no notification.
        let tracking = hints.then(|| introduction.add(cmd("CLIENT").arg(&["TRACKING", "ON", "NOLOOP"])));
        // After that, so that the server pushes later changes. A user without the permission can still vote.
        let max_ttl = MaxTtlNote::of(&self.settings);
        let noted = max_ttl.as_ref().map(|note| introduction.add(&note.request()));
        let alone = self.settings.membership == Membership::Alone;
        let supported = alone.then(|| SupportedCommands::ask(&mut introduction, &self.settings.key_prefix));
        let of_member = || gate.map(|_| introduction.add(&cmd("TIME")));
        let time = supported.as_ref().map(|asked| asked.time).or_else(of_member);
        let of_redisson = self.login.address.layout() == Layout::Redisson;
        let publishing = of_redisson.then(|| Publishing::ask(&mut introduction, &self.settings));
        let marks = self.ask_for_marks(&mut introduction);
        let inbox = if hints { self.subscribe(&mut introduction) } else { None };
        let info = introduction.add(&cmd("INFO"));
        Asked {
            introduction,
            hints,
            start,
            time,
            tracking,
            max_ttl,
            noted,
            supported,
            publishing,
            marks,
            inbox,
            info,
        }
    }

    /// Whether the server is asked to push changes.
    fn asks_for_hints(&self) -> bool {
        self.login.hears_pushes() && self.listeners.any()
    }

    /// Asks for what shows whether the data are those of the handshake before. Leaves a secret where there is none.
    fn ask_for_marks(&self, introduction: &mut Introduction) -> AskedMarks {
        let keeps_one = self.settings.gate.is_some()
            && self.settings.membership == Membership::Alone
            && self.login.address.layout() == Layout::Own;
        let secret = keeps_one.then(|| {
            let [leave, read] = self.secret.requests(&*self.settings.entropy);
            introduction.add(&leave);
            introduction.add(&read)
        });
        let doubtful = self.last.as_ref().is_some_and(LastSeen::is_doubtful);
        let loads = doubtful.then(|| introduction.add(cmd("INFO").arg("commandstats")));
        AskedMarks { secret, loads }
    }

    /// Reads for how long clients have known the process, and leaves a note for others (rules I-24 and I-51). `server`
    /// is its wall clock.
    async fn date(
        &self,
        connection: &mut Connection,
        (note, server): (Option<Value>, Option<Duration>),
        (process, marks, facts): (&mut Process, &mut Marks, &mut Facts),
    ) -> Result<(), NodeError> {
        let Some(gate) = &self.settings.gate else { return Ok(()) };
        let clocks = WallClocks { server, ours: self.settings.clock.wall() };
        let note = start::noted(note, &process.run_id);
        believe(note, clocks, (process, marks, facts));
        let says_less = note.is_some_and(|note| note.stays_new(clocks))
            || (process.clock_set_back && note.is_none_or(|note| !note.set_back));
        if let Some((age, is_anew)) = self.age_to_note(process, marks, says_less) {
            let note = ToNote { age, set_back: process.clock_set_back, is_anew };
            let left = start::leave_note(connection, gate, &process.run_id, note, clocks.ours);
            let left = left.await.map_err(unconnected)?;
            if left.is_some() {
                // Another client may have noted a loss meanwhile.
                believe(left, clocks, (process, marks, facts));
            }
        }
        Ok(())
    }

    /// Returns the age to leave in a note for other clients: of a process without one, of a history that has begun anew, or
    /// where the note `says_less` than is known now; and whether the history has begun anew.
    fn age_to_note(&self, process: &Process, marks: &Marks, says_less: bool) -> Option<(Duration, bool)> {
        let now = self.settings.clock.now();
        match self.last.as_ref().and_then(|last| last.lost_data(process, marks, now)) {
            Some(since) => Some((now.since(since), true)),
            None => (marks.known.is_none() || says_less).then_some((process.uptime, marks.is_anew)),
        }
    }

    /// Subscribes to the inboxes of the listeners, if the server may offer locks.
    fn subscribe(&self, introduction: &mut Introduction) -> Option<ReplyTo> {
        if !self.has_channels || !may_offer(&self.login.address, &self.settings) {
            return None;
        }
        let channel = |inbox: InboxId| inbox.channel(&self.settings.key_prefix);
        let channels: Vec<_> = self.listeners.inboxes().into_iter().map(channel).collect();
        if channels.is_empty() {
            return None;
        }
        Some(introduction.subscribe(&channels))
    }

    /// Returns whether the server pushes messages to the inboxes.
    fn has_subscribed(&mut self, replies: &mut Replies, asked: ReplyTo) -> Result<bool, NodeError> {
        let refused = matches!(replies.take(asked), Some(Value::ServerError(_)));
        if !replies.subscribed && !refused {
            // Messages to the channels would be taken for replies. A user without the permission gets an
            // error, and no offers.
            self.has_channels = false;
            return Err(unexpected("it replies to SUBSCRIBE but does not push; reconnecting without"));
        }
        Ok(replies.subscribed)
    }

    /// Makes the server end our earlier connections, if it is the process that they led to: requests that are
    /// still in flight on them must not be carried out after those from here on. Returns the commands that may
    /// be used: if a connection is left, only those that look for tombstones.
    async fn end_abandoned(
        &mut self,
        connection: &mut Connection,
        process: &Process,
        supported: SupportedCommands,
    ) -> Result<SupportedCommands, NodeError> {
        if self.last.as_ref().is_none_or(|last| !last.is(&process.run_id)) {
            self.abandoned.clear();
            self.has_unclosed = false;
        }
        if supported.client.is_none() || self.has_unclosed {
            return Ok(supported.behind_late_requests());
        }
        if self.abandoned.is_empty() {
            return Ok(supported);
        }
        let mut ends = Pipeline::with_capacity(self.abandoned.len());
        for client in &self.abandoned {
            ends.cmd("CLIENT").arg("KILL").arg("ID").arg(*client);
        }
        self.login.steps.next(1);
        let answers = connection.exchange(&ends).await.map_err(unconnected)?;
        // An error may concern one moment only, so the next handshake asks again.
        if let Some(error) = answers.into_iter().find_map(server_error) {
            return Err(refused(&error, self.login.asked("CLIENT KILL")));
        }
        self.abandoned.clear();
        Ok(supported)
    }

    /// Finds the server, dials and logs in. Sends no requests yet.
    pub(super) async fn greet(&mut self) -> Result<(Connection, Option<Watch>), NodeError> {
        let (connection, watch, _) = self.greet_and(None).await?;
        Ok((connection, watch))
    }

    /// As [`greet`](Connector::greet), and sends the questions of an introduction with the login, if that decides nothing
    /// about them. Returns when they were sent, if they were.
    async fn greet_and(
        &mut self,
        introduction: Option<&Introduction>,
    ) -> Result<(Connection, Option<Watch>, Option<Moment>), NodeError> {
        let Some(mut sentinels) = Sentinels::of(&self.login.address, &self.settings) else {
            debug_assert!(self.login.address.service().is_none(), "its Sentinels confirm no vote (rule T-1)");
            let (connection, sent) = self.login.hello_and(introduction).await?;
            return Ok((connection, None, sent));
        };
        let asked = self.settings.clock.now();
        // This has a timeout of its own, and reports which Sentinels have not answered. So it must end before
        // this step, also on a machine with late timers.
        let limit = self.settings.connect_timeout;
        self.login.steps.next_within(limit.sentinels().saturating_add(limit.step()));
        let named = sentinels.master().await?;
        self.login.target = self.login.address.at(named.master.clone());
        let connected = self.login.hello_and(introduction).await.map_err(|error| self.of_master(error));
        let (connection, sent) = connected?;
        Ok((connection, Some(sentinels.watch(named, asked)), sent))
    }

    /// Returns the address at which it found the server.
    pub(super) fn target(&self) -> &Address {
        &self.login.target
    }

    /// Converts the error of a replica that Sentinels report as master: it will become master, or they will
    /// report another.
    fn not_yet(&self, unfit: NodeError, facts: &Facts) -> NodeError {
        if self.login.address.service().is_none() || facts.role != Some(Role::Replica) {
            return unfit;
        }
        let reason = format!("the Sentinels report {} as the master, but it is a replica", self.login.target);
        NodeError::Unreachable { reason: reason.into() }
    }

    /// Names the master that Sentinels report, if it cannot be reached: they may know it by an address that leads
    /// nowhere from here.
    fn of_master(&self, error: NodeError) -> NodeError {
        if self.login.address.service().is_none() || self.login.target.service().is_some() {
            return error;
        }
        let master = format!("its master {}", self.login.target);
        match error {
            NodeError::Unreachable { reason } => NodeError::Unreachable { reason: reason.within(&master) },
            NodeError::Unresponsive { reason } => NodeError::Unresponsive { reason: reason.within(&master) },
            NodeError::Unanswered { .. }
            | NodeError::Disconnected { .. }
            | NodeError::Overloaded { .. }
            | NodeError::NotAsked
            | NodeError::Unfit { .. }
            | NodeError::OtherLimit { .. }
            | NodeError::UnexpectedReply { .. }
            | NodeError::Failed { .. }
            | _ => error,
        }
    }

    /// The error of a timeout.
    fn out_of_time(&self) -> NodeError {
        let limit = humantime::format_duration(self.settings.connect_timeout.step());
        let likely = match self.login.target.endpoint() {
            // A plain Redis takes the first bytes of TLS for a command, and waits for the end of its line.
            Endpoint::Tls { .. } if !self.login.steps.is_accepted() => {
                "write redis:// if its port does not speak TLS: "
            }
            Endpoint::Tls { .. }
            | Endpoint::Tcp { .. }
            | Endpoint::Unix { .. }
            | Endpoint::Sentinel { .. } => "",
        };
        let missed = match self.settings.connect_timeout {
            ConnectTimeout::Whole(_) => "complete the handshake",
            ConnectTimeout::EachStep(_) => "complete a step of the handshake",
        };
        let reason = format!("{likely}it did not {missed} within {limit}").into();
        self.of_master(if self.login.steps.is_accepted() {
            NodeError::Unresponsive { reason }
        } else {
            NodeError::Unreachable { reason }
        })
    }

    /// Returns the identity of `process`, which answered at `now` and has these marks.
    fn recognise(&mut self, process: Process, past: Past, marks: Marks, now: Moment) -> Arc<Identity> {
        // Where Sentinels or clusters promote replicas, the old master may still be asked for a while.
        let in_cluster = self.settings.membership == Membership::OfCluster;
        let promoted_by_others =
            past != Past::Master && (in_cluster || self.login.address.service().is_some());
        let holding_back = if self.login.address.never_forgets() {
            HoldingBack::Never
        } else if promoted_by_others {
            HoldingBack::For(SUCCESSION)
        } else {
            HoldingBack::For(Duration::ZERO)
        };
        let last = LastSeen::after(self.last.as_ref(), process, past, (marks, now), holding_back);
        Arc::clone(self.last.insert(last).identity())
    }
}

/// Records what `note` says of a process, or that there is none.
fn believe(
    note: Option<Note>,
    clocks: WallClocks,
    (process, marks, facts): (&mut Process, &mut Marks, &mut Facts),
) {
    marks.began = note.map(|note| note.began);
    marks.is_anew = note.is_some_and(|note| note.is_anew);
    marks.known = note.and_then(|note| note.age(clocks));
    facts.known = marks.known;
    facts.uptime = facts.uptime.filter(|_| note.is_none_or(|note| !note.set_back));
    process.uptime = believed(facts.uptime, process.turns, facts.known);
    process.clock_set_back = facts.uptime.is_none();
}

#[cfg(test)]
mod tests;
