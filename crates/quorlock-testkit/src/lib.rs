//! Lock servers for tests: in memory, built in, and real ones, with faults and control over time.
//!
//! For tests of `quorlock` and of programs that use it, demonstrations and benchmarks. All servers pass one contract,
//! so a result with the cheapest of them holds for the others.
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

pub mod builtin;
mod clock;
mod closed_port;
pub mod contract;
#[cfg(unix)]
mod databases;
mod entropy;
mod folder;
#[cfg(unix)]
#[doc(hidden)]
pub mod hostile;
#[cfg(unix)]
mod lifeline;
mod memory;
mod outward;
mod planting;
#[doc(hidden)]
pub mod program;
mod proxy;
mod resp;
mod rng;
mod servers;
mod timer;
mod value;
mod wait;
mod wrapped;

#[cfg(unix)]
#[doc(hidden)]
pub use databases::Disk;
#[cfg(unix)]
pub use databases::{Database, Engine, EtcdCluster, EtcdPrograms, ZooKeeperCluster, ZooKeeperPrograms};
pub use {
    builtin::{BuiltinServer, Memory, Misconduct, serve_if_asked},
    clock::{SkewedClock, TokioClock},
    closed_port::ClosedPort,
    entropy::SeededEntropy,
    memory::{MemoryNode, Requests, UnreadRequests, memory_nodes, memory_nodes_on},
    outward::outward,
    proxy::{Proxy, Traffic, Way},
    resp::Resp,
    rng::SeededRng,
    servers::{Cluster, Kind, Server, Servers, Service, Setup, ask},
    value::Value,
    wait::{eventually, find_eventually, patience, scaled, until},
    wrapped::WrappedNode,
};
