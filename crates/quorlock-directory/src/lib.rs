//! A kind of node that keeps its locks as files in a directory: `directory:///var/lib/locks`.
//!
//! An example of a kind of one's own, complete but small: it uses nothing but what `quorlock` has for every
//! program. `docs/write-a-node.md` says what a node has to promise.
//!
//! # What it is good for
//!
//! A directory on a disk of its own, of one host or shared by several. Every request is carried out under an
//! exclusive lock of the file `lock` in it (`flock`), so on a shared file system it is only as good as that
//! file system's locks. Directories on one disk fail together: a quorum of them excludes, and tolerates the
//! loss of none.
//!
//! # What it remembers
//!
//! All that it has answered is on the disk, so its identity outlives every process and every restart of the
//! host. The identity is a random number that is made with the first request, and ages from then on.
//! **Delete the file `identity` when a directory is restored from a backup**, so that what was
//! forgotten counts as forgotten.
//!
//! # Time
//!
//! Keys end by the calendar clock of the host that asks, as those of a Redis server end by its own. If that
//! clock steps forward, or that of another host is ahead, keys end early by as much; if back, late.
//!
//! # What it cannot do
//!
//! Shared locks, several locks at once and fair order, which it refuses by name. It gives no hints: waiters
//! ask again after pauses.
#![cfg(unix)]

mod kind;
mod locks;
mod node;
mod records;

pub use kind::DirectoryKind;
pub use node::DirectoryNode;
