//! Locks as Redisson stores them (ADR 8): names, messages and refusals. `command/redisson` encodes the requests.
//!
//! ```text
//! NAME                              hash   the owner, which is a token or Redisson's UUID:THREAD, and its depth
//! redisson_lock__channel:{NAME}     -      a message at each release, for the waiters of Redisson
//! redisson_lock_token:{NAME}        string the last number of a fenced lock
//! redisson_lock_queue:{NAME}        list   who waits for a fair lock: the first is waited for
//! redisson_lock_timeout:{NAME}      zset   until when each of them is to be waited for
//! ```
//!
//! Redisson's waiters sleep until the message, and ours until the server says that the key has changed, which it says of
//! Redisson's releases as well. A tombstone is beside the lock, as in the own layout. Everything is done by scripts.

use std::fmt;

use redis::{Cmd, cmd};

use super::connection::server_error;
use super::error::{Peer, SentCommand, failed, refused};
use super::introduction::{Introduction, Replies, ReplyTo};
use super::resp::decode::{RespReader, RespValue};
use super::server_error::{ServerError, ServerErrorKind};
use super::settings::{Membership, Settings};
use crate::node::{Capabilities, Capability, Hints, NodeError, NodeErrorKind, Order};
use quorlock_protocol::Slot;

/// Returns what a node in this layout supports.
pub(super) fn capabilities() -> Capabilities {
    let able = Capabilities::default().with(Capability::Transfer);
    able.in_order(Order::PerKey).hinting(Hints::RemovalAndExpiry).hinting_holders().shared_with_others()
}

/// What Redisson has beside a lock.
#[derive(Clone, Copy)]
pub(super) enum Companion {
    Channel,
    Token,
    Queue,
    Times,
}

impl Companion {
    /// Returns its name, as Redisson forms it.
    pub(super) fn of(self, lock: &str) -> Named<'_> {
        let kind = self.prefix();
        // A name with a brace is taken to have a hash tag.
        let [open, close] = if lock.contains('{') { [""; 2] } else { ["{", "}"] };
        Named([kind, open, lock, close])
    }

    /// Returns with what all names of its kind begin.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Companion::Channel => "redisson_lock__channel:",
            Companion::Token => "redisson_lock_token:",
            Companion::Queue => "redisson_lock_queue:",
            Companion::Times => "redisson_lock_timeout:",
        }
    }
}

/// The name of a companion, not formatted yet.
pub(super) struct Named<'a>([&'a str; 4]);

impl Named<'_> {
    pub(super) fn pieces(&self) -> [&str; 4] {
        self.0
    }
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| f.write_str(piece))
    }
}

/// Returns whether Redisson's companions of the lock are in its hash slot of a cluster: otherwise Redisson itself cannot
/// lock the name there.
pub(super) fn keeps_slot(lock: &str) -> bool {
    Slot::of(&Companion::Channel.of(lock).to_string()) == Slot::of(lock)
}

/// How a release is published: as Redisson does, by sharded channels in a cluster that has them (Redis 7), and by plain
/// ones elsewhere. By the other way its waiters would not hear of it, and sleep until the lock expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Publishing {
    Plain,
    Sharded,
}

/// The requests of the handshake that find out how to publish.
pub(super) struct Asked {
    script: ReplyTo,
    publishing: ReplyTo,
    tried: Publishing,
}

impl Publishing {
    pub(super) fn command(self) -> &'static str {
        match self {
            Publishing::Plain => "PUBLISH",
            Publishing::Sharded => "SPUBLISH",
        }
    }

    /// Adds the requests to the handshake: a script, and a message without a waiter. A master of a cluster without the
    /// slot of its channel refuses the latter, which shows that it knows the command as well.
    pub(super) fn ask(introduction: &mut Introduction, settings: &Settings) -> Asked {
        let tried = match settings.membership {
            Membership::Alone => Publishing::Plain,
            Membership::OfCluster => Publishing::Sharded,
        };
        Asked {
            script: introduction.add(cmd("EVAL").arg("return 1").arg(0)),
            publishing: introduction.add(&tried.message(&settings.key_prefix)),
            tried,
        }
    }

    /// Returns the message of the handshake.
    fn message(self, key_prefix: &str) -> Cmd {
        let unused = format!("{key_prefix}quorlock:handshake");
        cmd(self.command()).arg(Companion::Channel.of(&unused).to_string()).arg("0").clone()
    }

    /// Reads the replies. A user that may not run scripts, or not publish, cannot use the layout.
    pub(super) fn read(replies: &mut Replies, asked: &Asked, user: &str) -> Result<Publishing, NodeError> {
        let mut error = |reply| replies.take(reply).and_then(server_error);
        if let Some(error) = error(asked.script) {
            return Err(unfit(&error, "EVAL", user));
        }
        let Some(error) = error(asked.publishing) else { return Ok(asked.tried) };
        match (ServerError::read(&error).kind(), asked.tried) {
            (ServerErrorKind::UnknownCommand, Publishing::Sharded) => Ok(Publishing::Plain),
            (ServerErrorKind::NoPermission(_) | ServerErrorKind::UnknownCommand, tried) => {
                Err(unfit(&error, tried.command(), user))
            }
            _ => Ok(asked.tried),
        }
    }
}

/// Why the user cannot use the layout.
fn unfit(error: &redis::ServerError, command: &str, user: &str) -> NodeError {
    let asked = SentCommand { command, key: "", user, peer: Peer::Server };
    let error = explain(refused(error, asked));
    if let NodeError::Failed { kind, reason } = error { NodeError::Unfit { kind, reason } } else { error }
}

/// Adds what a user needs for this layout to the error of a missing permission.
pub(super) fn explain(error: NodeError) -> NodeError {
    if let NodeError::Failed { kind: kind @ NodeErrorKind::PermissionDenied(_), reason } = error {
        let reason = reason.within(format_args!("Redisson's layout needs `{RIGHTS}`"));
        return NodeError::Failed { kind, reason };
    }
    error
}

/// The permissions that a user needs.
pub(super) const RIGHTS: &str = "~* &redisson_lock__channel:* +eval +evalsha +exists +hexists +hlen +hgetall +hset +hdel \
     +get +getex +set +setrange +del +pttl +pexpire +lindex +zscore +time +publish +spublish +info +client|setname +client|tracking";

/// Returns why there is no lock of this layout under a key, if that is the reply.
pub(super) fn no_lock(answer: &[u8], key: &str) -> Option<NodeError> {
    let mut parts = RespReader::of(answer);
    let (Some(RespValue::List(1)), Some(RespValue::Text(word))) = (parts.next(), parts.next()) else {
        return None;
    };
    let (key, lock) = (quorlock_protocol::printable(key), key);
    let reason = match word {
        b"fair" => format!(
            "clients of Redisson wait for `{key}` in the queue of a fair lock, and until when cannot be read: give the user \
             `+lindex +zscore ~{}*`, or, if the first of the queue has no time and no client waits, delete `{}`",
            Companion::Times.prefix(),
            quorlock_protocol::printable(&Companion::Queue.of(lock).to_string())
        ),
        b"readwrite" => format!(
            "`{key}` is a read-write lock of Redisson, whose readers would not wait for this library; use another name"
        ),
        b"nolock" => format!("the hash `{key}` is not a lock of Redisson; use another name or prefix"),
        _ => return None,
    };
    Some(failed(NodeErrorKind::WrongData, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn companions_are_named_as_redisson_names_them() {
        for (lock, channel) in [
            ("jobs:nightly", "redisson_lock__channel:{jobs:nightly}"),
            ("{jobs}:nightly", "redisson_lock__channel:{jobs}:nightly"),
            ("a}b", "redisson_lock__channel:{a}b}"),
            ("a{b", "redisson_lock__channel:a{b"),
        ] {
            assert_eq!(Companion::Channel.of(lock).to_string(), channel);
        }
        assert_eq!(Companion::Token.of("a").to_string(), "redisson_lock_token:{a}");
        assert_eq!(Companion::Queue.of("a").to_string(), "redisson_lock_queue:{a}");
        for lock in ["a}b", "a{b", "a{}b", "{}"] {
            assert!(!keeps_slot(lock), "{lock}: Redisson's own script has two slots");
        }
        assert!(keeps_slot("jobs:nightly") && keeps_slot("{jobs}:nightly") && keeps_slot("x{jobs}"));
    }

    #[test]
    fn a_reply_says_why_a_key_is_no_lock_of_this_layout() {
        let output =
            |word: &str| no_lock(format!("*1\r\n${}\r\n{word}\r\n", word.len()).as_bytes(), "a\u{202e}");
        for (word, expected) in [("fair", "fair lock"), ("readwrite", "read-write"), ("nolock", "not a lock")]
        {
            let error = output(word).unwrap();
            assert!(error.is_permanent() && !error.may_have_acted(), "{error:?}");
            let shown = error.to_string();
            assert!(shown.contains(expected) && !shown.contains('\u{202e}'), "{shown}");
        }
        assert!(output("free").is_none() && no_lock(b"$4\r\nfair\r\n", "a").is_none());
    }
}
