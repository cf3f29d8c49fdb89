//! What the errors of a server and of a connection mean for a lock, with the cure.

use std::error::Error;
use std::fmt;
use std::io;

use super::connection::ConnectionError;
use super::resp::frame::{FOREIGN, FrameError};
use super::server_error::{MissingRight, ServerError, ServerErrorKind};
use crate::node::{NodeError, NodeErrorKind};
use crate::reason::Reason;
use crate::reason::printable;
use crate::transport::NoTls;
use quorlock_protocol::Slot;

/// The longest excerpt of what others have named, in characters.
const WORDS: usize = 200;

/// The commands that a user needs, for all kinds of lock: the scripts run with the rights of their caller.
pub(super) const RIGHTS: &str = "+eval +evalsha +get +set +setrange +del +pttl +pexpire +info +client|setname \
     +client|tracking +client|kill +time +multi +exec +zadd +zincrby +zrem +zremrangebyrank +zpopmin \
     +incrby +pexpireat +zremrangebyscore +zpopmax +zrangebyscore";

/// Whether a member of a cluster has sent the request away, without carrying it out.
pub(super) fn is_sent_away(error: &NodeError) -> bool {
    ServerError::of(error).is_some_and(|said| said.kind().is_sent_away())
}

/// The error for a slot that no master has, by the map.
pub(super) fn unserved(slot: Slot) -> NodeError {
    failed(NodeErrorKind::Busy, format!("the cluster does not serve its slot, {slot}: no master has it"))
}

/// What the server was asked: for messages.
#[derive(Clone, Copy)]
pub(crate) struct SentCommand<'a> {
    /// The command.
    pub(crate) command: &'a str,
    /// The key of the lock, or empty.
    pub(crate) key: &'a str,
    /// The ACL user.
    pub(crate) user: &'a str,
    /// Who was asked.
    pub(crate) peer: Peer,
}

/// Who is asked: what cures a refusal depends on that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    Server,
    Sentinel,
}

/// The error that the server answered, with its meaning and the cure.
pub(crate) fn refused(error: &redis::ServerError, asked: SentCommand<'_>) -> NodeError {
    explain(ServerError::read(error), asked)
}

/// An error of this kind.
pub(crate) fn failed(kind: NodeErrorKind, reason: impl Into<Reason>) -> NodeError {
    NodeError::Failed { kind, reason: reason.into() }
}

/// The error that ended an attempt to connect.
pub(crate) fn unconnected(reason: ConnectionError) -> NodeError {
    match reason {
        ConnectionError::FrameError(FOREIGN) => unexpected(FOREIGN.0),
        ConnectionError::Stream(error) => match NoTls::behind(error) {
            Ok(no_tls) => no_tls.into(),
            Err(error) => NodeError::Unreachable { reason: ConnectionError::Stream(error).into() },
        },
        ConnectionError::FrameError(_)
        | ConnectionError::Early { .. }
        | ConnectionError::Stray
        | ConnectionError::Flood
        | ConnectionError::Queued
        | ConnectionError::Demoted => NodeError::Unreachable { reason: reason.into() },
    }
}

/// Whether the server or the network has closed the connection before the server had said anything.
pub(super) fn is_closed(error: &NodeError) -> bool {
    let broken = error.source().and_then(|source| source.downcast_ref::<ConnectionError>());
    matches!(error, NodeError::Unreachable { .. }) && broken.is_some_and(ConnectionError::is_closed)
}

impl ConnectionError {
    /// Whether that is the end of a connection, whoever ended it and at whichever moment we noticed.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            ConnectionError::Early { .. } => true,
            ConnectionError::Stream(error) => ConnectionError::is_end(error),
            ConnectionError::FrameError(_)
            | ConnectionError::Stray
            | ConnectionError::Flood
            | ConnectionError::Queued
            | ConnectionError::Demoted => false,
        }
    }

    /// The same of the stream's error.
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
            ConnectionError::Stray => f.write_str("it sent an answer to no request"),
            ConnectionError::Flood => f.write_str("it pushed far more than it was asked for, and was left"),
            ConnectionError::Queued => {
                f.write_str("a transaction was left open: may its user run EXEC, and is it not renamed?")
            }
            ConnectionError::Demoted => f.write_str("the server has become a replica"),
            ConnectionError::Early { likely, .. } => write!(f, "{CLOSED} before it said anything; {likely}"),
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
            // What it says stands above already.
            ConnectionError::Stream(error) => error.source(),
            ConnectionError::FrameError(_)
            | ConnectionError::Stray
            | ConnectionError::Flood
            | ConnectionError::Queued
            | ConnectionError::Demoted => None,
        }
    }
}

impl From<ConnectionError> for Reason {
    fn from(reason: ConnectionError) -> Reason {
        Reason::new("").because(reason)
    }
}

/// An answer that no server should give.
pub(crate) fn unexpected(what: &str) -> NodeError {
    failed(NodeErrorKind::Other, what)
}

/// What the error means, and what cures it.
pub(super) fn explain(error: ServerError, asked: SentCommand<'_>) -> NodeError {
    let kind = error.kind().of_any_store();
    failed(kind, Reason::new(sentence(error.kind(), asked)).quoting(error))
}

fn sentence(kind: &ServerErrorKind, asked: SentCommand<'_>) -> String {
    let SentCommand { command, key, user, peer } = asked;
    let key = printable(key, WORDS);
    match (kind, peer) {
        (ServerErrorKind::WrongType, _) => {
            format!("the key `{key}` holds something that is not a lock; use another name or prefix")
        }
        (ServerErrorKind::NoPermission(right), _) => missing(right, command, &key, user),
        (ServerErrorKind::PasswordWanted, Peer::Sentinel) => format!("it wants a password; {SENTINEL_LOGIN}"),
        (ServerErrorKind::PasswordWanted, Peer::Server) => {
            "it wants a password; give user and password of an ACL user".into()
        }
        (ServerErrorKind::WrongPassword, Peer::Sentinel) => {
            format!("it refuses the password for the user `{user}`; {SENTINEL_LOGIN}")
        }
        (ServerErrorKind::WrongPassword, Peer::Server) => {
            format!("it refuses the password for the user `{user}`; check both, and that the user is on")
        }
        (ServerErrorKind::ProtectedMode, _) => {
            "it talks to its own machine only, because it has no password (protected mode); give its users \
             passwords, rather than switch that off"
                .into()
        }
        (ServerErrorKind::ReadOnlyReplica, _) => "it is a replica; give the master's address".into(),
        (ServerErrorKind::MasterDown, _) => "it is a replica that has lost its master".into(),
        (ServerErrorKind::Moved, _) => {
            "its slot is served by another master of the cluster, which will be asked from now on".into()
        }
        (ServerErrorKind::Migrating, _) => {
            "its slot is served by another master of the cluster soon: it is on its way there".into()
        }
        (ServerErrorKind::ClusterDown, _) => {
            "the cluster does not serve its slot, until another master takes it over".into()
        }
        (ServerErrorKind::CrossSlot, _) => {
            "the locks that were asked for at once are in different hash slots of the cluster; give their names \
             one hash tag, such as `{accounts}/1` and `{accounts}/2`"
                .into()
        }
        (ServerErrorKind::ClusterDisabled, _) => {
            "it is no member of a cluster (cluster_enabled:0); write redis:// for it".into()
        }
        (ServerErrorKind::Loading, _) => "it is still loading its data".into(),
        (ServerErrorKind::Busy, _) => "a slow script keeps it busy".into(),
        (ServerErrorKind::TooManyClients, _) => "it has as many clients as it takes (maxclients)".into(),
        (ServerErrorKind::OutOfMemory, _) => "it is out of memory".into(),
        (ServerErrorKind::CannotSave, _) => "it cannot save its data and so refuses to write".into(),
        (ServerErrorKind::TooFewReplicas, _) => {
            "too few replicas follow it, and then it refuses to write (min-replicas-to-write)".into()
        }
        (ServerErrorKind::UnknownCommand, _) => format!(
            "it does not know {command}; Redis 6 or newer or Valkey is needed, with {command} not renamed"
        ),
        (
            ServerErrorKind::UnknownScript | ServerErrorKind::UnknownProtocol | ServerErrorKind::Other,
            Peer::Server | Peer::Sentinel,
        ) => "it answered with an error".into(),
    }
}

/// Where a Sentinel's password belongs: the one before the hosts is for the servers.
pub(super) const SENTINEL_LOGIN: &str = "give the user and the password of the Sentinels behind the service in the \
     address: `?sentinel_username=…&sentinel_password=…`";

/// The sentence for a right that is missing.
fn missing(right: &MissingRight, command: &str, key: &str, user: &str) -> String {
    match right {
        _ if command == CLUSTER_NODES => format!(
            "the user `{user}` may not run {command}; grant `ACL SETUSER {user} +cluster|nodes` at every member"
        ),
        MissingRight::Key => format!(
            "the user `{user}` may not touch the key `{key}` or those beside it; ask with the prefix of keys that \
             it may touch (--key-prefix), or grant `ACL SETUSER {user} ~PREFIX* ~quorlock:*`"
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

/// What a member of a cluster is asked for the map.
pub(super) const CLUSTER_NODES: &str = "CLUSTER NODES";

fn grant(user: &str) -> String {
    format!("grant `ACL SETUSER {user} {RIGHTS}`")
}

#[cfg(test)]
mod tests;
