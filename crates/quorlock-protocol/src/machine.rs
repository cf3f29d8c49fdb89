//! What a client does with the answers of its nodes: the engine, without IO.

mod deployment;
mod key_states;
mod node_set;
mod round;

pub use deployment::Deployment;
pub use key_states::KeyStates;
pub use node_set::NodeSet;
pub use round::{Asked, Expect, Heard, INSPECT_PATIENCE, LEAST_PATIENCE, Question, Round};
