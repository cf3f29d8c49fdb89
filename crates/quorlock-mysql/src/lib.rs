//! A kind of node that keeps its locks as rows of a table in MariaDB or MySQL: `mysql://host/database`.
//!
//! With `?layout=shedlock` the locks are those of `ShedLock`'s table, and Java services and this program exclude each
//! other: docs/shedlock.md.
//!
//! docs/mysql.md says what it is good for, and what it promises.

mod address;
mod connection;
mod error;
mod handshake;
mod kind;
mod locks;
mod memory;
mod node;
mod queue;
mod row;
mod server;
mod shedlock;
mod table;
mod watch;
mod worker;

pub use kind::MysqlKind;
pub use node::MysqlNode;
