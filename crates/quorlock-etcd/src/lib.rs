//! etcd as the node of `quorlock`: `etcd://a,b,c`.
//!
//! Locks are stored in the layout of etcd's own clients, so that `etcdctl lock`, Go's `concurrency.Mutex` and this library
//! stand in one queue and exclude each other. A cluster is a deployment (N = 1), because those clients know of no other
//! node. `docs/etcd.md` describes the guarantees and the costs.
//!
//! # Examples
//!
//! ```
//! use quorlock::Coordinator;
//! use quorlock_etcd::EtcdKind;
//!
//! let coordinator = Coordinator::builder().kind(EtcdKind::new()).nodes(["etcd://a,b,c"]).build()?;
//! # Ok::<(), quorlock::ConfigError>(())
//! ```
//!
//! # How it is laid out
//!
//! A holder is the oldest key below the lock's name, and the others are waiters: so begin with `layout`, then `requests`,
//! where each request is one transaction that compares before it writes, and looks (`look`) only if that fails.
//!
//! ```text
//!   EtcdNode ─► places: one thread, one member after the other ─► session: may it vote, and as which history
//!                                                                   │
//!                                    requests, queue, watch ◄───────┤
//!                                            │                   leases: one for each TTL, kept alive here
//!                                            ▼                   own: keys of this process
//!                                    client, wire: calls and messages
//! ```
//!
//! A key ends with the lease that all keys of its TTL share. A vote counts from when the last confirmed keep-alive of that
//! lease was sent, not from its own request (I-7).

mod address;
mod client;
mod doctor;
mod error;
mod kind;
mod layout;
mod leases;
mod list;
mod look;
mod node;
mod own;
mod queue;
mod requests;
mod session;
mod watch;
mod wire;

pub use kind::EtcdKind;
pub use node::EtcdNode;
