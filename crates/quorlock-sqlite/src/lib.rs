//! SQLite databases as nodes of `quorlock`, for one host without a server: `sqlite:///var/lib/quorlock.db`.
//!
//! It is the only node of a deployment, for programs on one host and in its containers. `docs/sqlite.md`
//! describes when to use it, what it costs, and what is not guaranteed.
//!
//! ```no_run
//! use quorlock::Coordinator;
//! use quorlock_sqlite::SqliteKind;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let coordinator =
//!     Coordinator::builder().kind(SqliteKind::new()).nodes(["sqlite:///var/lib/quorlock.db"]).build()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Time
//!
//! Locks expire by the boot clock, which includes suspend and cannot be set. Locks of an earlier boot are
//! void: their holders are gone. Fencing counters never expire.
//!
//! # What reaches the disk
//!
//! No lock waits for the disk: a process that is killed loses nothing that was acknowledged, since the kernel
//! has it, and a host that loses power has no holders left. Fencing counters are different: they must not
//! decrease. So the database stores on disk a number that no fencing token has reached yet, some minutes
//! ahead, and only advancing it waits for the disk. After a boot all fencing tokens are drawn above it.
//!
//! # How it is laid out
//!
//! `worker` is the thread that has the database, and carries out one request after the other. `store` opens it and makes
//! each request one transaction; within it, `quorlock::node::record` decides, and `table` reads and writes the records,
//! one in each row. `place` refuses files where locks would not work, such as on network file systems. There is no server
//! to notice a crash or to send hints: `mark` finds holders that have crashed, and `watch` locks that may be free. Begin
//! with `store`.
#![cfg(unix)]

mod failure;
mod kind;
mod mark;
mod node;
mod place;
mod store;
mod table;
mod watch;
mod worker;

pub use kind::SqliteKind;
pub use node::SqliteNode;
