//! `quorlock`, with the kinds of node that the library has, and those of its workspace: databases of PostgreSQL, of
//! MariaDB and MySQL, and of SQLite for one host.

use std::process::ExitCode;

use quorlock::node::Kinds;
use quorlock_mysql::MysqlKind;
use quorlock_postgres::PostgresKind;
use quorlock_sqlite::SqliteKind;

fn main() -> ExitCode {
    let databases = Kinds::default().with(PostgresKind::new()).with(MysqlKind::new()).with(SqliteKind::new());
    quorlock_cli::main(databases)
}
