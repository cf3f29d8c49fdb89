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
mod worker;

pub use kind::EtcdKind;
pub use node::EtcdNode;
