//! `quorlock` with the node kinds of the library and of its workspace: PostgreSQL, MariaDB and MySQL, etcd,
//! ZooKeeper, SQLite for one host, and other programs.

use std::process::ExitCode;

use quorlock::node::Kinds;
use quorlock_etcd::EtcdKind;
use quorlock_exec::ExecKind;
use quorlock_mysql::MysqlKind;
use quorlock_postgres::PostgresKind;
use quorlock_sqlite::SqliteKind;
use quorlock_zookeeper::ZooKeeperKind;

fn main() -> ExitCode {
    let kinds = Kinds::default().with(PostgresKind::new()).with(MysqlKind::new()).with(SqliteKind::new());
    quorlock_cli::main(kinds.with(EtcdKind::new()).with(ZooKeeperKind::new()).with(ExecKind::new()))
}
