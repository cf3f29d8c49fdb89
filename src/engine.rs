//! The engine: acquires locks, renews their leases and cleans up after them.
//!
//! It asks nodes in rounds and delivers holds. The public handles build on it; it does not know
//! what kind of server a node is.

pub(crate) mod acquire_span;
pub(crate) mod attempt;
pub(crate) mod cleanup;
pub(crate) mod commands;
pub(crate) mod contender;
pub(crate) mod context;
pub(crate) mod hold;
pub(crate) mod keeper;
pub(crate) mod key_watch;
pub(crate) mod lease_state;
mod node_queue;
pub(crate) mod offer;
pub(crate) mod offer_inbox;
pub(crate) mod options;
pub(crate) mod owner;
pub(crate) mod queue;
mod recently_contended;
mod subscription;
mod take_up;
pub(crate) mod throttle;
pub(crate) mod wait;
