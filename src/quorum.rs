//! Asks all nodes one question, counts their votes, and knows how each of them stands.

pub(crate) mod ballot;
pub(crate) mod board;
pub(crate) mod key_states;
pub(crate) mod members;
pub(crate) mod node_set;
pub(crate) mod round;
