//! The program `quorlock` with support for PostgreSQL, as in `quorlock-cli`; used by the tests of this crate.

use std::process::ExitCode;

use quorlock::node::Kinds;
use quorlock_postgres::PostgresKind;

fn main() -> ExitCode {
    quorlock_cli::main(Kinds::default().with(PostgresKind::new()))
}
