//! Maps errors of the server and of the connection to [`NodeError`].

use std::fmt;
use std::io;

use quorlock::node::{Access, NodeError, NodeErrorKind, Reason};

use crate::wire::Fields;

/// Why a packet of statements was not executed, or may not have been.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server refused it and did not execute it. The connection remains usable.
    Refused(Refusal),
    /// The connection ended or was abandoned: the packet may have been executed.
    Lost(Reason),
}

/// An error of the server after which the connection is usable.
#[derive(Debug)]
pub(crate) struct Refusal(ServerError);

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Lost(error.into())
    }
}

/// An error as the server sent it.
#[derive(Debug)]
pub(crate) struct ServerError {
    code: u16,
    state: String,
    message: String,
}

/// The number of characters of a message that are kept.
const LONGEST_MESSAGE: usize = 1024;

impl ServerError {
    /// Reads an error packet. Before the login it has no state.
    pub(crate) fn read(packet: &[u8]) -> io::Result<ServerError> {
        let mut fields = Fields(packet);
        fields.bytes(1)?;
        let code = u16::try_from(fields.number(2)?).unwrap_or_default();
        let state = if fields.0.first() == Some(&b'#') { fields.bytes(6)?.get(1..) } else { None };
        let shown = |text: &[u8]| {
            let text = String::from_utf8_lossy(text);
            text.chars().take(LONGEST_MESSAGE).map(|c| if c.is_control() { ' ' } else { c }).collect()
        };
        Ok(ServerError { code, state: shown(state.unwrap_or(b"HY000")), message: shown(fields.0) })
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServerError { code, state, message } = self;
        write!(f, "ERROR {code} ({state}): {message}")
    }
}

impl std::error::Error for ServerError {}

impl Refusal {
    /// Whether it is a deadlock, for which the transaction was rolled back.
    pub(crate) fn is_deadlock(&self) -> bool {
        matches!(self.0.code, DEADLOCK | CHECKREAD)
    }

    /// Whether another client has inserted the row in the meantime.
    pub(crate) fn is_duplicate(&self) -> bool {
        self.0.code == DUPLICATE
    }

    fn kind(&self) -> NodeErrorKind {
        kind_of(self.0.code)
    }

    /// Returns the privilege that the user lacks, as the server names it: `UPDATE command denied to user …`.
    fn missing_right(&self) -> Option<&str> {
        let (right, _) = self.0.message.split_once(" command denied")?;
        right.bytes().all(|byte| byte.is_ascii_uppercase()).then_some(right)
    }

    /// Converts to the error of the request.
    pub(crate) fn into_node_error(self) -> NodeError {
        let kind = self.kind();
        let reason = match self.missing_right() {
            Some(right) => Reason::new(format!(
                "the user lacks the privilege {right} on the lock tables: grant SELECT, INSERT, UPDATE and DELETE on the \
                 database"
            )),
            None => Reason::new(words(self.0.code)),
        };
        let unknown = self.0.code == DURING_COMMIT;
        let reason = reason.because(self.0);
        if kind == NodeErrorKind::ReadOnly {
            NodeError::Unfit { kind, reason }
        } else if unknown {
            // Whether the commit reached the disk is unknown.
            NodeError::UnexpectedReply { reason }
        } else {
            NodeError::Failed { kind, reason }
        }
    }
}

impl Failure {
    pub(crate) fn refused(error: ServerError) -> Failure {
        if ends_the_connection(error.code) {
            Failure::Lost(Reason::new("").because(error))
        } else {
            Failure::Refused(Refusal(error))
        }
    }

    /// Whether the table does not exist.
    pub(crate) fn is_table_missing(&self) -> bool {
        matches!(self, Failure::Refused(refusal) if refusal.0.code == NO_TABLE)
    }

    /// Whether the user lacks a privilege.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Failure::Refused(refusal) if matches!(refusal.kind(), NodeErrorKind::PermissionDenied(_)))
    }

    /// Converts to the error of a request that may have been executed if the connection was lost.
    pub(crate) fn into_node_error(self) -> NodeError {
        match self {
            Failure::Refused(refusal) => refusal.into_node_error(),
            Failure::Lost(reason) => NodeError::Disconnected { reason },
        }
    }

    /// Converts to the error of a request that had not yet sent any change.
    pub(crate) fn before_anything_changed(self) -> NodeError {
        match self {
            Failure::Refused(refusal) => refusal.into_node_error(),
            Failure::Lost(reason) => NodeError::Unreachable { reason },
        }
    }
}

/// Maps the error that ended a login.
pub(crate) fn refused_login(error: ServerError) -> NodeError {
    Refusal(error).into_node_error()
}

const DUPLICATE: u16 = 1062;
const NO_TABLE: u16 = 1146;
const DURING_COMMIT: u16 = 1180;
const DEADLOCK: u16 = 1213;
/// MariaDB: the row has changed since the transaction read it.
const CHECKREAD: u16 = 1020;

/// Whether the connection is unusable after this error.
fn ends_the_connection(code: u16) -> bool {
    // The server is shutting down, or the connection was killed, idle in a transaction, or idle for too long.
    matches!(code, 1053 | 1079 | 1159 | 1160 | 1161 | 1184 | 1927 | 3169 | 4031)
}

fn kind_of(code: u16) -> NodeErrorKind {
    match code {
        1045 | 1698 | 1251 | 1820 | 1862 | 3118 | 4151 => NodeErrorKind::Login,
        1129 | 1130 => NodeErrorKind::HostRefused,
        1044 | 1142 | 1143 | 1370 => NodeErrorKind::PermissionDenied(Access::Key),
        1227 => NodeErrorKind::PermissionDenied(Access::Operation),
        1290 | 1792 | 1836 => NodeErrorKind::ReadOnly,
        1040 | 1203 | 1205 | 1226 | DEADLOCK | CHECKREAD => NodeErrorKind::Busy,
        1317 | 1969 | 3024 => NodeErrorKind::TimedOut,
        1021 | 1037 | 1038 | 1041 | 1114 | 3675 => NodeErrorKind::OutOfSpace,
        1049 | 1054 | NO_TABLE | 1665 | 1932 => NodeErrorKind::Misconfigured,
        _ => NodeErrorKind::Other,
    }
}

/// Returns the message, with the remedy if there is one.
fn words(code: u16) -> &'static str {
    match code {
        1045 | 1698 | 1251 | 3118 | 4151 => "the login was refused: check user and password",
        1820 | 1862 => "the password has expired: set another one by `ALTER USER … IDENTIFIED BY`",
        1129 | 1130 => {
            "it accepts no clients from this host: grant the user access from here, as in `'locks'@'%'`"
        }
        1044 => "the user may not use that database: grant SELECT, INSERT, UPDATE and DELETE on it",
        1142 | 1143 | 1370 => {
            "the user lacks a privilege on the lock tables: grant SELECT, INSERT, UPDATE and DELETE on the database"
        }
        1227 => "the user lacks a privilege",
        1290 | 1792 | 1836 => "it is read-only: name the primary, not a replica",
        1040 | 1203 => {
            "it has reached its limit of connections: raise `max_connections`, or the limit of the user"
        }
        1226 => "the user has reached the limit that the error names: raise it by `ALTER USER … WITH`",
        1205 => {
            "another transaction keeps the row locked: end it, and do not use the lock tables in long transactions"
        }
        DEADLOCK | CHECKREAD => "its transaction conflicted with another one and was rolled back",
        1317 => "the statement was interrupted by another client",
        1969 | 3024 => {
            "the statement took too long and was rolled back: another transaction, or a backup, may keep the \
             row or the table locked"
        }
        1021 | 1114 | 3675 => "its disk is full: free space",
        1037 | 1038 | 1041 => "it is out of memory",
        1049 => "there is no such database: create it with `CREATE DATABASE`, or name another one in the URL",
        NO_TABLE | 1932 => {
            "the lock tables are missing: the next connection creates them if the user may CREATE"
        }
        1054 => {
            "the lock tables have another shape: drop them while no lock is held, and they are created again"
        }
        1665 => "its binary log records statements, not rows: set `binlog_format` to MIXED or ROW",
        DURING_COMMIT => "the commit failed",
        _ => "it answered with an error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_error(code: u16) -> Failure {
        Failure::refused(ServerError { code, message: "no".to_owned(), state: "HY000".to_owned() })
    }

    #[test]
    fn a_rollback_is_a_failure_and_a_failed_commit_is_unknown() {
        for (code, kind) in [
            (1205, NodeErrorKind::Busy),
            (1213, NodeErrorKind::Busy),
            (1969, NodeErrorKind::TimedOut),
            (1114, NodeErrorKind::OutOfSpace),
            (1142, NodeErrorKind::PermissionDenied(Access::Key)),
            (1820, NodeErrorKind::Login),
            (1226, NodeErrorKind::Busy),
            (1146, NodeErrorKind::Misconfigured),
            (1064, NodeErrorKind::Other),
        ] {
            let error = server_error(code).into_node_error();
            assert!(
                matches!(error, NodeError::Failed { .. }) && !error.may_have_acted(),
                "{code}: {error:?}"
            );
            assert_eq!(error.kind(), kind, "{code}");
        }
        assert!(server_error(1226).into_node_error().to_string().contains("the limit that the error names"));
        assert!(matches!(server_error(1290).into_node_error(), NodeError::Unfit { .. }));
        assert!(server_error(DURING_COMMIT).into_node_error().may_have_acted());
        // The server is shutting down, or has killed the connection.
        for code in [1053, 1927] {
            assert!(matches!(server_error(code), Failure::Lost(_)), "{code}");
            assert!(server_error(code).into_node_error().may_have_acted(), "{code}");
            assert!(!server_error(code).before_anything_changed().may_have_acted(), "{code}");
        }
    }
}
