//! What tests of locks need: nodes in memory, the contract of a node, and control over time; and all of
//! `quorlock-servers`, with real servers and faults.
//!
//! For tests of `quorlock` and of programs that use it, and for benchmarks; a dev-dependency. All servers pass one
//! contract, so a result with the cheapest of them holds for the others.
//!
//! | what | when |
//! |---|---|
//! | [`MemoryNode`], [`memory_nodes`] | a test of what a program does with locks: no sockets, paused time, faults on command |
//! | [`BuiltinServer`] | a test of what goes over the wire, where no server is installed: a subset of Redis with Lua |
//! | [`Servers`], [`Cluster`], [`Service`] | real Redis or Valkey if there is one, else the built-in server; a cluster; masters behind Sentinels |
//! | `Database`, `EtcdCluster`, `ZooKeeperCluster` | real servers of other kinds |
//! | [`Proxy`] | a network in front of a server that delays, cuts, loses |
//! | [`contract`] | what a node must do. A new kind of node passes it, and a new rule begins there |
//! | [`SkewedClock`], [`SeededEntropy`], [`eventually`], [`until`] | time, randomness, and waiting for a condition without a sleep |
//!
//! Begin with `memory`, which keeps the record of `quorlock::node::record` behind a line that faults can hold, cut or
//! lose; then with `contract/acquire.rs`, the shortest description of what a lock is.

mod clock;
mod closed_port;
pub mod contract;
#[cfg(unix)]
#[doc(hidden)]
pub mod hostile;
mod memory;
mod outward;
mod planting;
#[doc(hidden)]
pub mod program;
mod real_servers;
mod until;
mod value;
mod wrapped;

#[doc(inline)]
pub use quorlock_servers::{
    BuiltinServer, Cluster, Kind, Memory, Misconduct, Proxy, Resp, SeededEntropy, SeededRng, Server, Servers,
    Service, Setup, Traffic, Way, ask, builtin, eventually, find_eventually, patience, scaled,
    serve_if_asked,
};
#[cfg(unix)]
#[doc(inline)]
pub use quorlock_servers::{
    Database, Engine, EtcdCluster, EtcdPrograms, ZooKeeperCluster, ZooKeeperPrograms,
};
#[cfg(unix)]
#[doc(hidden)]
pub use quorlock_servers::{Disk, watched_group};
pub use {
    clock::{SkewedClock, TokioClock},
    closed_port::ClosedPort,
    memory::{MemoryNode, Requests, UnreadRequests, memory_nodes, memory_nodes_on},
    outward::outward,
    until::until,
    value::Value,
    wrapped::WrappedNode,
};
