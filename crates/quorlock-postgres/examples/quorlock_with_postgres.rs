//! The program `quorlock` that knows PostgreSQL databases, as the one of `quorlock-cli` does: for the tests here.

use std::process::ExitCode;

use quorlock::node::Kinds;
use quorlock_postgres::PostgresKind;

fn main() -> ExitCode {
    quorlock_cli::main(Kinds::default().with(PostgresKind::new()))
}
