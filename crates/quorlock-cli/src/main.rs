//! `quorlock`, with the kinds of node that the library has, and those of its workspace: databases of PostgreSQL, and of
//! SQLite for one host.

use std::process::ExitCode;

use quorlock::Kinds;
use quorlock_postgres::PostgresKind;
use quorlock_sqlite::SqliteKind;

fn main() -> ExitCode {
    quorlock_cli::main(Kinds::default().with(PostgresKind::new()).with(SqliteKind::new()))
}
