//! A kind of node that keeps its locks as rows of a table in MariaDB or MySQL: `mysql://host/database`.
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
mod table;
mod watch;
mod worker;

pub use kind::MysqlKind;
pub use node::MysqlNode;
