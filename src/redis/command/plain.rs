//! Acquires an uncontended lock, and releases it, without scripts (ADR 4, 5).

use std::time::Duration;

use redis::{Value, cmd};

use super::reply::{CommandOutcome, not_understood};
use super::{Form, encode_plain};
use crate::node::facts::Software;
use crate::node::{NodeError, Vote};
use crate::redis::connection::server_error;
use crate::redis::error::{Peer, SentCommand, explain};
use crate::redis::introduction::{Introduction, Replies, ReplyTo};
use crate::redis::resp::decode::{RespReader, RespValue};
use crate::redis::resp::encode::CommandWriter;
use crate::redis::server_error::{ServerError, ServerErrorKind};
use quorlock_protocol::{Claim, FENCE_MEMBER, FenceHint, Moment};

/// The commands that a server supports besides scripts, as found in the handshake.
#[derive(Clone, Copy, Default)]
pub(crate) struct SupportedCommands {
    /// The ID of this connection, if the server can end it on request. Otherwise scripts are used, which look
    /// for tombstones (rule I-5).
    pub(crate) client: Option<i64>,
    /// Whether a token may be stored by `SET`.
    pub(crate) storing: bool,
    /// The wall clock of the server, if locks may be acquired without scripts.
    pub(crate) clock: Option<WallClock>,
    /// The command that deletes a key if it has a given value, if there is one.
    pub(crate) deleting: Option<Deleting>,
}

/// The wall clock of a server, as read once: it may be ahead of this by the time that the reply took, and by
/// as much as it was set forward since.
#[derive(Clone, Copy)]
pub(crate) struct WallClock {
    wall: Duration,
    read: Moment,
}

impl WallClock {
    pub(crate) fn at(self, now: Moment) -> Duration {
        self.wall.saturating_add(now.since(self.read))
    }
}

/// What follows the key prefix in a key that never exists: its user may access it, and it belongs to no lock.
const NO_KEY: &str = ":quorlock:tomb:";

/// The requests that find out the supported commands.
pub(in crate::redis) struct Asked {
    id: ReplyTo,
    kill: ReplyTo,
    /// The request for the server's wall clock.
    pub(in crate::redis) time: ReplyTo,
    script: ReplyTo,
    deleting: [ReplyTo; Deleting::ALL.len()],
}

impl SupportedCommands {
    /// Returns what is left for a layout that only scripts know.
    pub(in crate::redis) fn scripts_only(self) -> SupportedCommands {
        SupportedCommands { client: self.client, ..SupportedCommands::default() }
    }

    /// Returns what is left where a request of an earlier connection may still arrive: what looks for tombstones.
    pub(in crate::redis) fn behind_late_requests(self) -> SupportedCommands {
        SupportedCommands { deleting: self.deleting, ..SupportedCommands::default() }
    }

    /// Adds the requests that find out the supported commands to the handshake.
    pub(in crate::redis) fn ask(introduction: &mut Introduction, key_prefix: &str) -> Asked {
        Asked {
            id: introduction.add(cmd("CLIENT").arg("ID")),
            // No connection has this ID: the reply shows whether the user may run the command.
            kill: introduction.add(cmd("CLIENT").arg("KILL").arg("ID").arg(i64::MAX)),
            time: introduction.add(&cmd("TIME")),
            // A user that may not run scripts is refused immediately, because later requests need them.
            script: introduction.add(cmd("EVAL").arg("return 1").arg(0)),
            deleting: Deleting::ALL.map(|deleting| {
                let (command, condition) = deleting.words();
                let key = format!("{key_prefix}{NO_KEY}");
                introduction.add(cmd(command).arg(key).arg(condition).arg(""))
            }),
        }
    }

    /// Reads the replies, which were received at `now` over connection `client`; `wall` is the server's clock. Returns
    /// an error as text if they came over several connections.
    pub(in crate::redis) fn read(
        replies: &mut Replies,
        asked: &Asked,
        wall: Option<Duration>,
        client: Option<i64>,
        software: Option<&Software>,
        now: Moment,
    ) -> Result<SupportedCommands, String> {
        let deleting = how_it_deletes(replies, asked);
        let [id, kill, script] = [asked.id, asked.kill, asked.script].map(|reply| replies.take(reply));
        if let (Some(client), Some(Value::Int(id))) = (client, id)
            && client != id
        {
            return Err(format!(
                "it answers one connection over several (first with ID {client}, then {id}), as a proxy does that \
                 shares them; give the address of the server itself"
            ));
        }
        let (Some(client), Some(Value::Int(_))) = (client, kill) else {
            return Ok(SupportedCommands { deleting, ..SupportedCommands::default() });
        };
        let can = |answer: Option<Value>| {
            !answer
                .and_then(server_error)
                .is_some_and(|error| ServerError::read(&error).kind().is_forbidden())
        };
        let may = can(script) && software.is_none_or(raises_scores);
        let clock = wall.filter(|_| may).map(|wall| WallClock { wall, read: now });
        Ok(SupportedCommands { client: Some(client), storing: true, clock, deleting })
    }
}

/// Returns the first command that has replied that there is no such key.
fn how_it_deletes(replies: &mut Replies, asked: &Asked) -> Option<Deleting> {
    let mut known = Deleting::ALL.into_iter().zip(asked.deleting);
    let known = known.find(|(_, reply)| matches!(replies.take(*reply), Some(Value::Int(0))));
    known.map(|(deleting, _)| deleting)
}

/// Returns whether the server supports `ZADD … GT`.
fn raises_scores(software: &Software) -> bool {
    software.name != "redis" || software.numbers() >= [6, 2, 0]
}

/// Appends the commands that acquire without a script (ADR 4): the token is stored if the key is free, and then the
/// counter is raised to the number, unless it is there or beyond. They are no transaction: what another client does
/// between them can only raise the counter, and then the second one does not.
pub(crate) fn encode_acquisition(claim: &Claim, ttl: Duration, fence_hint: FenceHint, buffer: &mut Vec<u8>) {
    encode_plain(claim, ttl, buffer);
    let mut command = CommandWriter::begin(buffer);
    command.word("ZADD").joined(&claim.fence_counter_key().pieces()).word("GT").word("CH");
    command.number(fence_hint.usual().get()).word(FENCE_MEMBER);
    command.end();
}

/// The usual replies to both.
pub(crate) const NUMBERED: &[u8] = b"+OK\r\n:1\r\n";

/// What the first of the two replies says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Storing {
    /// The token was stored.
    Done,
    Refused,
    /// The command failed.
    Unclear,
}

pub(crate) fn decode_storing(answer: &[u8]) -> Storing {
    match RespReader::of(answer).next() {
        Some(RespValue::Text(b"OK")) => Storing::Done,
        Some(RespValue::Nothing) => Storing::Refused,
        Some(RespValue::Text(_) | RespValue::Number(_) | RespValue::List(_)) | None => Storing::Unclear,
    }
}

/// Combines both replies. Unclear ones are followed by a script.
pub(crate) fn with_number(storing: Storing, answer: &[u8], fence_hint: FenceHint) -> CommandOutcome {
    match (storing, RespReader::of(answer).next()) {
        (Storing::Done, Some(RespValue::Number(1))) => {
            CommandOutcome::Voted { vote: Vote::Granted, fence: Some(fence_hint.usual()) }
        }
        (Storing::Done, Some(RespValue::Number(0))) => CommandOutcome::Unnumbered,
        // The counter may have been raised, for no vote.
        (Storing::Refused, Some(RespValue::Number(_))) => CommandOutcome::Refused,
        _ => CommandOutcome::Unclear,
    }
}

/// A command that deletes a key if it has a given value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deleting {
    /// `DELIFEQ key value`: Valkey from 9.0 on.
    IfEqual,
    /// `DELEX key IFEQ value`: Redis from 8.4 on.
    WithCondition,
}

impl Deleting {
    pub(crate) const ALL: [Deleting; 2] = [Deleting::IfEqual, Deleting::WithCondition];

    pub(crate) fn form(self) -> Form {
        match self {
            Deleting::IfEqual => Form::DeletionIfEqual,
            Deleting::WithCondition => Form::DeletionWithCondition,
        }
    }

    /// Returns the words before the key, and between key and value.
    pub(crate) fn words(self) -> (&'static str, Option<&'static str>) {
        match self {
            Deleting::IfEqual => ("DELIFEQ", None),
            Deleting::WithCondition => ("DELEX", Some("IFEQ")),
        }
    }
}

/// Appends the commands that release without a script. The first reply says whether the key was deleted, the
/// second whether another client wants the lock; that is not part of the same step, because the mark is only
/// a hint.
pub(crate) fn encode_deletion(claim: &Claim, deleting: Deleting, buffer: &mut Vec<u8>) {
    let (name, condition) = deleting.words();
    let mut command = CommandWriter::begin(buffer);
    command.word(name).word(claim.key());
    if let Some(condition) = condition {
        command.word(condition);
    }
    command.word(claim.token().as_bytes());
    command.end();
    let mut command = CommandWriter::begin(buffer);
    command.word("DEL").joined(&claim.want_mark_key().pieces());
    command.end();
}

/// The first of the two replies.
#[derive(Debug)]
pub(crate) enum Deletion {
    /// The key was deleted.
    Done,
    /// The key did not hold the token.
    NotOurs,
    Demoted,
    Failed(Box<NodeError>),
}

pub(crate) fn decode_deletion(answer: &[u8], key: &str, user: &str) -> Deletion {
    match RespReader::of(answer).next() {
        Some(RespValue::Number(1)) => return Deletion::Done,
        Some(RespValue::Number(0)) => return Deletion::NotOurs,
        Some(_) | None => {}
    }
    let Ok(Value::ServerError(error)) = redis::parse_redis_value(answer) else {
        return Deletion::Failed(Box::new(not_understood("unexpected answer to a deletion")));
    };
    let error = ServerError::read(&error);
    if *error.kind() == ServerErrorKind::ReadOnlyReplica {
        return Deletion::Demoted;
    }
    let asked = SentCommand { command: "DELIFEQ or DELEX", key, user, peer: Peer::Server };
    Deletion::Failed(Box::new(explain(error, asked)))
}

/// Combines both replies; the second says whether another client wants the lock.
pub(crate) fn with_mark(deletion: Deletion, answer: &[u8]) -> Result<CommandOutcome, NodeError> {
    let vote = match deletion {
        Deletion::Done if RespReader::of(answer).next() == Some(RespValue::Number(1)) => {
            Vote::ReleasedContended
        }
        Deletion::Done => Vote::Granted,
        Deletion::NotOurs => Vote::Free,
        Deletion::Demoted => return Ok(CommandOutcome::Demoted),
        Deletion::Failed(error) => return Err(*error),
    };
    Ok(CommandOutcome::Voted { vote, fence: None })
}
