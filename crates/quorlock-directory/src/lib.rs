//! Directories as nodes of `quorlock`, with locks as files: `directory:///var/lib/locks`.
//!
//! An example of a custom node kind, complete but small: it uses only the public API of `quorlock`.
//! `docs/write-a-node.md` specifies what a node must guarantee.
//!
//! # When to use it
//!
//! Use a directory on a separate disk, of one host or shared by several. Every request runs under an
//! exclusive lock of the file `lock` in it (`flock`), so on a shared file system it is only as reliable as
//! that file system's locks. Directories on one disk fail together: a quorum of them excludes, but tolerates
//! the loss of none.
//!
//! # What it remembers
//!
//! Everything that it has acknowledged is on disk, so its identity outlives every process and every restart
//! of the host. The identity is a random number that is created by the first request, and its age counts from
//! then.
//! **Delete the file `identity` when you restore a directory from a backup**, so that lost locks count as
//! forgotten.
//!
//! # Time
//!
//! Keys expire by the calendar clock of the host that asks, as those of a Redis server expire by its own. If
//! that clock steps forward, or another host's clock is ahead, keys expire early by the difference; if it
//! steps back, late.
//!
//! # What it does not support
//!
//! Several locks in one request, as two files cannot be replaced in one step, and fair queues, which it
//! refuses by name. It gives no hints: waiters ask again after pauses.
#![cfg(unix)]

mod files;
mod kind;
mod node;

pub use kind::DirectoryKind;
pub use node::DirectoryNode;
