//! The check-up of one server: everything that bears on locks, asked over connections of its own.

use std::error::Error as _;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use redis::{Pipeline, Value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::connection::{Connection, text};
use super::error::{Peer, SENTINEL_LOGIN, SentCommand, explain, failed, is_closed, unexpected};
use super::handshake::Connector;
use super::info::{facts_in, field, role_in_cluster, time_in};
use super::process::Process;
use super::promotion;
use super::sentinel::SentinelErrors;
use super::server_error::ServerError;
use super::settings::{Membership, Notices, Settings};
use super::{RedisNode, start};
use crate::address::{Address, Endpoint};
use crate::node::facts::{ClockReading, ConnectFailure, Facts, Fsync, Location, Role};
use crate::node::{NodeError, NodeErrorKind};
use crate::runtime::clock::Clock;
use quorlock_protocol::{Moment, max_ttl_note};

mod neighbours;
mod permissions;
mod probe;

use probe::Probe;

/// How many small requests measure the way there. With twenty, the longest is the 99th percentile.
const ROUND_TRIPS: usize = 20;
/// So many times the limit of one step a check-up takes at most. A healthy one takes some forty round
/// trips: twelve seconds to the other side of the earth and back.
const PATIENCE: u32 = 30;

/// Asks the server at `address` what is to be known of it. `key` is free, and free again afterwards.
pub(in crate::redis) async fn examine(address: Address, settings: Settings, key: Arc<str>) -> Facts {
    let end = settings.clock.now() + settings.connect_timeout.step().saturating_mul(PATIENCE);
    let mut facts = Facts { service: address.service().map(Into::into), ..Facts::default() };
    let mut connector = Connector::new(address.clone(), settings.clone(), Arc::default());
    match ask_all(&mut connector, &address, &settings, &key, end, &mut facts).await {
        Ok(()) => {}
        Err(error) => {
            facts.trouble = Some(if speaks_without_tls(connector.target(), &settings, &error).await {
                let error = failed(NodeErrorKind::Tls, "no TLS: its port answers without");
                ConnectFailure { cure: Some(WITHOUT_TLS), error }
            } else {
                let error = first_words(connector.target(), &settings, &error).await.unwrap_or(error);
                ConnectFailure { cure: cure(&error), error }
            });
        }
    }
    facts.user = Some(address.user().unwrap_or("default").into());
    facts.place = Some(place(connector.target(), &settings, end).await);
    facts
}

/// What cures it, if that is something else than at a server.
fn cure(error: &NodeError) -> Option<&'static str> {
    let of_sentinels = error.source().and_then(|source| source.downcast_ref::<SentinelErrors>()).is_some();
    (of_sentinels && error.kind() == NodeErrorKind::Login).then_some(SENTINEL_LOGIN)
}

/// What was learnt before an error stays learnt.
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
        reign(&mut session, settings, &info, facts).await?;
        max_ttl(&mut session, settings, facts).await?;
        let probe = Probe::new(key, &*settings.entropy);
        permissions::ask(&mut session, &probe, facts).await?;
        // A check-up may be made with other settings than locks: it leaves no `max_ttl` for them to find.
        let settings = Settings { notices: Notices::ToldElsewhere, max_ttls: None, ..settings.clone() };
        let node = RedisNode::with(address.clone(), settings);
        facts.lock = Some(probe.lock(&node, session.clock(), end, facts).await);
        session.ask_each(&probe.removal()).await?;
    }
    Ok(())
}

/// What cures an address that asks for TLS where there is none.
const WITHOUT_TLS: &str = "write redis:// instead of rediss://, or give the server's TLS port";

/// Whether a port with which no TLS came about answers without. A server that takes the first bytes of TLS
/// for a line waits for its end: to a client that speaks TLS it is as silent as one that is stopped.
async fn speaks_without_tls(address: &Address, settings: &Settings, error: &NodeError) -> bool {
    let Endpoint::Tls { host, port } = address.endpoint() else { return false };
    if !matches!(error.kind(), NodeErrorKind::Tls | NodeErrorKind::Unreachable) {
        return false;
    }
    // Without the password, which is not to be sent in the open.
    let plain = address.at(Endpoint::Tcp { host: host.clone(), port: *port });
    let answers = async {
        let mut stream = settings.dial.dial(&plain).await.ok()?;
        stream.write_all(b"PING\r\n").await.ok()?;
        let mut first = [0];
        stream.read_exact(&mut first).await.ok()?;
        // Of a status, or of an error such as that a password is wanted.
        Some(matches!(&first, b"+" | b"-"))
    };
    let late = settings.clock.sleep_until(settings.clock.now() + settings.connect_timeout.step());
    match select(pin!(answers), late).await {
        Either::Left((answered, _)) => answered == Some(true),
        Either::Right(_) => false,
    }
}

/// How long a server has that may say something before it is asked.
const FIRST_WORDS: Duration = Duration::from_millis(200);

/// What a server says that closes connections at once. Whoever writes to it may not hear that: the
/// system drops what has arrived when a connection is reset.
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
    let late =
        settings.clock.sleep_until(settings.clock.now() + FIRST_WORDS.min(settings.connect_timeout.step()));
    match select(pin!(listen), late).await {
        Either::Left((line, _)) => {
            let asked = SentCommand { command: "HELLO", key: "", user: "default", peer: Peer::Server };
            Some(explain(ServerError::on_line(&line?), asked))
        }
        Either::Right(_) => None,
    }
}

/// What the server says of itself, or nothing where it may not.
async fn introduction(
    session: &mut InspectSession,
    membership: Membership,
    facts: &mut Facts,
) -> Result<String, NodeError> {
    let answer = session.ask(&["INFO"]).await?;
    if let Value::ServerError(error) = answer {
        permissions::note(&error, &permissions::INFO, facts);
        return Ok(String::new());
    }
    let info = text(answer).ok_or_else(|| unexpected("unexpected answer to INFO"))?;
    *facts = Facts { service: facts.service.take(), ..facts_in(&info) };
    // By the same judgement as at an introduction.
    if let Err(NodeError::Unfit { reason, .. }) = Process::fit_to_vote(&info, membership) {
        facts.unfit = Some(reason.to_string().into());
    }
    Ok(info)
}

/// Asks for how long clients have known the process. The lock that is taken as a probe notes it as any does.
async fn known(
    session: &mut InspectSession,
    settings: &Settings,
    info: &str,
    facts: &mut Facts,
) -> Result<(), NodeError> {
    let (Some(gate), Some(run_id)) = (&settings.gate, field(info, "run_id")) else { return Ok(()) };
    let note = session.ask(&["GET", &start::key(gate)]).await?;
    facts.known = start::known(Some(note), run_id, session.clock.wall());
    Ok(())
}

/// Asks since when a server that was promoted is a master, as any client does, and notes it as any does.
async fn reign(
    session: &mut InspectSession,
    settings: &Settings,
    info: &str,
    facts: &mut Facts,
) -> Result<(), NodeError> {
    let (Some(gate), Some(true)) = (&settings.gate, facts.promoted) else { return Ok(()) };
    let (Some(run_id), Some(history)) = (field(info, "run_id"), field(info, "master_replid")) else {
        return Ok(());
    };
    let answers = session.ask_each(&[promotion::request(gate, run_id, history).to_vec()]).await?;
    facts.reign = answers.first().and_then(promotion::answer);
    Ok(())
}

/// Reads which `max_ttl` the clients have, and leaves it as it is.
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

/// Asks for the time again and again. A server that refuses to tell it takes as long to say so.
async fn measure(session: &mut InspectSession, facts: &mut Facts) -> Result<(), NodeError> {
    let half_time = session.clock.now() + session.end.since(session.clock.now()) / 2;
    for _ in 0..ROUND_TRIPS {
        let (wall, sent) = (session.clock.wall(), session.clock.now());
        let answer = session.ask(&["TIME"]).await?;
        let now = session.clock.now();
        let took = now.since(sent);
        facts.round_trips.push(took);
        let reading = time_in(answer).map(|theirs| reading(theirs, wall, took));
        // The quickest answer tells the time best.
        if facts.clock.is_none_or(|best| reading.is_some_and(|new| new.uncertainty < best.uncertainty)) {
            facts.clock = reading;
        }
        if now > half_time {
            break;
        }
    }
    Ok(())
}

/// A clock that showed `theirs` somewhere in the time `took` after ours had shown `wall`.
fn reading(theirs: Duration, wall: Duration, took: Duration) -> ClockReading {
    let ours = wall + took / 2;
    let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    // A millionth of a second is what TIME tells in.
    ClockReading::new(micros(theirs).saturating_sub(micros(ours)), took / 2 + Duration::from_micros(1))
}

/// Managed servers and users with few rights do not tell: then it is unknown.
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

/// The value in a list or map of one name and its value.
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
        // Nobody has told where it is.
        Endpoint::Sentinel { service, .. } => return Location::new(Some(service.clone()), Vec::new(), false),
        Endpoint::Tcp { host, .. } => (host, false),
        Endpoint::Tls { host, .. } => (host, true),
    };
    let late = settings.clock.sleep_until(end.min(settings.clock.now() + settings.connect_timeout.step()));
    let mut addresses: Vec<IpAddr> = match select(settings.dial.resolve(host), late).await {
        Either::Left((addresses, _)) => addresses,
        Either::Right(_) => Vec::new(),
    };
    addresses.sort_unstable();
    addresses.dedup();
    Location::new(Some(host.clone()), addresses, encrypted)
}

/// A connection that asks one thing after the other, each within a limit.
pub(super) struct InspectSession {
    line: Connection,
    clock: Arc<dyn Clock>,
    limit: Duration,
    end: Moment,
}

impl InspectSession {
    async fn open(
        connector: &mut Connector,
        settings: &Settings,
        end: Moment,
    ) -> Result<InspectSession, NodeError> {
        let (line, _) = connector.greet_in_time().await?;
        let (clock, limit) = (Arc::clone(&settings.clock), settings.connect_timeout.step());
        Ok(InspectSession { line, clock, limit, end })
    }

    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    async fn ask(&mut self, words: &[&str]) -> Result<Value, NodeError> {
        let command = words.iter().map(|word| (*word).to_owned()).collect();
        let answers = self.ask_each(&[command]).await?;
        answers.into_iter().next().ok_or_else(|| unexpected("unexpected end of its answers"))
    }

    /// Sends all commands at once, and gives the answers in the same order.
    async fn ask_each(&mut self, commands: &[Vec<String>]) -> Result<Vec<Value>, NodeError> {
        let mut pipeline = Pipeline::with_capacity(commands.len());
        for command in commands {
            let mut words = command.iter();
            pipeline.cmd(words.next().map_or("", String::as_str));
            for word in words {
                pipeline.arg(word);
            }
        }
        let now = self.clock.now();
        let limit = self.limit.min(self.end.since(now));
        let late = self.clock.sleep_until(now + limit);
        let answers = match select(pin!(self.line.exchange(&pipeline)), late).await {
            Either::Left((answers, _)) => answers,
            // The answers may still come: nothing else is to be asked over this line.
            Either::Right(_) => return Err(NodeError::Unanswered { waited: limit }),
        };
        answers.map_err(|reason| NodeError::Disconnected { reason: reason.into() })
    }
}
