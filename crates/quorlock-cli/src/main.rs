//! `quorlock`, with the kinds of node that the library has, and PostgreSQL databases.

use std::process::ExitCode;

use quorlock::Kinds;
use quorlock_postgres::PostgresKind;

fn main() -> ExitCode {
    quorlock_cli::main(Kinds::default().with(PostgresKind::new()))
}
