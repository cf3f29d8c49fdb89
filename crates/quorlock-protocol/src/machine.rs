//! What a client does with the answers of its nodes: the engine, without IO.

mod key_states;
mod node_set;

pub use key_states::KeyStates;
pub use node_set::NodeSet;
