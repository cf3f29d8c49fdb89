//! Distributed locks held by a quorum of independent Redis or Valkey masters.
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod clock;
mod entropy;
mod node;
pub mod protocol;

/// The scripts that Redis nodes run. For servers that stand in for Redis in tests.
#[doc(hidden)]
pub use node::redis::scripts;
pub use {
    clock::{Clock, Sleep, SystemClock},
    entropy::{Entropy, SystemEntropy},
    node::redis::{Address, AddressError, Dial, Endpoint, Stream, SystemDial},
    node::{Answer, Expiry, Holding, Instance, Lasting, Node, NodeError, Question, Reply, Vote, ask},
};
