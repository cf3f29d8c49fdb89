//! Explains the errors of servers and connections, with the fix.

use std::error::Error;
use std::fmt;
use std::io;

use super::connection::ConnectionError;
use super::resp::frame::{FOREIGN, FrameError};
use super::server_error::{MissingRight, ServerError, ServerErrorKind};
use crate::node::Reason;
use crate::node::{NodeError, NodeErrorKind};
use crate::transport::TlsFailure;
use quorlock_protocol::{Slot, printable};

/// The longest excerpt of text from outside, in characters.
const WORDS: usize = 200;

/// The permissions that a user needs for all kinds of lock: scripts run with the permissions of the caller.
pub(super) const RIGHTS: &str = "+eval +evalsha +get +set +setrange +del +pttl +pexpire +info +client|setname \
     +client|tracking +client|kill +time +zadd +zincrby +zrem +zremrangebyrank +zpopmin +pexpireat \
     +zremrangebyscore +zpopmax +zrangebyscore";

/// Returns whether a cluster member has redirected the request without carrying it out.
pub(super) fn is_sent_away(error: &NodeError) -> bool {
    ServerError::of(error).is_some_and(|reply| reply.kind().is_sent_away())
}

/// The error for a slot without a master in the map.
pub(super) fn unserved(slot: Slot) -> NodeError {
    failed(NodeErrorKind::Busy, format!("the cluster does not serve its slot, {slot}: it has no master"))
}

/// A command that was sent, for messages.
#[derive(Clone, Copy)]
pub(crate) struct SentCommand<'a> {
    /// The command.
    pub(crate) command: &'a str,
    /// The key of the lock, or empty.
    pub(crate) key: &'a str,
    /// The ACL user.
    pub(crate) user: &'a str,
    /// The receiver.
    pub(crate) peer: Peer,
}

/// The receiver of a command: the fix of a refusal depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    Server,
    Sentinel,
}

/// Explains the error reply of a server, with the fix.
pub(crate) fn refused(error: &redis::ServerError, asked: SentCommand<'_>) -> NodeError {
    explain(ServerError::read(error), asked)
}

/// Creates an error of this kind.
pub(crate) fn failed(kind: NodeErrorKind, reason: impl Into<Reason>) -> NodeError {
    NodeError::Failed { kind, reason: reason.into() }
}

/// Converts the error that ended an attempt to connect.
pub(crate) fn unconnected(reason: ConnectionError) -> NodeError {
    match reason {
        ConnectionError::FrameError(FOREIGN) => unexpected(FOREIGN.0),
        ConnectionError::Stream(error) => match TlsFailure::behind(error) {
            Ok(no_tls) => no_tls.into(),
            Err(error) => NodeError::Unreachable { reason: ConnectionError::Stream(error).into() },
        },
        ConnectionError::FrameError(_)
        | ConnectionError::Early { .. }
        | ConnectionError::Stray
        | ConnectionError::Flood
        | ConnectionError::Demoted
        | ConnectionError::Invalidated => NodeError::Unreachable { reason: reason.into() },
    }
}

/// Returns whether the server or the network closed the connection before the server had sent anything.
pub(super) fn is_closed(error: &NodeError) -> bool {
    let broken = error.source().and_then(|source| source.downcast_ref::<ConnectionError>());
    matches!(error, NodeError::Unreachable { .. }) && broken.is_some_and(ConnectionError::is_closed)
}

impl ConnectionError {
    /// Returns whether the connection was closed, by either side and at any stage.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            ConnectionError::Early { .. } => true,
            ConnectionError::Stream(error) => ConnectionError::is_end(error),
            ConnectionError::FrameError(_)
            | ConnectionError::Stray
            | ConnectionError::Flood
            | ConnectionError::Demoted
            | ConnectionError::Invalidated => false,
        }
    }

    /// Returns whether an error of the stream is such an end.
    pub(super) fn is_end(error: &io::Error) -> bool {
        matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::NotConnected
        )
    }
}

/// Why a connection ended, in words.
impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CLOSED: &str = "closed by the server or the network";
        match self {
            ConnectionError::FrameError(FrameError(what)) => f.write_str(what),
            ConnectionError::Stray => f.write_str("it sent a reply without a request"),
            ConnectionError::Flood => {
                f.write_str("it pushed far more data than the requests explain, so the connection was closed")
            }
            ConnectionError::Demoted => f.write_str("the server has become a replica"),
            ConnectionError::Invalidated => f.write_str(
                "the server has invalidated all keys, as when it was emptied or its data replaced (FLUSHALL, REPLICAOF, \
                 DEBUG RELOAD)",
            ),
            ConnectionError::Early { likely, .. } => write!(f, "{CLOSED} before it sent anything; {likely}"),
            ConnectionError::Stream(_) if self.is_closed() => f.write_str(CLOSED),
            ConnectionError::Stream(error) => write!(f, "{error}"),
        }
    }
}

impl Error for ConnectionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ConnectionError::Early { error, .. } => Some(error),
            ConnectionError::Stream(error) if self.is_closed() => Some(error),
            // The error itself is in the text already.
            ConnectionError::Stream(error) => error.source(),
            ConnectionError::FrameError(_)
            | ConnectionError::Stray
            | ConnectionError::Flood
            | ConnectionError::Demoted
            | ConnectionError::Invalidated => None,
        }
    }
}

impl From<ConnectionError> for Reason {
    fn from(reason: ConnectionError) -> Reason {
        Reason::new("").because(reason)
    }
}

/// The error of an invalid reply.
pub(crate) fn unexpected(what: &str) -> NodeError {
    failed(NodeErrorKind::Other, what)
}

/// Explains the error, with the fix.
pub(super) fn explain(error: ServerError, asked: SentCommand<'_>) -> NodeError {
    let is_no_sentinel = *error.kind() == ServerErrorKind::UnknownCommand && asked.command == SENTINEL;
    let kind = if is_no_sentinel { NodeErrorKind::WrongServer } else { error.kind().of_any_store() };
    failed(kind, Reason::new(sentence(error.kind(), asked)).quoting(error))
}

fn sentence(kind: &ServerErrorKind, asked: SentCommand<'_>) -> String {
    let SentCommand { command, key, user, peer } = asked;
    let key = printable(key).cut(WORDS).to_string();
    match (kind, peer) {
        (ServerErrorKind::WrongType, _) => {
            format!("the key `{key}` holds something that is not a lock; use another name or prefix")
        }
        (ServerErrorKind::NoPermission(right), _) => missing(right, command, &key, user),
        (ServerErrorKind::PasswordWanted, Peer::Sentinel) => format!("it requires a password; {SENTINEL_LOGIN}"),
        (ServerErrorKind::PasswordWanted, Peer::Server) => {
            format!("it requires a password; give {LOGIN}")
        }
        (ServerErrorKind::WrongPassword, Peer::Sentinel) => {
            format!("it rejects the password for the user `{user}`; {SENTINEL_LOGIN}")
        }
        (ServerErrorKind::WrongPassword, Peer::Server) => {
            format!("it rejects the password for the user `{user}`, who may be disabled; correct {LOGIN}")
        }
        (ServerErrorKind::ProtectedMode, _) => {
            "it accepts local connections only, because it has no password (protected mode); set passwords for \
             its users, rather than switch that off"
                .into()
        }
        (ServerErrorKind::ReadOnlyReplica, _) => "it is a replica; use the master's address".into(),
        (ServerErrorKind::MasterDown, _) => "it is a replica that has lost its master".into(),
        (ServerErrorKind::Moved, _) => {
            "its slot is served by another master of the cluster, which is used from now on".into()
        }
        (ServerErrorKind::Migrating, _) => {
            "its slot is being migrated to another master of the cluster".into()
        }
        (ServerErrorKind::ClusterDown, _) => {
            "the cluster does not serve its slot until another master takes it over".into()
        }
        (ServerErrorKind::CrossSlot, _) => {
            "the locks of the request are in different hash slots of the cluster; give their names \
             one hash tag, such as `{accounts}/1` and `{accounts}/2`"
                .into()
        }
        (ServerErrorKind::ClusterDisabled, _) => NO_MEMBER.into(),
        (ServerErrorKind::ClusterEnabled, _) => MEMBER.into(),
        (ServerErrorKind::NoSuchDatabase, _) => {
            "it has no database of the number in the address: its setting `databases` says how many there are, 16 by \
             default, from 0 on"
                .into()
        }
        (ServerErrorKind::Loading, _) => "it is still loading its data".into(),
        (ServerErrorKind::Busy, _) => "it is busy running a slow script; wait, or end it with `SCRIPT KILL`".into(),
        (ServerErrorKind::TooManyClients, _) => "it has reached its limit of clients; raise `maxclients`, or see in `CLIENT LIST` \
             which program opens most of the connections"
            .into(),
        (ServerErrorKind::OutOfMemory, _) => {
            "it is out of memory; raise `maxmemory`, or use a separate server for locks".into()
        }
        (ServerErrorKind::CannotSave, _) => {
            "it cannot save its data, and so refuses writes; its log says why, such as a full disk".into()
        }
        (ServerErrorKind::TooFewReplicas, _) => {
            "it has too few replicas, and so refuses writes; start them, or lower `min-replicas-to-write`".into()
        }
        (ServerErrorKind::UnknownCommand, _) if command == SENTINEL => {
            "it is no Sentinel: give the port of the Sentinels, 26379 unless set, or write redis:// for a server".into()
        }
        (ServerErrorKind::UnknownCommand, _) => format!(
            "it does not know {command}; use Redis 6 or newer or Valkey, and do not rename {command}"
        ),
        (
            ServerErrorKind::UnknownScript | ServerErrorKind::UnknownProtocol | ServerErrorKind::Other,
            Peer::Server | Peer::Sentinel,
        ) => "it returned an error".into(),
    }
}

/// The places for a server's password.
pub(super) const LOGIN: &str = "`user:password@` before the host in the address (`default:password@` without users of \
     your own), or the program's password (`Builder::password`, --password-file or QUORLOCK_PASSWORD)";

/// A server that was given as a node of its own.
pub(super) const MEMBER: &str = "it is a cluster member (cluster_enabled:1), which serves some keys only; give the \
     cluster as one node, `redis+cluster://host:port,host:port`";

/// A server that was given as a member.
pub(super) const NO_MEMBER: &str = "it is not a cluster member (cluster_enabled:0); write redis:// for it";

/// The place for a Sentinel's password: the one before the hosts is for the servers.
pub(super) const SENTINEL_LOGIN: &str = "give the user and the password of the Sentinels after the service in the \
     address: `?sentinel_username=…&sentinel_password=…`";

/// Returns the right to a command that not all clients run, and what to add.
fn own_right(command: &str) -> Option<(&'static str, &'static str)> {
    match command {
        CLUSTER_NODES => Some(("+cluster|nodes", " on every member")),
        SENTINEL => Some(("+sentinel|get-master-addr-by-name +sentinel|master", " on every Sentinel")),
        SCAN => Some(("+scan", "")),
        SELECT => Some(("+select", ", or use database 0")),
        _ => None,
    }
}

/// Explains a missing permission.
fn missing(right: &MissingRight, command: &str, key: &str, user: &str) -> String {
    if let Some((right, rest)) = own_right(command) {
        return format!("the user `{user}` may not run {command}; grant `ACL SETUSER {user} {right}`{rest}");
    }
    match right {
        MissingRight::Key => format!(
            "the user `{user}` may not access the key `{key}`, its companions, which begin with it, or the fencing counters, \
             which begin with the key prefix; use the prefix of keys that it may touch (--key-prefix), or grant \
             `ACL SETUSER {user} ~PREFIX* &PREFIX*`"
        ),
        MissingRight::Command { named: Some(named) } => {
            format!("the user `{user}` may not run {}; {}", named.to_uppercase(), grant(user))
        }
        MissingRight::Command { named: None } => {
            format!("the user `{user}` may not run {command}; {}", grant(user))
        }
        MissingRight::CommandInScript => {
            format!("the user `{user}` may not run a command of the script in its {command}; {}", grant(user))
        }
    }
}

/// The command that requests the map from a cluster member.
pub(super) const CLUSTER_NODES: &str = "CLUSTER NODES";
/// The command that asks a Sentinel.
pub(super) const SENTINEL: &str = "SENTINEL";
/// The command that chooses the database of the address.
pub(super) const SELECT: &str = "SELECT";
/// The command that lists keys.
pub(super) const SCAN: &str = "SCAN";

fn grant(user: &str) -> String {
    format!("grant `ACL SETUSER {user} {RIGHTS}`")
}

#[cfg(test)]
mod tests;
