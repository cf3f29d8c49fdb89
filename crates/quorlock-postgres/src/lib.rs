//! PostgreSQL databases as nodes of `quorlock`: `postgres://user@host/database`.
//!
//! A lock is a row with an expiry by the clock of the server. One database is a deployment (N = 1); three of them, or
//! two Redis servers and a database, are a quorum. `docs/postgres.md` says what is promised, what it costs, and which
//! rights a user needs.
//!
//! With `?layout=shedlock` the locks are those of `ShedLock`'s table, and Java services and this program exclude each
//! other: `docs/shedlock.md`.
//!
//! # Examples
//!
//! ```
//! use quorlock::Coordinator;
//! use quorlock_postgres::PostgresKind;
//!
//! let coordinator = Coordinator::builder().kind(PostgresKind::new()).nodes(["postgres://app@db-7/orders"]).build()?;
//! # Ok::<(), quorlock::ConfigError>(())
//! ```

mod connect;
mod error;
mod examine;
mod handshake;
mod kind;
mod line;
mod lines;
mod listeners;
mod node;
mod request;
mod session;
mod shedlock;
mod url;

pub use kind::PostgresKind;
pub use node::PostgresNode;

/// The tables and functions that are kept in a database, as a script for those who create them by hand.
///
/// A node runs it on the first use, where its user may create a schema.
pub const SCHEMA: &str = include_str!("schema.sql");
