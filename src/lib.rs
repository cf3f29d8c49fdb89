//! Distributed locks held by a quorum of independent Redis or Valkey masters.

mod ballot;
mod clock;
mod coordinator;
mod entropy;
mod error;
mod keeper;
mod lease;
mod lock;
mod node;
pub mod protocol;
mod round;
mod sweep;
mod wait;

/// The scripts that Redis nodes run. For servers that stand in for Redis in tests.
#[doc(hidden)]
pub use node::redis::scripts;
pub use {
    ballot::{Ballot, Holder, Paper, Said},
    clock::{Clock, Sleep, SystemClock},
    coordinator::{Builder, Coordinator, RestartGuard},
    entropy::{Entropy, SystemEntropy},
    error::{AcquireError, ConfigError, LossReason, Lost, RenewError, WithError},
    lease::{Lease, LeaseWatch},
    lock::{Lock, Renewal},
    node::redis::{Address, AddressError, Dial, Endpoint, RedisNode, Stream, SystemDial},
    node::{Answer, Expiry, Holding, Instance, Lasting, Node, NodeError, Question, Reply, Vote, ask},
    protocol::{Resource, Token},
    wait::Wait,
};
