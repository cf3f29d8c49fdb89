//! What an error of a Redis or Valkey server says, read in one place.
//!
//! Nearly all have a code at their beginning. For some there are only words, which have stayed the same in
//! all versions: those of scripts, and of commands that are not there.

use std::error::Error;
use std::fmt;

use crate::node::{Access, NodeErrorKind};
use crate::reason::printable;

/// The longest excerpt of a server's words that is passed on, in characters.
const WORDS: usize = 200;

/// An error that a Redis or Valkey server has answered: the [source](Error::source) of the
/// [`NodeError`](crate::node::NodeError) that comes of it.
///
/// Written as the server has written it, without control characters and at most 200 characters of it.
///
/// # Examples
///
/// ```
/// use quorlock::{node::NodeError, redis::{ServerError, ServerErrorKind}};
///
/// fn wants_a_password(error: &NodeError) -> bool {
///     ServerError::of(error).is_some_and(|said| *said.kind() == ServerErrorKind::PasswordWanted)
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerError {
    kind: ServerErrorKind,
    /// As it is shown.
    said: Box<str>,
}

/// Which error of a Redis or Valkey server it is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ServerErrorKind {
    /// `WRONGTYPE`: the key holds something of another type.
    WrongType,
    /// `NOPERM`: the ACL user lacks a right.
    NoPermission(MissingRight),
    /// `NOAUTH`: the client has not logged in.
    PasswordWanted,
    /// `WRONGPASS`: no such user, another password, or the user is off.
    WrongPassword,
    /// `DENIED`: protected mode.
    ProtectedMode,
    /// `READONLY`: a write was sent to a replica.
    ReadOnlyReplica,
    /// `MASTERDOWN`: a replica that has lost its master.
    MasterDown,
    /// `MOVED`: another master of the cluster serves the slot.
    Moved,
    /// `ASK`, `TRYAGAIN`: the slot is on its way to another master of the cluster.
    Migrating,
    /// `CLUSTERDOWN`: the cluster does not serve the slot.
    ClusterDown,
    /// `CROSSSLOT`: keys in different slots.
    CrossSlot,
    /// The server is no member of a cluster.
    ClusterDisabled,
    /// `LOADING`: it reads its data.
    Loading,
    /// `BUSY`: a slow script runs.
    Busy,
    /// It has as many clients as it takes.
    TooManyClients,
    /// `OOM`: its memory is full.
    OutOfMemory,
    /// `MISCONF`: it cannot save its data.
    CannotSave,
    /// `NOREPLICAS`: too few replicas follow it.
    TooFewReplicas,
    /// It does not know the command.
    UnknownCommand,
    /// `NOSCRIPT`: it does not know the script.
    UnknownScript,
    /// `NOPROTO`: it does not speak this version of RESP.
    UnknownProtocol,
    /// Anything else.
    Other,
}

/// Which right an ACL user lacks.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MissingRight {
    /// To touch the key.
    Key,
    /// To run the command that was sent, or the one that the server names.
    Command {
        /// As the server calls it, if it does.
        named: Option<Box<str>>,
    },
    /// To run a command within the script that was sent. Redis 7.0 does not say which.
    CommandInScript,
}

impl ServerError {
    /// The error in these words, the first of which may be a code.
    pub(crate) fn new(code: &str, words: &str) -> ServerError {
        let code = inner_code(code, words);
        let said = printable(format!("{code} {words}").trim_end(), WORDS).into();
        ServerError { kind: ServerErrorKind::read(code, words), said }
    }

    /// The error as the client crate has read it.
    pub(crate) fn read(error: &redis::ServerError) -> ServerError {
        ServerError::new(error.code(), error.details().unwrap_or(""))
    }

    /// The error on this line, behind its `-`.
    pub(crate) fn on_line(line: &str) -> ServerError {
        let (code, words) = line.split_once(' ').unwrap_or((line, ""));
        ServerError::new(code, words)
    }

    /// Which error it is.
    #[must_use]
    pub fn kind(&self) -> &ServerErrorKind {
        &self.kind
    }

    /// The error of a server among `error` and its sources, if one is.
    #[must_use]
    pub fn of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a ServerError> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(said) = error.downcast_ref() {
                return Some(said);
            }
            next = error.source();
        }
        None
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.said)
    }
}

impl Error for ServerError {}

impl ServerErrorKind {
    fn read(code: &str, words: &str) -> ServerErrorKind {
        let has = |sign: &str| words.contains(sign);
        match code {
            "WRONGTYPE" => ServerErrorKind::WrongType,
            "NOPERM" => ServerErrorKind::NoPermission(MissingRight::read(words)),
            // A transaction of which a command was refused.
            "EXECABORT" if has("NOPERM") => ServerErrorKind::NoPermission(MissingRight::read(words)),
            "NOAUTH" => ServerErrorKind::PasswordWanted,
            "WRONGPASS" => ServerErrorKind::WrongPassword,
            "DENIED" => ServerErrorKind::ProtectedMode,
            "READONLY" => ServerErrorKind::ReadOnlyReplica,
            "MASTERDOWN" => ServerErrorKind::MasterDown,
            "MOVED" => ServerErrorKind::Moved,
            "ASK" | "TRYAGAIN" => ServerErrorKind::Migrating,
            "CLUSTERDOWN" => ServerErrorKind::ClusterDown,
            "CROSSSLOT" => ServerErrorKind::CrossSlot,
            "LOADING" => ServerErrorKind::Loading,
            "BUSY" => ServerErrorKind::Busy,
            "OOM" => ServerErrorKind::OutOfMemory,
            "MISCONF" => ServerErrorKind::CannotSave,
            "NOREPLICAS" => ServerErrorKind::TooFewReplicas,
            "NOSCRIPT" => ServerErrorKind::UnknownScript,
            "NOPROTO" => ServerErrorKind::UnknownProtocol,
            // These have no code of their own.
            _ if has("access a non local key") => ServerErrorKind::Migrating,
            _ if has("cluster is down") => ServerErrorKind::ClusterDown,
            _ if has("cluster support disabled") => ServerErrorKind::ClusterDisabled,
            _ if has("max number of clients") => ServerErrorKind::TooManyClients,
            _ if words.to_ascii_lowercase().contains("unknown command") => ServerErrorKind::UnknownCommand,
            _ => ServerErrorKind::Other,
        }
    }

    /// The same in a word that fits any store.
    pub(crate) fn of_any_store(&self) -> NodeErrorKind {
        match self {
            ServerErrorKind::WrongType => NodeErrorKind::WrongData,
            ServerErrorKind::NoPermission(MissingRight::Key) => NodeErrorKind::PermissionDenied(Access::Key),
            ServerErrorKind::NoPermission(MissingRight::Command { .. } | MissingRight::CommandInScript) => {
                NodeErrorKind::PermissionDenied(Access::Operation)
            }
            ServerErrorKind::PasswordWanted | ServerErrorKind::WrongPassword => NodeErrorKind::Login,
            ServerErrorKind::ProtectedMode => NodeErrorKind::HostRefused,
            ServerErrorKind::ReadOnlyReplica => NodeErrorKind::ReadOnly,
            ServerErrorKind::MasterDown
            | ServerErrorKind::Moved
            | ServerErrorKind::Migrating
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::Loading
            | ServerErrorKind::Busy
            | ServerErrorKind::TooManyClients
            | ServerErrorKind::TooFewReplicas => NodeErrorKind::Busy,
            ServerErrorKind::OutOfMemory | ServerErrorKind::CannotSave => NodeErrorKind::OutOfSpace,
            ServerErrorKind::ClusterDisabled => NodeErrorKind::WrongServer,
            ServerErrorKind::CrossSlot | ServerErrorKind::UnknownCommand => NodeErrorKind::Unsupported,
            ServerErrorKind::UnknownScript | ServerErrorKind::UnknownProtocol | ServerErrorKind::Other => {
                NodeErrorKind::Other
            }
        }
    }

    /// Whether a master of a cluster has sent the request away, without carrying it out: see
    /// docs/adr/0014-cluster.md.
    pub(crate) fn is_sent_away(&self) -> bool {
        matches!(self, ServerErrorKind::Moved | ServerErrorKind::Migrating | ServerErrorKind::ClusterDown)
    }

    /// Whether the command may not be run, or is not there.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, ServerErrorKind::NoPermission(_) | ServerErrorKind::UnknownCommand)
    }
}

impl MissingRight {
    fn read(words: &str) -> MissingRight {
        // In all versions the words for a key that may not be touched, and for nothing else.
        if words.contains("to access") || words.contains("can't access") {
            return MissingRight::Key;
        }
        let named =
            words.split_once("permissions to run the '").and_then(|(_, named)| named.split_once('\''));
        match named {
            Some((named, _)) => MissingRight::Command { named: Some(printable(named, WORDS).into()) },
            None if words.contains("executing the script") => MissingRight::CommandInScript,
            None => MissingRight::Command { named: None },
        }
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
