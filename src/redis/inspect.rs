//! The health check of one server: collects all facts that affect locks, over connections of its own.

use std::error::Error as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::connection::{Connection, text};
use super::error::{Peer, SENTINEL_LOGIN, SentCommand, explain, failed, is_closed, refused, unexpected};
use super::handshake::Connector;
use super::info::{Info, facts_in, role_in_cluster, time_in};
use super::process::Process;
use super::promotion;
use super::sentinel::SentinelErrors;
use super::server_error::ServerError;
use super::settings::{Membership, Notices, Settings};
use super::start::{self, WallClocks};
use super::{RedisNode, node_lists, scan};
use crate::address::{Address, Endpoint};
use crate::node::facts::{ClockReading, ConnectFailure, Facts, Fsync, Location, Role};
use crate::node::{NodeError, NodeErrorKind};
use crate::runtime::clock::{Clock, within};
use quorlock_protocol::{Moment, companion, max_ttl_note};

mod neighbours;
mod permissions;
mod probe;

#[cfg(test)]
pub(in crate::redis) use permissions::refusal_of;
use probe::Probe;

/// The number of small requests that measure the round trip. Of twenty, the longest is the 99th percentile.
const ROUND_TRIPS: usize = 20;
/// The timeout of the health check, as a multiple of the timeout of one step. A healthy server takes some
/// forty round trips: twelve seconds to the other side of the earth.
const PATIENCE: u32 = 30;

/// Examines the server at `address`. `key` is free, and free again afterwards.
pub(in crate::redis) async fn examine(address: Address, settings: Settings, key: Arc<str>) -> Facts {
    let end = settings.clock.now() + settings.connect_timeout.step().saturating_mul(PATIENCE);
    let user = address.user().unwrap_or("default");
    let mut facts =
        Facts { service: address.service().map(Into::into), user: Some(user.into()), ..Facts::default() };
    let mut connector = Connector::new(address.clone(), settings.clone(), Arc::default());
    match ask_all(&mut connector, &address, &settings, &key, end, &mut facts).await {
        Ok(()) => {}
        Err(error) => {
            facts.failure = Some(match without_tls(connector.target(), &settings, &error).await {
                Plain::Spoken => {
                    let error = failed(NodeErrorKind::Tls, "no TLS: its port speaks plain text");
                    ConnectFailure { cure: Some(WITHOUT_TLS), error }
                }
                Plain::Silent => {
                    let silent = humantime::format_duration(settings.connect_timeout.step());
                    let reason = format!("it was silent for {silent}, with TLS and without").into();
                    ConnectFailure { cure: None, error: NodeError::Unresponsive { reason } }
                }
                Plain::Unknown => {
                    let error = first_words(connector.target(), &settings, &error).await.unwrap_or(error);
                    ConnectFailure { cure: cure(&error), error }
                }
            });
        }
    }
    if address.never_forgets() {
        facts.never_forgets = true;
        // As in the handshake (rule I-53).
        facts.age = Some(Duration::MAX);
    }
    facts.place = Some(place(connector.target(), &settings, end).await);
    facts
}

/// Returns the fix, if it differs from that for a server.
fn cure(error: &NodeError) -> Option<&'static str> {
    let of_sentinels = error.source().and_then(|source| source.downcast_ref::<SentinelErrors>()).is_some();
    (of_sentinels && error.kind() == NodeErrorKind::Login).then_some(SENTINEL_LOGIN)
}

/// Collects the facts. Those before an error are kept.
async fn ask_all(
    connector: &mut Connector,
    address: &Address,
    settings: &Settings,
    key: &Arc<str>,
    end: Moment,
    facts: &mut Facts,
) -> Result<(), NodeError> {
    let mut session = InspectSession::open(connector, settings, end).await?;
    let info = introduction(&mut session, settings.membership, facts).await?;
    let info = Info::of(&info);
    if settings.membership == Membership::OfCluster {
        (facts.role, facts.of_cluster) = (role_in_cluster(&info), true);
        let answer = session.ask(&["CONFIG", "GET", "cluster-require-full-coverage"]).await?;
        facts.full_coverage = last_text(answer).map(|wanted| wanted == "yes");
    }
    if settings.membership == Membership::Alone && address.service().is_none() && facts.identity.is_some() {
        neighbours::ask(&mut session, address, settings, facts).await?;
    }
    known(&mut session, settings, &info, facts).await?;
    measure(&mut session, facts).await?;
    persistence(&mut session, facts).await?;
    hints(&mut session, connector.hears_pushes(), facts).await?;
    if facts.role == Some(Role::Master) && facts.unfit.is_none() && facts.loading != Some(true) {
        master_since(&mut session, settings, &info, facts).await?;
        max_ttl(&mut session, settings, facts).await?;
        node_lists(&mut session, settings, facts).await?;
        other_prefixes(&mut session, settings, facts).await?;
        let probe = Probe::new(key, address.layout(), &*settings.entropy);
        permissions::ask(&mut session, &probe, facts).await?;
        // The settings of a health check may differ from those of locks: it leaves no `max_ttl` note.
        let settings =
            Settings { notices: Notices::SentElsewhere, max_ttls: None, lists: None, ..settings.clone() };
        let node = RedisNode::with(address.clone(), settings);
        facts.lock = Some(probe.lock(&node, session.clock(), end, facts).await);
        session.ask_each(&probe.removal()).await?;
    }
    Ok(())
}

/// The fix for an address with TLS where there is none.
const WITHOUT_TLS: &str = "write redis:// instead of rediss://, or give the server's TLS port";

/// What a port on which TLS failed says to a client without TLS.
enum Plain {
    /// It answers.
    Spoken,
    /// It accepts the connection and says nothing.
    Silent,
    /// Not asked, or anything else.
    Unknown,
}

/// Asks a port on which TLS failed without TLS. A server that takes the first bytes of TLS for a line waits for its
/// end: to a TLS client it is as silent as a stopped one.
async fn without_tls(address: &Address, settings: &Settings, error: &NodeError) -> Plain {
    let Endpoint::Tls { host, port } = address.endpoint() else { return Plain::Unknown };
    if !matches!(error.kind(), NodeErrorKind::Tls | NodeErrorKind::Unreachable) {
        return Plain::Unknown;
    }
    // Without the password, which must not be sent in plain text.
    let plain = address.at(Endpoint::Tcp { host: host.clone(), port: *port });
    let limit = settings.connect_timeout.step();
    let dialled = within(&*settings.clock, limit, settings.dial.dial(&plain)).await;
    let Some(Ok(mut stream)) = dialled else { return Plain::Unknown };
    let answers = async {
        stream.write_all(b"PING\r\n").await.ok()?;
        let mut first = [0];
        stream.read_exact(&mut first).await.ok()?;
        // A status, or an error such as that a password is required.
        Some(matches!(&first, b"+" | b"-"))
    };
    match within(&*settings.clock, limit, answers).await {
        Some(Some(true)) => Plain::Spoken,
        Some(Some(false) | None) => Plain::Unknown,
        None => Plain::Silent,
    }
}

/// How long to wait for a server to send something before the first request.
const FIRST_WORDS: Duration = Duration::from_millis(200);

/// Returns the message of a server that closes connections immediately. A client that has sent something may
/// not receive it: the system drops received data when a connection is reset.
async fn first_words(address: &Address, settings: &Settings, error: &NodeError) -> Option<NodeError> {
    if !is_closed(error) {
        return None;
    }
    let mut words = [0; 512];
    let listen = async {
        let mut stream = settings.dial.dial(address).await.ok()?;
        let length = stream.read(&mut words).await.ok()?;
        let line = String::from_utf8_lossy(words.get(..length)?).into_owned();
        Some(line.strip_prefix('-')?.lines().next()?.to_owned())
    };
    let limit = FIRST_WORDS.min(settings.connect_timeout.step());
    let line = within(&*settings.clock, limit, listen).await.flatten()?;
    let asked = SentCommand { command: "HELLO", key: "", user: "default", peer: Peer::Server };
    Some(explain(ServerError::on_line(&line), asked))
}

/// Reads what the server reports about itself, or nothing if the user may not ask.
async fn introduction(
    session: &mut InspectSession,
    membership: Membership,
    facts: &mut Facts,
) -> Result<String, NodeError> {
    let answer = session.ask(&["INFO"]).await?;
    if let Value::ServerError(error) = answer {
        if !ServerError::read(&error).kind().is_forbidden() {
            let user = facts.user.as_deref().unwrap_or("default");
            return Err(refused(&error, SentCommand { command: "INFO", key: "", user, peer: Peer::Server }));
        }
        permissions::note(&error, &permissions::INFO, facts);
        return Ok(String::new());
    }
    let info = text(answer).ok_or_else(|| unexpected("unexpected answer to INFO"))?;
    let fields = Info::of(&info);
    *facts = Facts { service: facts.service.take(), user: facts.user.take(), ..facts_in(&fields) };
    // The same judgement as in the handshake.
    if let Err(NodeError::Unfit { reason, .. }) = Process::fit_to_vote(&fields, membership) {
        facts.unfit = Some(reason.to_string().into());
    }
    Ok(info)
}

/// Reads how long clients have known the process. The test lock records it as any lock does.
async fn known(
    session: &mut InspectSession,
    settings: &Settings,
    info: &Info<'_>,
    facts: &mut Facts,
) -> Result<(), NodeError> {
    let (Some(gate), Some(run_id)) = (&settings.gate, info.field("run_id")) else { return Ok(()) };
    let note = session.ask(&["GET", &start::key(gate)]).await?;
    let note = start::noted(Some(note), run_id);
    let server = time_in(session.ask(&["TIME"]).await?);
    facts.known = note.and_then(|note| note.age(WallClocks { server, ours: session.clock.wall() }));
    facts.uptime = facts.uptime.filter(|_| note.is_none_or(|note| !note.set_back));
    Ok(())
}

/// Reads since when a promoted server is master, and records it, as any client does.
async fn master_since(
    session: &mut InspectSession,
    settings: &Settings,
    info: &Info<'_>,
    facts: &mut Facts,
) -> Result<(), NodeError> {
    let (Some(gate), Some(true)) = (&settings.gate, facts.promoted) else { return Ok(()) };
    let (Some(run_id), Some(history)) = (info.field("run_id"), info.field("master_replid")) else {
        return Ok(());
    };
    let answers = session.ask_each(&[promotion::request(gate, run_id, history).to_vec()]).await?;
    facts.master_since = answers.first().and_then(promotion::answer);
    Ok(())
}

/// Reads the `max_ttl` of the clients, and leaves it unchanged.
async fn max_ttl(
    session: &mut InspectSession,
    settings: &Settings,
    facts: &mut Facts,
) -> Result<(), NodeError> {
    let Some(gate) = &settings.gate else { return Ok(()) };
    let noted = text(session.ask(&["GET", &max_ttl_note(gate)]).await?);
    let millis = noted.and_then(|noted| noted.parse().ok());
    facts.max_ttl = millis.map(Duration::from_millis).filter(|theirs| !theirs.is_zero());
    Ok(())
}

/// Reads the lists of nodes of the clients.
async fn node_lists(
    session: &mut InspectSession,
    settings: &Settings,
    facts: &mut Facts,
) -> Result<(), NodeError> {
    let Some(gate) = settings.gate.as_ref().filter(|_| settings.membership == Membership::Alone) else {
        return Ok(());
    };
    let answers = session.ask_each(&[node_lists::reading(gate).to_vec()]).await?;
    facts.node_lists = answers.into_iter().next().map(node_lists::lists_in).unwrap_or_default();
    Ok(())
}

/// How many pages of 1,000 keys are looked at for the notes of clients with other prefixes. The server does nothing else for
/// a millisecond or two of each.
const PAGES: usize = 50;
/// The most prefixes that are kept.
const MOST_PREFIXES: usize = 16;

/// Looks for clients with other key prefixes, each of which has left a note of its `max_ttl`.
async fn other_prefixes(
    session: &mut InspectSession,
    settings: &Settings,
    facts: &mut Facts,
) -> Result<(), NodeError> {
    if settings.membership != Membership::Alone {
        return Ok(());
    }
    let mut cursor = "0".to_owned();
    for _ in 0..PAGES {
        let request = ["SCAN", &cursor, "MATCH", "*:quorlock:gate:max-ttl", "COUNT", "1000"];
        // A user without the right to list keys does not learn of others.
        let Ok((next, keys)) = scan::page(session.ask(&request).await?, "") else { return Ok(()) };
        for key in &keys {
            let Some((prefix, "gate:max-ttl")) = companion(key) else { continue };
            let is_new = facts.other_prefixes.iter().all(|known| **known != *prefix);
            if is_new && prefix != &*settings.key_prefix && facts.other_prefixes.len() < MOST_PREFIXES {
                facts.other_prefixes.push(prefix.into());
            }
        }
        if next == "0" {
            break;
        }
        cursor = next;
    }
    Ok(())
}

/// Requests the time repeatedly. A server that refuses it takes as long to say so.
async fn measure(session: &mut InspectSession, facts: &mut Facts) -> Result<(), NodeError> {
    let half_time = session.clock.now() + session.end.since(session.clock.now()) / 2;
    for _ in 0..ROUND_TRIPS {
        let (wall, sent) = (session.clock.wall(), session.clock.now());
        let answer = session.ask(&["TIME"]).await?;
        let now = session.clock.now();
        let took = now.since(sent);
        facts.round_trips.push(took);
        let reading = time_in(answer).map(|theirs| reading(theirs, wall, took));
        // The fastest reply has the most accurate time.
        if facts.clock.is_none_or(|best| reading.is_some_and(|new| new.uncertainty < best.uncertainty)) {
            facts.clock = reading;
        }
        if now > half_time {
            break;
        }
    }
    Ok(())
}

/// Compares the clocks: a clock showed `theirs` at some point in the time `took` after ours had shown `wall`.
fn reading(theirs: Duration, wall: Duration, took: Duration) -> ClockReading {
    let ours = wall + took / 2;
    let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    // TIME has a resolution of one microsecond.
    ClockReading::new(micros(theirs).saturating_sub(micros(ours)), took / 2 + Duration::from_micros(1))
}

/// Reads the settings of persistence. Managed servers and restricted users do not report them: then they are
/// unknown.
async fn persistence(session: &mut InspectSession, facts: &mut Facts) -> Result<(), NodeError> {
    let answer = session.ask(&["CONFIG", "GET", "appendfsync"]).await?;
    facts.fsync = last_text(answer).and_then(|policy| match &*policy {
        "always" => Some(Fsync::Always),
        "everysec" => Some(Fsync::EverySecond),
        "no" => Some(Fsync::Never),
        _ => None,
    });
    Ok(())
}

/// Returns the value in a list or map of one name and its value.
fn last_text(answer: Value) -> Option<String> {
    let last = if let Value::Array(mut items) = answer {
        items.pop()?
    } else if let Value::Map(mut pairs) = answer {
        pairs.pop()?.1
    } else {
        return None;
    };
    text(last)
}

async fn hints(session: &mut InspectSession, can_push: bool, facts: &mut Facts) -> Result<(), NodeError> {
    if !can_push {
        facts.hints = Some(false);
        return Ok(());
    }
    let on = session.ask(&["CLIENT", "TRACKING", "ON", "NOLOOP"]).await?;
    facts.hints = Some(matches!(on, Value::Okay));
    if let Value::ServerError(error) = on {
        permissions::note(&error, &permissions::TRACKING, facts);
    } else {
        session.ask(&["CLIENT", "TRACKING", "OFF"]).await?;
    }
    Ok(())
}

async fn place(address: &Address, settings: &Settings, end: Moment) -> Location {
    let (host, encrypted) = match address.endpoint() {
        Endpoint::Unix { .. } => return Location::new(None, Vec::new(), true),
        // The Sentinels have not reported its address.
        Endpoint::Sentinel { service, .. } => return Location::new(Some(service.clone()), Vec::new(), false),
        Endpoint::Tcp { host, .. } => (host, false),
        Endpoint::Tls { host, .. } => (host, true),
    };
    let limit = settings.connect_timeout.step().min(end.since(settings.clock.now()));
    let mut addresses: Vec<IpAddr> =
        within(&*settings.clock, limit, settings.dial.resolve(host)).await.unwrap_or_default();
    addresses.sort_unstable();
    addresses.dedup();
    Location::new(Some(host.clone()), addresses, encrypted)
}

/// A connection that sends one request after the other, each with a timeout.
pub(super) struct InspectSession {
    connection: Connection,
    clock: Arc<dyn Clock>,
    limit: Duration,
    end: Moment,
}

impl InspectSession {
    pub(super) async fn open(
        connector: &mut Connector,
        settings: &Settings,
        end: Moment,
    ) -> Result<InspectSession, NodeError> {
        let (connection, _) = connector.greet_in_time().await?;
        let (clock, limit) = (Arc::clone(&settings.clock), settings.connect_timeout.step());
        Ok(InspectSession { connection, clock, limit, end })
    }

    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(super) async fn ask(&mut self, words: &[&str]) -> Result<Value, NodeError> {
        let command = words.iter().map(|word| (*word).to_owned()).collect();
        let answers = self.ask_each(&[command]).await?;
        answers.into_iter().next().ok_or_else(|| unexpected("unexpected end of its answers"))
    }

    /// Sends all commands in one write, and returns the replies in the same order.
    pub(super) async fn ask_each(&mut self, commands: &[Vec<String>]) -> Result<Vec<Value>, NodeError> {
        let mut pipeline = Pipeline::with_capacity(commands.len());
        for command in commands {
            let mut words = command.iter();
            pipeline.cmd(words.next().map_or("", String::as_str));
            for word in words {
                pipeline.arg(word);
            }
        }
        let limit = self.limit.min(self.end.since(self.clock.now()));
        let answers = within(&*self.clock, limit, self.connection.exchange(&pipeline)).await;
        // The replies may still arrive: the connection must not be used any more.
        let answers = answers.ok_or(NodeError::Unanswered { waited: limit })?;
        answers.map_err(|reason| NodeError::Disconnected { reason: reason.into() })
    }
}
