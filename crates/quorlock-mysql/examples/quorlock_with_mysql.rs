//! The program `quorlock` with support for MariaDB and MySQL, as in `quorlock-cli`; used by the tests of this
//! crate.

use std::process::ExitCode;

use quorlock::node::Kinds;
use quorlock_mysql::MysqlKind;

fn main() -> ExitCode {
    quorlock_cli::main(Kinds::default().with(MysqlKind::new()))
}
