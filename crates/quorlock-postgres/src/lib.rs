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
//!
//! # How it is laid out
//!
//! The functions in `schema.sql` decide about locks; begin there. `request` maps a request to the call of one, and the
//! row that it returns to a vote.
//!
//! ```text
//!   PostgresNode ─► lines: which connection has the keys ─► line: connects, reconnects
//!                                                             │
//!                                     session: in order ◄─────┤ handshake: may it vote, and as which history
//!                                        │                    │ connect: TLS, login
//!                                     tokio-postgres ── guard: limits what the server sends (D-1) ── server
//! ```
//!
//! Requests for one key use one connection, which carries them out in order; more connections are opened under load.
//! A server may vote only if its data are those that it had, by the note in them (D-4). `shedlock` is the other layout.

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
/// A node runs it on first use if its user may create a schema, or the functions of this version in it.
pub const SCHEMA: &str = include_str!("schema.sql");

/// How the names of the functions of this version begin: with the digest of their text.
const RULES: &str = "vfeb0e14a_";
