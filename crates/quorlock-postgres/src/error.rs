//! Maps errors of the server and of the connection to [`NodeError`].

use std::error::Error as StdError;
use std::fmt;
use std::io;

use quorlock::node::{Access, NodeError, NodeErrorKind, Reason};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::guard::Refusal;

/// The number of characters of a server's text that are kept.
const LONGEST_TEXT: usize = 1024;
/// What to do about a schema of another shape.
pub(crate) const SHAPE: &str = "the schema `quorlock` is not the one that this program creates, but of a version of quorlock with \
                                another layout, or changed: use versions with one layout in all clients; to replace the schema, stop \
                                them and rename it, or drop it while no lock is held, and it is created again on the next use";
/// What to do about missing privileges.
const RIGHTS: &str = "the user may not use the lock tables: as their owner, run `GRANT USAGE ON SCHEMA quorlock TO \"…\"; GRANT \
                      SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA quorlock TO \"…\"` with the user's name";

/// What to do about a policy on a table.
const POLICIES: &str = "row-level security may hide rows of the table from the user: as its owner, run `ALTER \
                        TABLE … DISABLE ROW LEVEL SECURITY`";

/// The error of the server or of the connection, as text: `Display` of a `tokio-postgres` error shows
/// neither.
#[derive(Debug)]
struct ErrorText {
    text: String,
}

impl ErrorText {
    fn of(error: &Error) -> ErrorText {
        let text = match error.as_db_error() {
            Some(server_error) => {
                let more = [server_error.detail(), server_error.hint()].into_iter().flatten();
                let words =
                    more.fold(server_error.message().to_owned(), |words, more| format!("{words}; {more}"));
                format!("{words} (SQLSTATE {})", server_error.code().code())
            }
            None => match StdError::source(error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            },
        };
        let shown = |c: char| if c.is_control() { ' ' } else { c };
        ErrorText { text: text.chars().take(LONGEST_TEXT).map(shown).collect() }
    }
}

impl fmt::Display for ErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for ErrorText {}

/// Builds a reason from our explanation and the error.
pub(crate) fn reason(words: impl Into<Box<str>>, error: &Error) -> Reason {
    Reason::new(words).because(ErrorText::of(error))
}

pub(crate) fn failed(kind: NodeErrorKind, words: impl Into<Box<str>>) -> NodeError {
    NodeError::Failed { kind, reason: Reason::new(words) }
}

pub(crate) fn unfit(kind: NodeErrorKind, words: impl Into<Box<str>>) -> NodeError {
    NodeError::Unfit { kind, reason: Reason::new(words) }
}

/// Maps the error of a statement that was sent.
#[expect(clippy::needless_pass_by_value, reason = "it is handed over by `map_err`")]
pub(crate) fn of_statement(error: Error) -> NodeError {
    let Some(server_error) = error.as_db_error() else {
        if error.is_closed() || is_io(&error) {
            return NodeError::Disconnected {
                reason: Reason::new("the connection ended").because(ErrorText::of(&error)),
            };
        }
        return NodeError::UnexpectedReply {
            reason: Reason::new("the response cannot be read").because(ErrorText::of(&error)),
        };
    };
    // The backend terminated, and may have committed before.
    if is_fatal(server_error) || *server_error.code() == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN {
        return NodeError::Disconnected {
            reason: Reason::new("the server ended the connection").because(ErrorText::of(&error)),
        };
    }
    let (kind, mut words) = meaning(server_error.code());
    if server_error.routine() == Some("check_enable_rls") {
        words = POLICIES;
    }
    let reason = Reason::new(words).because(ErrorText::of(&error));
    if kind == NodeErrorKind::ReadOnly {
        return NodeError::Unfit { kind, reason };
    }
    NodeError::Failed { kind, reason }
}

/// Whether the error terminated the backend.
pub(crate) fn is_fatal(server_error: &DbError) -> bool {
    matches!(server_error.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
}

/// Classifies an error after which the statement was rolled back.
fn meaning(code: &SqlState) -> (NodeErrorKind, &'static str) {
    if let "QL001" | "QL002" = code.code() {
        let words = if code.code() == "QL001" {
            "the row of the lock in `quorlock.locks` has an expiry but no token, which no client writes: delete it"
        } else {
            "the fencing counter in `quorlock.counters` is exhausted or not a number: set it above every number \
             that was handed out"
        };
        return (NodeErrorKind::WrongData, words);
    }
    let is = |codes: &[SqlState]| codes.contains(code);
    if is(&[SqlState::LOCK_NOT_AVAILABLE, SqlState::QUERY_CANCELED]) {
        (NodeErrorKind::Busy, "another transaction kept the row locked for too long")
    } else if is(&[SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE]) {
        (NodeErrorKind::Busy, "conflict with another transaction")
    } else if is(&[SqlState::READ_ONLY_SQL_TRANSACTION]) {
        (NodeErrorKind::ReadOnly, "the server is read-only: give the address of the primary")
    } else if is(&[SqlState::INSUFFICIENT_PRIVILEGE]) {
        (NodeErrorKind::PermissionDenied(Access::Key), RIGHTS)
    } else if is(&[
        SqlState::DISK_FULL,
        SqlState::OUT_OF_MEMORY,
        SqlState::INSUFFICIENT_RESOURCES,
        SqlState::IO_ERROR,
    ]) {
        (NodeErrorKind::OutOfSpace, "the server has no disk or memory left")
    } else if is(&[
        SqlState::UNDEFINED_TABLE,
        SqlState::UNDEFINED_FUNCTION,
        SqlState::UNDEFINED_COLUMN,
        SqlState::UNDEFINED_OBJECT,
        SqlState::DATATYPE_MISMATCH,
        SqlState::INVALID_SCHEMA_NAME,
    ]) {
        (NodeErrorKind::Misconfigured, SHAPE)
    } else {
        (NodeErrorKind::Other, "the server refused the statement")
    }
}

/// Maps the error of a connection attempt.
pub(crate) fn of_connecting(error: Error, has_password: bool) -> NodeError {
    if let Some(refusal) = Refusal::behind(&error) {
        return failed(refusal.kind, refusal.words.as_str());
    }
    let Some(server_error) = error.as_db_error() else {
        if is_io(&error) || error.is_closed() {
            return NodeError::Unreachable {
                reason: Reason::new("cannot connect").because(ErrorText::of(&error)),
            };
        }
        if has_password {
            let reason =
                Reason::new("it does not speak PostgreSQL's protocol, or requires another login method");
            return NodeError::Failed {
                kind: NodeErrorKind::WrongServer,
                reason: reason.because(ErrorText::of(&error)),
            };
        }
        let reason = Reason::new("it wants a password: give one in the address or separately");
        return NodeError::Failed {
            kind: NodeErrorKind::Login,
            reason: reason.because(ErrorText::of(&error)),
        };
    };
    let code = server_error.code();
    let is = |codes: &[SqlState]| codes.contains(code);
    let (kind, words) = if is(&[SqlState::INVALID_PASSWORD]) {
        (NodeErrorKind::Login, "it refuses user and password")
    } else if is(&[SqlState::INVALID_AUTHORIZATION_SPECIFICATION]) {
        (
            NodeErrorKind::Login,
            "it refuses the user from here: check that the user exists and that pg_hba.conf has a line for it (one with \
             `hostssl` requires `sslmode=verify-full` in the address)",
        )
    } else if is(&[SqlState::INVALID_CATALOG_NAME]) {
        (
            NodeErrorKind::Misconfigured,
            "there is no such database: create it, or name another one in the address",
        )
    } else if is(&[SqlState::CANNOT_CONNECT_NOW]) {
        (NodeErrorKind::Busy, "it is starting or shutting down")
    } else if is(&[SqlState::TOO_MANY_CONNECTIONS]) {
        (
            NodeErrorKind::Busy,
            "it has no connection left: raise `max_connections`, or the connection limit of the role or of the \
             database, as it says",
        )
    } else if is(&[SqlState::INSUFFICIENT_PRIVILEGE]) {
        (
            NodeErrorKind::PermissionDenied(Access::Operation),
            "the user may not connect to the database: run `GRANT CONNECT ON DATABASE \"…\" TO \"…\"`",
        )
    } else if is(&[SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE]) {
        (
            NodeErrorKind::Misconfigured,
            "the database takes no connections: run `ALTER DATABASE \"…\" ALLOW_CONNECTIONS true`",
        )
    } else if is(&[SqlState::PROTOCOL_VIOLATION, SqlState::FEATURE_NOT_SUPPORTED]) {
        (
            NodeErrorKind::WrongServer,
            "it does not accept this connection; a pooler cannot be a node: give the server's own address",
        )
    } else {
        return of_statement(error);
    };
    NodeError::Failed { kind, reason: Reason::new(words).because(ErrorText::of(&error)) }
}

fn is_io(error: &Error) -> bool {
    StdError::source(error).is_some_and(<dyn StdError>::is::<io::Error>)
}
