//! Lock servers for tests: in memory, built in, and real ones; their faults, and the time.
//!
//! For the tests of `quorlock` and of programs that use it, for demonstrations and for benches.

pub mod builtin;
mod clock;
pub mod contract;
#[cfg(unix)]
mod databases;
mod entropy;
mod memory;
mod proxy;
mod resp;
mod rng;
mod servers;
mod store;
mod timer;
mod wait;

#[cfg(unix)]
pub use databases::{Database, Engine};
pub use {
    builtin::{BuiltinServer, Memory, Misconduct, serve_if_asked},
    clock::{SkewedClock, TokioClock},
    entropy::SeededEntropy,
    memory::{InSocket, MemoryNode, Requests, memory_nodes, memory_nodes_on},
    proxy::{Proxy, Traffic, Way},
    resp::Resp,
    rng::SeededRng,
    servers::{Cluster, Kind, Server, Servers, Service, Setup, ask},
    store::{
        Change, Counter, Drawing, Enqueue, Failure, Fields, Offer, Place, Scores, SetLife, SetOptions,
        SetWhen, Several, Sharing, Store, Told, Value,
    },
    wait::{eventually, find_eventually},
};
