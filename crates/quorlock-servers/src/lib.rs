//! Lock servers on this machine, real ones and a built-in one, with faults: what `quorlock demo`, the Python package's
//! `quorlock.testing` and the chaos tester start.
//!
//! | what | when |
//! |---|---|
//! | [`Servers`], [`Cluster`], [`Service`] | real Redis or Valkey if there is one, else the built-in server; a cluster; masters behind Sentinels |
//! | [`BuiltinServer`] | the subset of Redis that locks need, with Lua, where no server is installed |
//! | `Database`, `EtcdCluster`, `ZooKeeperCluster` | real servers of other kinds; `Fleet`: of whichever kind |
//! | [`Proxy`] | a network in front of a server that delays, cuts, loses |
//! | [`SeededRng`], [`SeededEntropy`] | faults at random, and the same ones again |
//!
//! For tests, `quorlock-testkit` exports all of it, with nodes in memory and the contract of a node. No program that is
//! installed contains the test kit.

pub mod builtin;
#[cfg(unix)]
mod databases;
mod entropy;
#[cfg(unix)]
mod fleet;
mod folder;
#[cfg(unix)]
mod lifeline;
mod proxy;
mod resp;
mod rng;
mod servers;
mod timer;
mod wait;

pub use {
    builtin::{BuiltinServer, Memory, Misconduct, serve_if_asked},
    entropy::SeededEntropy,
    proxy::{Proxy, Traffic, Way},
    resp::Resp,
    rng::SeededRng,
    servers::{Cluster, Kind, RedisClient, Server, Servers, Service, Setup, ask},
    wait::{eventually, find_eventually, patience, scaled, within},
};
#[cfg(unix)]
#[doc(hidden)]
pub use {databases::Disk, lifeline::watched_group};
#[cfg(unix)]
pub use {
    databases::{Database, Engine, EtcdCluster, EtcdPrograms, ZooKeeperCluster, ZooKeeperPrograms},
    fleet::Fleet,
};
