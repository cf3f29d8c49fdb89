//! Asking without scripts, for a lock that nobody else is known to want, and for its release (ADR 16).

use std::time::Duration;

use redis::{Pipeline, Value};

use super::reply::{CommandOutcome, not_understood};
use super::{Form, millis};
use crate::node::facts::Software;
use crate::node::{NodeError, Request, Vote};
use crate::redis::admission::{Ask, Stage};
use crate::redis::connection::server_error;
use crate::redis::error::{Peer, SentCommand, explain};
use crate::redis::info::time_in;
use crate::redis::resp::decode::{RespReader, RespValue};
use crate::redis::resp::encode::CommandWriter;
use crate::redis::server_error::{ServerError, ServerErrorKind};
use quorlock_protocol::{Claim, FENCE_MEMBER, FenceHint, Mode, Moment};

/// What a server can do without scripts, as it turned out when the connection was made.
#[derive(Clone, Copy, Default)]
pub(crate) struct SupportedCommands {
    /// What it calls this connection, if it would end it for us. Else it is asked by scripts, which look
    /// for tombstones (rule I-5).
    pub(crate) client: Option<i64>,
    /// Its wall clock, if locks may be acquired without scripts.
    pub(crate) clock: Option<WallClock>,
    /// How it deletes a key that holds what it should, if there is a command for it.
    pub(crate) deleting: Option<Deleting>,
}

/// The wall clock of a server, as it was read once: it may be ahead of this by the time that its answer
/// took, and by as much as it was put forward since.
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

/// A key that never is: it is called like a tombstone, which every user may touch, and has no lock.
const NO_KEY: &str = "quorlock:tomb:{}:";

impl SupportedCommands {
    /// Asks for them with an introduction.
    pub(in crate::redis) fn ask(introduction: &mut Pipeline) {
        introduction.cmd("CLIENT").arg("ID");
        // Nobody is called that: it tells whether we may.
        introduction.cmd("CLIENT").arg("KILL").arg("ID").arg(i64::MAX);
        introduction.cmd("TIME");
        // What comes after an acquisition is done by scripts: who may not run any is told at once.
        introduction.cmd("EVAL").arg("return 1").arg(0);
        // There is nothing to end: it tells whether a transaction can be, once it was begun.
        introduction.cmd("EXEC");
        for deleting in Deleting::ALL {
            let (command, condition) = deleting.words();
            introduction.cmd(command).arg(NO_KEY).arg(condition).arg("");
        }
    }

    /// Takes the answers from the end of those to an introduction, which came at `now` over what the
    /// server calls `client`. An error, in words, where they did not all come over that.
    pub(in crate::redis) fn take(
        answers: &mut Vec<Value>,
        client: Option<i64>,
        software: Option<&Software>,
        now: Moment,
    ) -> Result<SupportedCommands, String> {
        let deleting = how_it_deletes(answers);
        let (exec, script, time) = (answers.pop(), answers.pop(), answers.pop());
        let (kill, id) = (answers.pop(), answers.pop());
        if let (Some(client), Some(Value::Int(id))) = (client, id)
            && client != id
        {
            return Err(format!(
                "it answers one connection over several (first as number {client}, then as {id}), as a proxy does that \
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
        let may = can(script) && can(exec) && software.is_none_or(moves_ends);
        let clock = time.and_then(time_in).filter(|_| may).map(|wall| WallClock { wall, read: now });
        Ok(SupportedCommands { client: Some(client), clock, deleting })
    }
}

/// The first command that has found that there is no such key.
fn how_it_deletes(answers: &mut Vec<Value>) -> Option<Deleting> {
    let said = answers.split_off(answers.len().saturating_sub(Deleting::ALL.len()));
    let known = Deleting::ALL.into_iter().zip(said).find(|(_, said)| matches!(said, Value::Int(0)));
    known.map(|(deleting, _)| deleting)
}

/// Whether the server knows `PEXPIREAT … GT`, and so `ZADD … GT`.
fn moves_ends(software: &Software) -> bool {
    software.name != "redis" || software.numbers() >= [7, 0, 0]
}

/// What is asked without a script, if that is possible for the request, at a server whose wall clock
/// shows this.
///
/// Where others want the lock a script is better: it tells who has it, and leaves the counter alone.
pub(in crate::redis) fn acquisition(
    ask: &Ask,
    wall: Option<Duration>,
) -> Option<(&Claim, Duration, FenceHint)> {
    let Request::Acquire { claim, ttl, fence_hint: Some(fence_hint) } = &*ask.request else { return None };
    let alone = claim.mode() == Mode::Exclusive && !claim.is_several();
    let wall = wall?;
    let usable = fence_hint.is_within(wall) && fence_hint.is_recent(wall);
    let plain = ask.stage == Stage::Fresh && alone && !fence_hint.contended && usable;
    plain.then_some((claim, *ttl, *fence_hint))
}

/// What is released by a command of the server.
pub(in crate::redis) fn release(request: &Request, deleting: Option<Deleting>) -> Option<(&Claim, Deleting)> {
    let Request::Release { claim } = request else { return None };
    let alone = claim.mode() == Mode::Exclusive && !claim.is_several();
    if alone { Some((claim, deleting?)) } else { None }
}

/// Writes the requests that acquire without a script, in one step (ADR 16): the token is stored if the key
/// is free, and the counter raised to the number, unless it stands there or beyond. Its end is moved as well, and
/// never to an earlier time (rule F-9): by two commands, since to the second one no end is the latest. Where the first
/// finds no end and the second moves none, the first has deleted the counter, whose end was in the past (rule F-10).
/// Where the first finds an end and the second moves none, the counter lives and ends no earlier than it should: the
/// clock of a server does not move within a transaction. Of the answers only the last one counts.
pub(crate) fn encode_acquisition(claim: &Claim, ttl: Duration, fence_hint: FenceHint, buffer: &mut Vec<u8>) {
    let counter = claim.fence_counter_key();
    let mut write = |words: &dyn Fn(&mut CommandWriter<'_>)| {
        let mut command = CommandWriter::begin(buffer);
        words(&mut command);
        command.end();
    };
    write(&|command| {
        command.word("MULTI");
    });
    write(&|command| {
        command.word("SET").word(claim.key()).word(claim.token().as_bytes());
        command.word("NX").word("PX").number(millis(ttl));
    });
    write(&|command| {
        command.word("ZADD").joined(&counter.pieces()).word("GT").word("CH");
        command.number(fence_hint.usual().get()).word(FENCE_MEMBER);
    });
    let ends = millis(fence_hint.usual().counter_ends());
    write(&|command| {
        command.word("PEXPIREAT").joined(&counter.pieces()).number(ends).word("NX");
    });
    write(&|command| {
        command.word("PEXPIREAT").joined(&counter.pieces()).number(ends + 1).word("GT");
    });
    write(&|command| {
        command.word("EXEC");
    });
}

/// So many answers come before the one that counts.
pub(crate) const PRELUDE: u8 = 5;

/// The answers of the prelude, which are nearly always these, and are compared with this instead of being read.
pub(crate) const PRELUDE_ANSWERS: &[u8] = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n";

/// What the last answer to these requests says. Whatever is not clear is left to a script to find out.
pub(crate) fn decode_acquisition(answer: &[u8], request: &Request) -> CommandOutcome {
    let Request::Acquire { fence_hint: Some(fence_hint), .. } = request else {
        return CommandOutcome::Unclear;
    };
    let mut parts = RespReader::of(answer);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(RespValue::List(4)), Some(RespValue::Text(b"OK")), Some(RespValue::Number(1))) => {
            match (parts.next(), parts.next()) {
                // A number of the same millisecond has left the end where it is to be.
                (Some(RespValue::Number(0)), Some(RespValue::Number(0)))
                | (Some(RespValue::Number(_)), Some(RespValue::Number(1))) => {
                    CommandOutcome::Voted { vote: Vote::Granted, fence: Some(fence_hint.usual()) }
                }
                // The server's clock was put forward.
                (Some(RespValue::Number(1)), Some(RespValue::Number(0))) => CommandOutcome::Unnumbered,
                _ => CommandOutcome::Unclear,
            }
        }
        (Some(RespValue::List(4)), Some(RespValue::Text(b"OK")), Some(RespValue::Number(0))) => {
            CommandOutcome::Unnumbered
        }
        (Some(RespValue::List(4)), Some(RespValue::Nothing), Some(RespValue::Number(_))) => {
            match (parts.next(), parts.next()) {
                (Some(RespValue::Number(_)), Some(RespValue::Number(_))) => CommandOutcome::Refused,
                _ => CommandOutcome::Unclear,
            }
        }
        _ => CommandOutcome::Unclear,
    }
}

/// The command by which a server deletes a key if it holds what it should.
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

    /// The words before the key, and between key and value.
    pub(crate) fn words(self) -> (&'static str, Option<&'static str>) {
        match self {
            Deleting::IfEqual => ("DELIFEQ", None),
            Deleting::WithCondition => ("DELEX", Some("IFEQ")),
        }
    }
}

/// Writes the requests that release without a script. The first says whether the key was deleted, the
/// second whether somebody wanted it, which is not part of the same step: a mark is a hint.
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

/// What the first of the two answers says.
pub(crate) enum Deletion {
    /// The key was deleted.
    Done,
    /// It did not hold what it should.
    NotOurs,
    Demoted,
    Failed(Box<NodeError>),
}

pub(crate) fn decode_deletion(answer: &[u8], claim: &Claim, user: &str) -> Deletion {
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
    let asked = SentCommand { command: "DELIFEQ or DELEX", key: claim.key(), user, peer: Peer::Server };
    Deletion::Failed(Box::new(explain(error, asked)))
}

/// What both say: the second, whether somebody wanted what was deleted.
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
