//! Maps errors of the database to [`NodeError`].

use std::path::Path;

use quorlock::node::{NodeError, NodeErrorKind, Reason};
use rusqlite::ErrorCode;

use crate::place;

/// Why a request was not carried out.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the database.
    Database(rusqlite::Error),
    /// The data is not what it should be.
    Wrong(String),
    /// The request needs a transaction that may write.
    MustWrite,
    /// The node is unusable.
    Node(NodeError),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Failure {
        Failure::Database(error)
    }
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Failure {
        Failure::Node(error)
    }
}

impl Failure {
    /// Converts to the error of the request, for the database at `path`. `committing`: whether the commit
    /// itself failed, so that it may have taken effect.
    pub(crate) fn explain(self, path: &Path, committing: bool) -> NodeError {
        match self {
            Failure::Node(error) => error,
            Failure::Wrong(words) => {
                NodeError::Failed { kind: NodeErrorKind::WrongData, reason: Reason::new(words) }
            }
            Failure::MustWrite => NodeError::NotAsked,
            Failure::Database(error) => explain(error, path, committing),
        }
    }
}

fn explain(error: rusqlite::Error, path: &Path, committing: bool) -> NodeError {
    let shown = path.display();
    let code = error.sqlite_error_code();
    let failed =
        |kind, words: String, error| NodeError::Failed { kind, reason: Reason::new(words).because(error) };
    match code {
        Some(ErrorCode::DiskFull) => failed(
            NodeErrorKind::OutOfSpace,
            format!("the disk of `{shown}` is full: make room there; nothing was changed"),
            error,
        ),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
            failed(
                NodeErrorKind::Busy,
                format!(
                    "another program keeps `{shown}` locked: end its transaction (`fuser {shown}` names the processes that have it \
                     open)"
                ),
                error,
            )
        }
        Some(ErrorCode::NotADatabase) => {
            let words = format!("`{shown}` is not a database of SQLite: name another file, or move it away");
            unfit(NodeErrorKind::WrongServer, words, error)
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            let words = format!(
                "`{shown}` is damaged: when no lock is held, delete it, `{shown}-wal` and `{shown}-shm`; it is created \
                 again"
            );
            unfit(NodeErrorKind::WrongServer, words, error)
        }
        Some(ErrorCode::ReadOnly) => place::read_only(path),
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => place::unopened(path),
        Some(ErrorCode::Unknown) | None if !committing => {
            // A table or a column is missing, or has another type.
            let words = format!(
                "the tables of `{shown}` are not those of this version: when no lock is held, delete the file; it is created \
                 again"
            );
            unfit(NodeErrorKind::WrongServer, words, error)
        }
        Some(ErrorCode::SystemIoFailure) if !committing && place::is_cut_off(path) => {
            let words = format!(
                "`{shown}` was deleted or moved while programs have it open: end them (`fuser {shown}-shm` names \
                 them), and delete `{shown}-wal` and `{shown}-shm`"
            );
            failed(NodeErrorKind::Busy, words, error)
        }
        Some(_) | None if committing => {
            NodeError::Disconnected { reason: Reason::new("the disk failed").because(error) }
        }
        Some(_) | None => NodeError::Unreachable { reason: Reason::new(format!("`{shown}`")).because(error) },
    }
}

fn unfit(kind: NodeErrorKind, words: String, error: rusqlite::Error) -> NodeError {
    NodeError::Unfit { kind, reason: Reason::new(words).because(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only another process hears it: SQLite knows the files that its own has open.
    #[test]
    fn a_database_deleted_under_programs_is_named_as_the_cause() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks.db");
        std::fs::write(&path, "").unwrap();
        let failed = || {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
            Failure::Database(rusqlite::Error::SqliteFailure(code, None)).explain(&path, false)
        };
        assert_eq!(failed().kind(), NodeErrorKind::Unreachable);
        std::fs::write(directory.path().join("locks.db-wal"), "").unwrap();
        let error = failed();
        assert!(
            error.kind() == NodeErrorKind::Busy && error.to_string().contains("was deleted or moved"),
            "{error:#}"
        );
    }
}
