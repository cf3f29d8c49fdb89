//! What a client does with the answers of its nodes: the engine, without IO.

use std::fmt;

use crate::Moment;
use crate::node::{NodeError, Response, SharedRequest};

mod deployment;
mod keep;
mod key_states;
mod node_set;
mod round;
#[cfg(test)]
mod tests;
mod undo;
pub mod wait;

pub use deployment::Deployment;
pub use keep::{Due, Keep, Latest, Renewed};
pub use key_states::KeyStates;
pub use node_set::NodeSet;
pub use round::{Asked, Expect, Heard, INSPECT_PATIENCE, LEAST_PATIENCE, Number, Question, Round};
pub use undo::{GivenUp, Of, Offer, Terms, Undo, was_lost};

/// What one driver runs: it is told the responses, and then asked what to send.
pub trait Machine: fmt::Debug + Send + 'static {
    /// Returns the round whose verdict is waited for.
    fn round(&self) -> &Round;

    /// Returns the round whose verdict is waited for.
    fn round_mut(&mut self) -> &mut Round;

    /// Records the response of a node, which was asked.
    fn handle_response(
        &mut self,
        nodes: &impl Deployment,
        node: usize,
        result: Result<Response, NodeError>,
        now: Moment,
    ) -> Heard;

    /// Returns the next request to send, and to which node.
    fn poll_request(&mut self, now: Moment) -> Option<(usize, SharedRequest)>;

    /// Whether no response is awaited any more.
    fn is_settled(&self) -> bool;
}
