//! MariaDB and MySQL databases as nodes of `quorlock`: `mysql://host/database`.
//!
//! With `?layout=shedlock` the locks are rows of `ShedLock`'s table, so that Java services and this program
//! exclude each other: docs/shedlock.md.
//!
//! docs/mysql.md describes when to use it, and its guarantees.

mod address;
mod connection;
mod error;
mod handshake;
mod kind;
mod list;
mod login;
mod memory;
mod node;
mod server;
mod shedlock;
mod table;
mod watch;
mod wire;
mod worker;

pub use kind::MysqlKind;
pub use node::MysqlNode;
