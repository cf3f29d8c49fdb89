//! Asks all nodes one request, counts their votes and tracks the state of each node.

pub(crate) mod board;
pub(crate) mod key_states;
pub(crate) mod members;
pub(crate) mod node_set;
mod ordered;
pub(crate) mod round;
pub(crate) mod vote_report;
