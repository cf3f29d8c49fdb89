//! The program `quorlock` that knows MariaDB and MySQL, as the one of `quorlock-cli` does: for the tests here.

use std::process::ExitCode;

use quorlock::node::Kinds;
use quorlock_mysql::MysqlKind;

fn main() -> ExitCode {
    quorlock_cli::main(Kinds::default().with(MysqlKind::new()))
}
