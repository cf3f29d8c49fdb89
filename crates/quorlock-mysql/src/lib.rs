//! MariaDB and MySQL databases as nodes of `quorlock`: `mysql://host/database`.
//!
//! With `?layout=shedlock` the locks are rows of `ShedLock`'s table, so that Java services and this program
//! exclude each other: docs/shedlock.md.
//!
//! docs/mysql.md describes when to use it, and its guarantees.
//!
//! # How it is laid out
//!
//! `quorlock::node::record` decides what a request changes. The database is a table of records with
//! compare-and-swap: a batch of requests reads its rows without locks, and writes each if it is still the one that was read.
//!
//! ```text
//!   MysqlNode ─► worker: one thread, one connection ─► worker/batch ─► table ─► connection ─► wire ─► server
//!                   │   ▲                                 │  ▲                     ▲
//!                   │   └ watch: polls rows that          ▼  │                     │ every packet has a limit (D-1)
//!                   │     clients wait for             memory: rows that           │
//!                   └─ handshake, server: may it vote   this client wrote last   login
//! ```
//!
//! Begin with `worker`, then `table`, whose head explains why the isolation level suffices. The protocol (`wire`,
//! `login`, `connection`) is by hand, because drivers reserve as much memory as a server announces. `shedlock` is the
//! other layout, with statements of its own.

mod address;
mod connection;
mod error;
mod handshake;
mod key;
mod kind;
mod list;
mod login;
mod memory;
mod node;
mod scramble;
mod server;
mod shedlock;
mod table;
mod watch;
mod wire;
mod worker;

pub use kind::MysqlKind;
pub use node::MysqlNode;
