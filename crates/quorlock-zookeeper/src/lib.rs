//! ZooKeeper as the node of `quorlock`: `zookeeper://a,b,c/path`.
//!
//! Locks are stored in the layout of Curator's `InterProcessMutex`, so that Curator and this library stand in one queue and
//! exclude each other. An ensemble is a deployment (N = 1), because those clients know of no other node.
//! `docs/zookeeper.md` describes the guarantees and the costs.
//!
//! # Examples
//!
//! ```
//! use quorlock::Coordinator;
//! use quorlock_zookeeper::ZooKeeperKind;
//!
//! let coordinator =
//!     Coordinator::builder().kind(ZooKeeperKind::new()).nodes(["zookeeper://a,b,c/locks"]).build()?;
//! # Ok::<(), quorlock::ConfigError>(())
//! ```

mod address;
mod client;
mod doctor;
mod error;
mod kind;
mod layout;
mod list;
mod look;
mod memory;
mod node;
mod proof;
mod queue;
mod requests;
mod session;
mod tombs;
mod watch;
mod wire;
mod worker;

pub use kind::ZooKeeperKind;
pub use node::ZooKeeperNode;
