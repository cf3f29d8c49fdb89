//! Lock servers for tests: in memory, built in, and real ones, with faults and control over time.
//!
//! For tests of `quorlock` and of programs that use it, demonstrations and benchmarks.

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
    wait::{eventually, find_eventually, patience, scaled},
    wrapped::WrappedNode,
};
