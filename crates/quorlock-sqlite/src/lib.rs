//! A kind of node for one host without a server: locks in a SQLite database, `sqlite:///var/lib/quorlock.db`.
//!
//! It is the one node of a deployment, for programs on one host and in its containers. `docs/sqlite.md` says what
//! it is for, what it costs, and what is not promised.
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
//! Locks end by the clock of the boot, which counts suspend and is not set by anyone, and all of an earlier boot are
//! void: their holders are gone. Counters of fencing tokens end by the calendar clock.
//!
//! # What reaches the disk
//!
//! No lock waits for the disk: a process that is killed loses nothing that it was answered, since the kernel has
//! it, and a host that loses power has no holders left. Counters of fencing tokens are another matter: they must not
//! fall. So the database keeps a number on the disk that no fencing token has reached yet, some minutes ahead, and
//! only moving that waits for the disk. After a boot all numbers are drawn above it.
#![cfg(unix)]

mod entries;
mod failure;
mod kind;
mod mark;
mod node;
mod place;
mod requests;
mod several;
mod shared;
mod store;
mod watch;
mod worker;

pub use kind::SqliteKind;
pub use node::SqliteNode;
