//! What a client does with the answers of its nodes: the engine, as far as it is decided without IO.
//!
//! A machine is told what has happened and what time it is, and asked what to send and when to be called again. It awaits
//! nothing, so there is no moment at which it could be dropped half-way: the driver gives it one input after the other,
//! under a mutex, and wakes who waits. What it has to know of the nodes, a [`Deployment`] says.
//!
//! | machine | decides | driven by, in the crate `quorlock` |
//! |---|---|---|
//! | [`Round`] | which votes count, the verdict, the number of an attempt, when a node is overdue, what is left on each node | `quorum/round.rs` |
//! | [`Undo`] | which request takes a claim back at which node, and when one that failed is asked again | `engine/cleanup.rs` |
//! | [`Keep`] | when a lease is renewed, what the verdict means, which nodes are repaired | `engine/keeper.rs` |
//! | [`wait`] | which node to ask first, where to wait and what to believe of its node, when to ask again | `engine/contender.rs`, `engine/node_queue.rs` |
//!
//! `crates/quorlock-model` runs them in every order of events: see its module `real`.

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
