//! What the errors of a server mean for a lock.

use std::io;
use std::sync::Arc;

use redis::ServerError;

use super::bounds::{Excess, FOREIGN};
use super::line::Break;
use crate::examination::TroubleKind;
use crate::node::{Lasting, NodeError};
use crate::protocol::Slot;

/// The longest excerpt of a server's words that is passed on, in characters.
const WORDS: usize = 200;
/// The same for what the system and the TLS library say, with the cure.
const SENTENCE: usize = 400;

/// The commands that a user needs, for all kinds of lock: the scripts run with the rights of their caller.
pub(super) const RIGHTS: &str = "+eval +evalsha +get +set +setrange +del +pttl +pexpire +info +client|setname \
     +client|tracking +client|kill +time +multi +exec +zadd +zincrby +zrem +zremrangebyrank +zpopmin +hset \
     +hdel +hincrby +pexpireat +zremrangebyscore +zpopmax +zrangebyscore";

/// How the sentences begin by which a check-up tells one trouble from another.
const NO_PASSWORD: &str = "it wants a password";
const WRONG_PASSWORD: &str = "it refuses the password";
pub(super) const NO_TLS: &str = "no TLS";
const PROTECTED: &str = "it talks to its own machine only, because it has no password (protected mode); \
                         give its users passwords, rather than switch that off";

/// How the sentences begin after which it is asked anew which master of a cluster has which slot.
const ELSEWHERE: &str = "its slot is served by another master of the cluster";
const UNSERVED: &str = "the cluster does not serve its slot";

/// Whether a member of a cluster has sent the question away, without carrying it out.
pub(super) fn is_sent_away(error: &NodeError) -> bool {
    matches!(error, NodeError::Failed { message, .. } if message.starts_with(ELSEWHERE) || message.starts_with(UNSERVED))
}

/// The error for a slot that no master has, by the map.
pub(super) fn unserved(slot: Slot) -> NodeError {
    let message = format!("{UNSERVED}, {slot}: no master has it").into();
    NodeError::Failed { message, lasting: Lasting::Passing }
}

/// Of which kind the error is for which a node cannot be asked.
pub(super) fn kind_of(error: &NodeError) -> TroubleKind {
    match error {
        NodeError::Unreachable { .. }
        | NodeError::Unanswered { .. }
        | NodeError::Disconnected { .. }
        | NodeError::Overloaded { .. }
        | NodeError::NotAsked => TroubleKind::Unreachable,
        NodeError::Failed { message, .. } if message.starts_with(PROTECTED) => TroubleKind::ProtectedMode,
        NodeError::Failed { message, .. } if message.starts_with(NO_TLS) => TroubleKind::Tls,
        NodeError::Failed { message, .. }
            if message.starts_with(NO_PASSWORD) || message.starts_with(WRONG_PASSWORD) =>
        {
            TroubleKind::Login
        }
        NodeError::Failed { .. }
        | NodeError::Unfit { .. }
        | NodeError::Unconfirmed { .. }
        | NodeError::OtherLimit { .. } => TroubleKind::Other,
    }
}

/// What the server was asked: for messages.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// The command.
    pub(crate) command: &'a str,
    /// The key of the lock, or empty.
    pub(crate) key: &'a str,
    /// The ACL user.
    pub(crate) user: &'a str,
}

/// The error that the server answered, with its meaning and the cure.
pub(crate) fn refused(error: &ServerError, asked: Asked<'_>) -> NodeError {
    explain(error.code(), error.details().unwrap_or(""), asked)
}

/// Whether it says that the server is a replica.
pub(crate) fn is_demoted(error: &ServerError) -> bool {
    inner_code(error.code(), error.details().unwrap_or("")) == "READONLY"
}

/// The error for which no stream could be opened.
pub(crate) fn undialled(error: &io::Error) -> NodeError {
    let words = cut(&error.to_string(), SENTENCE);
    if let Some(error) = no_tls(&words) {
        return error;
    }
    NodeError::Unreachable { reason: words.into() }
}

/// The error of a connection that cannot be had without somebody mending certificates.
fn no_tls(words: &str) -> Option<NodeError> {
    let failed = || NodeError::Failed { message: words.into(), lasting: Lasting::UntilMended };
    words.starts_with(NO_TLS).then(failed)
}

/// The error that ended an attempt to connect.
pub(crate) fn unconnected(reason: &Break) -> NodeError {
    match reason {
        Break::Excess(FOREIGN) => unexpected(FOREIGN.0, ""),
        Break::Excess(_)
        | Break::Stream(_)
        | Break::Stray
        | Break::Flood
        | Break::Queued
        | Break::Demoted => {
            let words = broken(reason);
            no_tls(&words).unwrap_or_else(|| NodeError::Unreachable { reason: words.into() })
        }
    }
}

/// What ended a connection that nobody ended here.
pub(crate) const CLOSED: &str = "closed by the server or the network";

/// Why a connection ended, in words.
pub(crate) fn broken(reason: &Break) -> String {
    match reason {
        Break::Excess(Excess(what)) => (*what).into(),
        Break::Stray => "it sent an answer to a question that nobody asked".into(),
        Break::Flood => "it pushed far more than it was asked for, and was left".into(),
        Break::Queued => "a transaction was left open: may its user run EXEC, and is it not renamed?".into(),
        Break::Demoted => "the server has become a replica".into(),
        Break::Stream(error) if left(error.kind()) => CLOSED.into(),
        Break::Stream(error) => printable(&error.to_string()),
    }
}

/// Whether that is the end of a connection, whoever ended it and at whichever moment we noticed.
fn left(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::NotConnected
    )
}

/// An answer that no server should give.
pub(crate) fn unexpected(what: &str, words: &str) -> NodeError {
    let message = if words.is_empty() { what.into() } else { format!("{what}: {}", printable(words)) };
    NodeError::Failed { message: message.into(), lasting: Lasting::Passing }
}

pub(super) fn explain(code: &str, words: &str, asked: Asked<'_>) -> NodeError {
    let Asked { command, key, user } = asked;
    let code = inner_code(code, words);
    let said = printable(format!("{code} {words}").trim_end());
    let (meaning, lasting): (String, _) = match code {
        "WRONGTYPE" => (
            format!(
                "the key `{}` holds something that is not a lock; use another name or prefix",
                printable(key)
            ),
            Lasting::UntilMended,
        ),
        "NOPERM" if command.starts_with("CLUSTER") => (
            format!("the user `{user}` may not run {command}; grant `ACL SETUSER {user} +cluster|nodes` at every member"),
            Lasting::UntilMended,
        ),
        // In all versions the words for a key that may not be touched, and for nothing else.
        "NOPERM" if words.contains("to access") || words.contains("can't access") => (
            format!(
                "the user `{user}` may not touch the key `{}` or those beside it; ask with the prefix of keys that \
                 it may touch (--key-prefix), or grant `ACL SETUSER {user} ~PREFIX* ~quorlock:*`",
                printable(key)
            ),
            Lasting::UntilMended,
        ),
        "NOPERM" => (
            format!(
                "the user `{user}` may not run {}; grant `ACL SETUSER {user} {RIGHTS}`",
                within(words, command)
            ),
            Lasting::UntilMended,
        ),
        "NOAUTH" => (format!("{NO_PASSWORD}; give user and password of an ACL user"), Lasting::UntilMended),
        "WRONGPASS" => (
            format!("{WRONG_PASSWORD} for the user `{user}`; check both, and that the user is on"),
            Lasting::UntilMended,
        ),
        "DENIED" => (PROTECTED.into(), Lasting::UntilMended),
        "READONLY" => ("it is a replica; give the master's address".into(), Lasting::UntilMended),
        // None of them was carried out: see docs/adr/0014-cluster.md.
        "MOVED" => (format!("{ELSEWHERE}, which will be asked from now on"), Lasting::Passing),
        "ASK" | "TRYAGAIN" => (format!("{ELSEWHERE} soon: it is on its way there"), Lasting::Passing),
        _ if words.contains("access a non local key") => {
            (format!("{ELSEWHERE} soon: it is on its way there"), Lasting::Passing)
        }
        "CLUSTERDOWN" => (format!("{UNSERVED}, until somebody takes it over"), Lasting::Passing),
        _ if words.contains("cluster is down") => (format!("{UNSERVED} now"), Lasting::Passing),
        "CROSSSLOT" => (
            "the locks that were asked for at once are in different hash slots of the cluster; give their names \
              one hash tag, such as `{accounts}/1` and `{accounts}/2`"
                 .into(),
            Lasting::UntilMended,
        ),
        "LOADING" => ("it is still loading its data".into(), Lasting::Passing),
        "BUSY" => ("a slow script keeps it busy".into(), Lasting::Passing),
        "OOM" => ("it is out of memory".into(), Lasting::Passing),
        "MISCONF" => ("it cannot save its data and so refuses to write".into(), Lasting::Passing),
        "NOREPLICAS" => (
            "too few replicas follow it, and then it refuses to write (min-replicas-to-write)".into(),
            Lasting::Passing,
        ),
        "MASTERDOWN" => ("it is a replica that has lost its master".into(), Lasting::Passing),
        _ if words.to_ascii_lowercase().contains("unknown command") => (
            format!(
                "it does not know {command}; Redis 6 or newer or Valkey is needed, with {command} not renamed"
            ),
            Lasting::UntilMended,
        ),
        _ => ("it answered with an error".into(), Lasting::Passing),
    };
    NodeError::Failed { message: Arc::from(format!("{meaning} ({said})")), lasting }
}

/// The command that a user may not run: where a script was asked for, one in it, if the server names it.
/// Redis 7.0 does not.
fn within(words: &str, command: &str) -> String {
    let named = words.split_once("permissions to run the '").and_then(|(_, named)| named.split_once('\''));
    match named {
        Some((inner, _)) => printable(inner).to_uppercase(),
        None if words.contains("executing the script") => format!("a command of the script in its {command}"),
        None => command.to_owned(),
    }
}

/// The code of the error that a script ran into. Before version 7, servers wrap it up in `ERR
/// Error running script`; and all have words of their own for missing rights inside a script. Redis has no
/// code for what its `DELEX` finds at a key that is no string.
fn inner_code<'a>(code: &'a str, words: &str) -> &'a str {
    const WRAPPED: [&str; 10] = [
        "WRONGTYPE",
        "NOPERM",
        "READONLY",
        "OOM",
        "MISCONF",
        "CROSSSLOT",
        "CLUSTERDOWN",
        "MASTERDOWN",
        "NOREPLICAS",
        "LOADING",
    ];
    if code != "ERR" {
        return code;
    }
    if ["user executing the script", "ACL failure in script"].iter().any(|sign| words.contains(sign)) {
        return "NOPERM";
    }
    if words.contains("should be of string type") {
        return "WRONGTYPE";
    }
    if !words.starts_with("Error running script") {
        return code;
    }
    WRAPPED.into_iter().find(|inner| words.split([' ', ':', '-']).any(|word| word == *inner)).unwrap_or(code)
}

/// Somebody else's words: they must not move the cursor of the terminal that shows them, nor fill
/// it.
fn printable(words: &str) -> String {
    cut(words, WORDS)
}

fn cut(words: &str, most: usize) -> String {
    words.chars().filter(|c| !c.is_control()).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: &str, words: &str) -> (String, Lasting) {
        let error = explain(code, words, Asked { command: "EVAL", key: "orders/42", user: "anna" });
        let NodeError::Failed { message, lasting } = error else { panic!("{error:?}") };
        (message.to_string(), lasting)
    }

    #[test]
    fn an_error_tells_its_meaning_and_whether_it_passes() {
        for (code, words, meaning, lasting) in [
            ("WRONGTYPE", "Operation against", "`orders/42` holds something", Lasting::UntilMended),
            ("ERR", "Key should be of string type if", "`orders/42` holds something", Lasting::UntilMended),
            ("NOPERM", "no", "ACL SETUSER anna +eval +evalsha", Lasting::UntilMended),
            ("NOPERM", "No permissions to access a key", "touch the key `orders/42`", Lasting::UntilMended),
            ("NOPERM", "one has no permissions to run the 'zadd' command", "run ZADD;", Lasting::UntilMended),
            ("NOAUTH", "Authentication required.", "wants a password", Lasting::UntilMended),
            ("READONLY", "You can't write", "master's address", Lasting::UntilMended),
            ("MOVED", "866 10.0.0.1:6379", "served by another master", Lasting::Passing),
            ("ASK", "866 10.0.0.1:6379", "on its way there", Lasting::Passing),
            ("ERR", "Script attempted to access a non local key in", "on its way", Lasting::Passing),
            ("CLUSTERDOWN", "Hash slot not served", "does not serve its slot", Lasting::Passing),
            ("CROSSSLOT", "Keys in request", "one hash tag", Lasting::UntilMended),
            ("ERR", "unknown command 'EVAL'", "does not know EVAL", Lasting::UntilMended),
            ("LOADING", "Redis is loading", "still loading", Lasting::Passing),
            ("OOM", "command not allowed", "out of memory", Lasting::Passing),
            ("ERR", "something else", "ERR something else", Lasting::Passing),
        ] {
            let (message, lasts) = said(code, words);
            assert!(message.contains(meaning) && lasts == lasting, "{code}: {message}");
        }
    }

    #[test]
    fn an_error_inside_a_script_is_understood_in_all_its_wrappings() {
        for (words, meaning) in [
            ("Error running script (call to f_1): @user_script:2: WRONGTYPE Operation", "is not a lock"),
            ("Error running script (call to f_1): @user_script:2: -OOM command", "out of memory"),
            ("The user executing the script can't run this command", "may not run a command of the script"),
            (
                "The user executing the script can't access at least one of the keys",
                "touch the key `orders/42`",
            ),
            ("ACL failure in script: User anna has no permissions", "may not run EVAL"),
        ] {
            let (message, _) = said("ERR", words);
            assert!(message.contains(meaning), "{message}");
        }
    }

    #[test]
    fn a_servers_words_are_stripped_and_bounded() {
        let (message, _) = said("ERR", &format!("\x1b[2J{}", "x".repeat(10_000)));
        assert!(!message.chars().any(char::is_control), "it could move the cursor");
        assert!(message.chars().count() < 300, "it could fill the screen");
    }
}
