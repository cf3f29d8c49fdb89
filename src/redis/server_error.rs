//! Classifies the errors of a Redis or Valkey server, in one place.
//!
//! Nearly all have a code. Errors of scripts and unknown commands only have texts, which are the same in all
//! versions.

use std::error::Error;
use std::fmt;

use crate::node::{Access, NodeErrorKind};
use quorlock_protocol::printable;

/// The longest excerpt of a server's text that is passed on, in characters.
const WORDS: usize = 200;

/// An error reply of a Redis or Valkey server: the [source](Error::source) of the resulting
/// [`NodeError`](crate::node::NodeError).
///
/// `Display` shows the server's text with hidden characters escaped, truncated to 200 characters.
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
    /// The text for `Display`.
    text: Box<str>,
}

/// The kind of an error of a Redis or Valkey server.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ServerErrorKind {
    /// `WRONGTYPE`: the key holds a value of another type.
    WrongType,
    /// `NOPERM`: the ACL user lacks a permission.
    NoPermission(MissingRight),
    /// `NOAUTH`: the client has not logged in.
    PasswordWanted,
    /// `WRONGPASS`: the user does not exist or is disabled, or the password is wrong.
    WrongPassword,
    /// `DENIED`: protected mode.
    ProtectedMode,
    /// `READONLY`: a write was sent to a replica.
    ReadOnlyReplica,
    /// `MASTERDOWN`: a replica has lost its master.
    MasterDown,
    /// `MOVED`: another master of the cluster serves the slot.
    Moved,
    /// `ASK`, `TRYAGAIN`: the slot is being migrated to another master of the cluster.
    Migrating,
    /// `CLUSTERDOWN`: the cluster does not serve the slot.
    ClusterDown,
    /// `CROSSSLOT`: keys in different slots.
    CrossSlot,
    /// The server is not a cluster member.
    ClusterDisabled,
    /// The server is a cluster member, which has database 0 only.
    ClusterEnabled,
    /// The server has no database of this number.
    NoSuchDatabase,
    /// `LOADING`: the server is loading its data.
    Loading,
    /// `BUSY`: the server is running a slow script.
    Busy,
    /// The server has reached its limit of clients.
    TooManyClients,
    /// `OOM`: the memory of the server is full.
    OutOfMemory,
    /// `MISCONF`: the server cannot save its data.
    CannotSave,
    /// `NOREPLICAS`: the server has too few replicas.
    TooFewReplicas,
    /// The server does not know the command, or has it switched off.
    UnknownCommand,
    /// `NOSCRIPT`: the server does not know the script.
    UnknownScript,
    /// `NOPROTO`: the server does not support this version of RESP.
    UnknownProtocol,
    /// Any other error.
    Other,
}

/// A permission that an ACL user lacks.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MissingRight {
    /// Access to the key.
    Key,
    /// Running the command that was sent, or the one that the server names.
    Command {
        /// The command, if the server names it.
        named: Option<Box<str>>,
    },
    /// Running a command within the script that was sent. Redis 7.0 does not name it.
    CommandInScript,
}

impl ServerError {
    /// Classifies the error with this code and text.
    pub(crate) fn new(code: &str, words: &str) -> ServerError {
        let code = inner_code(code, words);
        let text = printable(format!("{code} {words}").trim_end()).cut(WORDS).to_string().into();
        ServerError { kind: ServerErrorKind::read(code, words), text }
    }

    /// Converts the error of the client crate.
    pub(crate) fn read(error: &redis::ServerError) -> ServerError {
        ServerError::new(error.code(), error.details().unwrap_or(""))
    }

    /// Parses the error on this line, after its `-`.
    pub(crate) fn on_line(line: &str) -> ServerError {
        let (code, words) = line.split_once(' ').unwrap_or((line, ""));
        ServerError::new(code, words)
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> &ServerErrorKind {
        &self.kind
    }

    /// Returns the first server error among `error` and its sources.
    #[must_use]
    pub fn of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a ServerError> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(text) = error.downcast_ref() {
                return Some(text);
            }
            next = error.source();
        }
        None
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl Error for ServerError {}

impl ServerErrorKind {
    fn read(code: &str, words: &str) -> ServerErrorKind {
        let has = |sign: &str| words.contains(sign);
        match code {
            "WRONGTYPE" => ServerErrorKind::WrongType,
            "NOPERM" => ServerErrorKind::NoPermission(MissingRight::read(words)),
            // A transaction in which a command was refused.
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
            _ if has("SELECT is not allowed in cluster mode") => ServerErrorKind::ClusterEnabled,
            _ if has("DB index is out of range") || has("invalid DB index") => {
                ServerErrorKind::NoSuchDatabase
            }
            _ if has("max number of clients") => ServerErrorKind::TooManyClients,
            _ if is_unknown_command(words) => ServerErrorKind::UnknownCommand,
            _ => ServerErrorKind::Other,
        }
    }

    /// Returns the corresponding kind for any store.
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
            ServerErrorKind::ClusterDisabled | ServerErrorKind::ClusterEnabled => NodeErrorKind::WrongServer,
            ServerErrorKind::NoSuchDatabase => NodeErrorKind::Misconfigured,
            ServerErrorKind::CrossSlot | ServerErrorKind::UnknownCommand => NodeErrorKind::Unsupported,
            ServerErrorKind::UnknownScript | ServerErrorKind::UnknownProtocol | ServerErrorKind::Other => {
                NodeErrorKind::Other
            }
        }
    }

    /// Returns whether a master of a cluster has redirected the request without carrying it out: see
    /// docs/adr/0005-redis.md.
    pub(crate) fn is_sent_away(&self) -> bool {
        matches!(self, ServerErrorKind::Moved | ServerErrorKind::Migrating | ServerErrorKind::ClusterDown)
    }

    /// Returns whether the command is forbidden or unknown.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, ServerErrorKind::NoPermission(_) | ServerErrorKind::UnknownCommand)
    }
}

impl MissingRight {
    fn read(words: &str) -> MissingRight {
        // All versions use these texts for a key without access, and for nothing else.
        if words.contains("to access") || words.contains("can't access") {
            return MissingRight::Key;
        }
        let named =
            words.split_once("permissions to run the '").and_then(|(_, named)| named.split_once('\''));
        match named {
            Some((named, _)) => {
                MissingRight::Command { named: Some(printable(named).cut(WORDS).to_string().into()) }
            }
            None if words.contains("executing the script") => MissingRight::CommandInScript,
            None => MissingRight::Command { named: None },
        }
    }
}

/// Returns whether the server does not know a command, or its second word, or has it switched off: Redis Cloud does
/// not allow some, and Garnet is by default without scripts.
fn is_unknown_command(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    words.contains("unknown command")
        || words.starts_with("unknown subcommand")
        || (words.starts_with("command '") && words.ends_with("' is not allowed"))
        || words.ends_with("scripting support disabled")
}

/// Returns the code of the error inside a script. Servers before version 7 wrap it in `ERR Error running
/// script`, and all versions have their own texts for missing permissions inside a script. Redis has no code
/// for a `DELEX` on a key that is not a string.
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
