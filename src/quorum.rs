//! Asks all nodes one request, counts their votes and tracks the state of each node.

pub(crate) mod board;
pub(crate) mod members;
mod ordered;
pub(crate) mod round;
