//! PostgreSQL databases as nodes of `quorlock`: `postgres://user@host/database`.
//!
//! A lock is a row that expires by the server's clock. One database is a deployment (N = 1); three of them,
//! or two Redis servers and a database, are a quorum. `docs/postgres.md` describes the guarantees, the costs
//! and the privileges that a user needs.
//!
//! With `?layout=shedlock` the locks are rows of `ShedLock`'s table, so that Java services and this program
//! exclude each other: `docs/shedlock.md`.
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
mod guard;
mod handshake;
mod job;
mod kind;
mod line;
mod lines;
mod list;
mod listeners;
mod max_ttl;
mod node;
mod request;
mod session;
mod settings;
mod shedlock;
mod url;

pub use kind::PostgresKind;
pub use node::PostgresNode;

/// The script that creates the tables and functions, for administrators who run it by hand.
///
/// A node runs it on first use if its user may create a schema.
pub const SCHEMA: &str = include_str!("schema.sql");
