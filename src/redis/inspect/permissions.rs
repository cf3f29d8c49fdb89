//! Checks the permissions of the user: each command that locks need is run once, on keys of a probe.
//!
//! The commands are run, because `ACL DRYRUN` needs Redis 7 and a permission of its own.

use redis::Value;

use super::InspectSession;
use super::probe::Probe;
use crate::address::Layout;
use crate::node::NodeError;
use crate::node::facts::{Facts, Feature, Missing, MissingPermission};
use crate::redis::error;
use crate::redis::server_error::{MissingRight, ServerError, ServerErrorKind};

/// A required command, and its words, with the keys of the probe in braces.
pub(super) struct Right {
    command: &'static str,
    need: Feature,
    words: &'static str,
}

const fn right(command: &'static str, need: Feature, words: &'static str) -> Right {
    Right { command, need, words }
}

pub(super) const INFO: Right = right("info", Feature::Locks, "INFO");
pub(super) const TRACKING: Right = right("client|tracking", Feature::Waiting, "CLIENT TRACKING");

/// Ordered so that no command leaves a key without expiry.
const RIGHTS: [Right; 27] = [
    right("set", Feature::Locks, "SET {key} x NX PX 5000"),
    right("get", Feature::Locks, "GET {key}"),
    right("pttl", Feature::Locks, "PTTL {key}"),
    right("pexpire", Feature::Locks, "PEXPIRE {key} 5000"),
    right("eval", Feature::Locks, "EVAL return(1) 1 {key}"),
    right("evalsha", Feature::Locks, "EVALSHA 0000000000000000000000000000000000000000 1 {key}"),
    right("set", Feature::Locks, "SET {tomb} 1 PX 1"),
    right("setrange", Feature::Locks, "SETRANGE {tomb} 0 {nothing}"),
    right("del", Feature::Locks, "DEL {key}"),
    right("time", Feature::Fencing, "TIME"),
    // The counter is that of other locks, too: these change nothing.
    right("zadd", Feature::Fencing, "ZADD {fence} XX INCR 0 n"),
    right("zremrangebyrank", Feature::Fencing, "ZREMRANGEBYRANK {fence} 0 -9"),
    // No connection has this ID.
    right("client|kill", Feature::Speed, "CLIENT KILL ID 9223372036854775807"),
    right("set", Feature::Waiting, "SET {want} 1 PX 1000"),
    right("zadd", Feature::Queue, "ZADD {order} 1 a"),
    right("pexpire", Feature::Queue, "PEXPIRE {order} 5000"),
    right("zpopmin", Feature::Queue, "ZPOPMIN {order}"),
    right("zrem", Feature::Queue, "ZREM {order} a"),
    right("pexpire", Feature::Queue, "PEXPIRE {told} 5000"),
    right("set", Feature::Queue, "SET {turn} 1 PX 1000"),
    // Not `SUBSCRIBE`, which would change what the connection may send next.
    right("publish", Feature::Offers, "PUBLISH {inbox} x"),
    right("zincrby", Feature::Sharing, "ZINCRBY {readers} 0 a"),
    right("zadd", Feature::Sharing, "ZADD {readers} 1 a"),
    right("pexpireat", Feature::Sharing, "PEXPIREAT {readers} 4000000000000"),
    right("zrangebyscore", Feature::Sharing, "ZRANGEBYSCORE {readers} 0 1"),
    right("zpopmax", Feature::Sharing, "ZPOPMAX {readers}"),
    right("zremrangebyscore", Feature::Sharing, "ZREMRANGEBYSCORE {readers} 0 1"),
];

/// The same for Redisson's layout. Messages are tried by the handshake.
const REDISSON_RIGHTS: [Right; 19] = [
    right("hset", Feature::Locks, "HSET {key} x 1"),
    right("pexpire", Feature::Locks, "PEXPIRE {key} 5000"),
    right("pttl", Feature::Locks, "PTTL {key}"),
    right("exists", Feature::Locks, "EXISTS {key}"),
    right("hexists", Feature::Locks, "HEXISTS {key} x"),
    right("hlen", Feature::Locks, "HLEN {key}"),
    right("hgetall", Feature::Locks, "HGETALL {key}"),
    right("eval", Feature::Locks, "EVAL return(1) 1 {key}"),
    right("evalsha", Feature::Locks, "EVALSHA 0000000000000000000000000000000000000000 1 {key}"),
    right("set", Feature::Locks, "SET {tomb} 1 PX 1"),
    right("setrange", Feature::Locks, "SETRANGE {tomb} 0 {nothing}"),
    right("setrange", Feature::Locks, "SETRANGE {queue} 0 {nothing}"),
    right("lindex", Feature::Waiting, "LINDEX {queue} 0"),
    right("zscore", Feature::Waiting, "ZSCORE {times} x"),
    right("hdel", Feature::Locks, "HDEL {key} x"),
    right("del", Feature::Locks, "DEL {key}"),
    right("time", Feature::Fencing, "TIME"),
    right("get", Feature::Fencing, "GET {counter}"),
    right("set", Feature::Fencing, "SET {counter} 0 PX 5000"),
];

/// Runs each command once, all in one write.
pub(super) async fn ask(
    session: &mut InspectSession,
    probe: &Probe,
    facts: &mut Facts,
) -> Result<(), NodeError> {
    let rights: &[Right] = match probe.layout() {
        Layout::Own => &RIGHTS,
        Layout::Redisson => &REDISSON_RIGHTS,
    };
    let commands: Vec<_> = rights.iter().map(|right| probe.words(right.words)).collect();
    let answers = session.ask_each(&[commands, probe.removal()].concat()).await?;
    for (right, answer) in rights.iter().zip(answers) {
        if let Value::ServerError(error) = answer {
            note_for(&ServerError::read(&error), right, Some(probe), facts);
        }
    }
    Ok(())
}

/// Records a refusal, if `error` is one.
pub(super) fn note(error: &redis::ServerError, right: &Right, facts: &mut Facts) {
    note_for(&ServerError::read(error), right, None, facts);
}

fn note_for(error: &ServerError, right: &Right, probe: Option<&Probe>, facts: &mut Facts) {
    let missing = match (error.kind(), probe) {
        (ServerErrorKind::NoPermission(MissingRight::Key), Some(probe)) => {
            Missing::Right(probe.pattern(right.words))
        }
        // Without it the others are not tried: one line grants all.
        (ServerErrorKind::NoPermission(_), _) if right.command == INFO.command => {
            Missing::Right(error::RIGHTS.to_owned())
        }
        (ServerErrorKind::NoPermission(_), _) => Missing::Right(format!("+{}", right.command)),
        (ServerErrorKind::UnknownCommand, _) => Missing::Command,
        // Out of memory, a replica, or the like: the test lock fails for the same reason.
        _ => return,
    };
    // A refused command is refused for each key, and several commands may lack the same permission.
    let is_reported = |reported: &MissingPermission| match &missing {
        Missing::Right(_) => reported.missing == missing,
        Missing::Command => reported.command == right.command,
    };
    if !facts.refusals.iter().any(is_reported) {
        facts.refusals.push(MissingPermission::new(right.command, right.need, missing, error.to_string()));
    }
}

/// Records the refusal of a command by this line of a server.
#[cfg(test)]
pub(in crate::redis) fn refusal_of(command: &'static str, need: Feature, line: &str, facts: &mut Facts) {
    note_for(&ServerError::on_line(line), &right(command, need, ""), None, facts);
}
