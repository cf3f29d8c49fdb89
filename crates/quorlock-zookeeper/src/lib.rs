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
//!
//! # How it is laid out
//!
//! A holder is the first of the sequential nodes below the lock's path, and the others are waiters: so begin with
//! `layout`, then `requests`, where each request is one transaction, and `look`, which reads where one fails.
//!
//! ```text
//!   ZooKeeperNode ─► places: one thread, one member after the other ─► session: may it vote, and as which history
//!                                                                        │
//!                                         requests, queue ◄──────────────┤ memory: what outlives a connection
//!                                                 │                      │ proof: from when its time counts
//!                                                 ▼                      │ tombs: attempts that were cancelled
//!                                         client, wire: one connection, its messages
//! ```
//!
//! Holders are ephemeral nodes: they end with the session of this process. A vote counts from when the leader has
//! certainly heard of that session last, not from its own request (I-7); `proof` derives that moment. A session outlives
//! its connection to one member, so what the process knows of its nodes is in `memory`.

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
mod wire;

pub use kind::ZooKeeperKind;
pub use node::ZooKeeperNode;
