//! Which rights the user has: each command that locks need is run once, on keys of a probe.
//!
//! Run, and not asked about: `ACL DRYRUN` needs Redis 7 and a right of its own.

use redis::Value;

use super::InspectSession;
use super::probe::Probe;
use crate::node::NodeError;
use crate::node::facts::{Facts, Missing, Need, Refusal};
use crate::redis::server_error::{MissingRight, ServerError, ServerErrorKind};

/// A command that is needed, and its words, in which keys of the probe stand in braces.
pub(super) struct Right {
    command: &'static str,
    need: Need,
    words: &'static str,
}

const fn right(command: &'static str, need: Need, words: &'static str) -> Right {
    Right { command, need, words }
}

pub(super) const INFO: Right = right("info", Need::Locks, "INFO");
pub(super) const TRACKING: Right = right("client|tracking", Need::Waiting, "CLIENT TRACKING");

/// Alone it does nothing. Whoever may not end a transaction must not begin one.
const EXEC: Right = right("exec", Need::Speed, "EXEC");
const MULTI: Right = right("multi", Need::Speed, "MULTI");

/// In an order in which none of them leaves a key behind that never ends.
const RIGHTS: [Right; 31] = [
    right("set", Need::Locks, "SET {key} x NX PX 5000"),
    right("get", Need::Locks, "GET {key}"),
    right("pttl", Need::Locks, "PTTL {key}"),
    right("pexpire", Need::Locks, "PEXPIRE {key} 5000"),
    right("eval", Need::Locks, "EVAL return(1) 1 {key}"),
    right("evalsha", Need::Locks, "EVALSHA 0000000000000000000000000000000000000000 1 {key}"),
    right("set", Need::Locks, "SET {tomb} 1 PX 1"),
    right("setrange", Need::Locks, "SETRANGE {tomb} 0 {nothing}"),
    right("del", Need::Locks, "DEL {key}"),
    right("time", Need::Fencing, "TIME"),
    right("zadd", Need::Fencing, "ZADD {fence} 1 n"),
    right("zincrby", Need::Fencing, "ZINCRBY {fence} 0 n"),
    right("zrem", Need::Fencing, "ZREM {fence} a"),
    right("zremrangebyrank", Need::Fencing, "ZREMRANGEBYRANK {fence} 0 -9"),
    right("pexpire", Need::Fencing, "PEXPIRE {fence} 5000"),
    // Of nobody.
    right("client|kill", Need::Speed, "CLIENT KILL ID 9223372036854775807"),
    EXEC,
    right("set", Need::Promotion, "SET {gate} 1 PX 1"),
    right("set", Need::Waiting, "SET {want} 1 PX 1000"),
    right("zadd", Need::FairOrder, "ZADD {order} 1 a"),
    right("pexpireat", Need::FairOrder, "PEXPIREAT {order} 4000000000000"),
    right("zpopmin", Need::FairOrder, "ZPOPMIN {order}"),
    right("zrem", Need::FairOrder, "ZREM {order} a"),
    right("hset", Need::FairOrder, "HSET {until} a 1"),
    right("hincrby", Need::FairOrder, "HINCRBY {until} a 0"),
    right("hdel", Need::FairOrder, "HDEL {until} a"),
    right("zincrby", Need::Sharing, "ZINCRBY {readers} 0 a"),
    right("zrangebyscore", Need::Sharing, "ZRANGEBYSCORE {readers} 0 1"),
    right("zpopmax", Need::Sharing, "ZPOPMAX {readers}"),
    right("zremrangebyscore", Need::Sharing, "ZREMRANGEBYSCORE {readers} 0 1"),
    right("set", Need::Semaphores, "SET {limit} 1 PX 1"),
];

/// Runs each command once, all in one write.
pub(super) async fn ask(
    session: &mut InspectSession,
    probe: &Probe,
    facts: &mut Facts,
) -> Result<(), NodeError> {
    let commands: Vec<_> = RIGHTS.iter().map(|right| probe.words(right.words)).collect();
    let answers = session.ask_each(&[commands, probe.removal()].concat()).await?;
    for (right, answer) in RIGHTS.iter().zip(answers) {
        if let Value::ServerError(error) = answer {
            note_for(&error, right, Some(probe), facts);
        }
    }
    if !facts.refusals.iter().any(|told| told.command == EXEC.command) {
        let answers = session.ask_each(&[MULTI, EXEC].map(|right| probe.words(right.words))).await?;
        if let Some(Value::ServerError(error)) = answers.first() {
            note_for(error, &MULTI, Some(probe), facts);
        }
    }
    Ok(())
}

/// Notes a refusal, if `error` is one.
pub(super) fn note(error: &redis::ServerError, right: &Right, facts: &mut Facts) {
    note_for(error, right, None, facts);
}

fn note_for(error: &redis::ServerError, right: &Right, probe: Option<&Probe>, facts: &mut Facts) {
    let error = ServerError::read(error);
    let missing = match (error.kind(), probe) {
        (ServerErrorKind::NoPermission(MissingRight::Key), Some(probe)) => {
            Missing::Right(probe.pattern(right.words))
        }
        (ServerErrorKind::NoPermission(_), _) => Missing::Right(format!("+{}", right.command)),
        (ServerErrorKind::UnknownCommand, _) => Missing::Command,
        // Out of memory, a replica, or the like: the lock that is taken as a probe meets it, too.
        _ => return,
    };
    // A command that is refused is refused for each key, and a right may be lacked by several.
    let is_told = |told: &Refusal| match &missing {
        Missing::Right(_) => told.missing == missing,
        Missing::Command => told.command == right.command,
    };
    if !facts.refusals.iter().any(is_told) {
        facts.refusals.push(Refusal::new(right.command, right.need, missing, error.to_string()));
    }
}
