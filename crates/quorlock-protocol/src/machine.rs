//! What a client does with the answers of its nodes: the engine, as far as it is decided without IO.
//!
//! A machine is told what has happened and what time it is, and asked what to send and when to be called again. It awaits
//! nothing, so there is no moment at which it could be dropped half-way: the driver gives it one input after the other,
//! under a mutex, and wakes who waits. What it has to know of the nodes, a [`Deployment`] says.
//!
//! | machine | decides | driven by, in the crate `quorlock` |
//! |---|---|---|
//! | [`Round`] | which votes count, the verdict, the number of an attempt, when a node is overdue, what is left on each node | `quorum/round.rs` |
//! | [`Attempt`] | whether one node is asked first, the number and its write-back, whether the verdict is in time | `engine/attempt.rs` |
//! | [`Undo`] | which request takes a claim back at which node, and when one that failed is asked again | `engine/cleanup.rs` |
//! | [`Keep`] | when a lease is renewed, what the verdict means, which nodes are repaired | `engine/keeper.rs` |
//! | [`may_hand_over`], [`Streak`], [`Replaced`], [`Retention`] | how a lock goes to the next waiter of the process, what is left of the old token, how a lock stays taken | `engine/keeper/` |
//! | [`LocalQueue`] | which caller of a process is next | `engine/queue.rs` |
//! | [`NextWaiters`] | to whom a holder may offer its lock | `engine/offer_inbox.rs` |
//! | [`wait`] | what a waiter does next, where it waits and what it believes of its node, when to ask again | `engine/contender.rs`, `engine/node_queue.rs`, `engine/key_watch.rs` |
//!
//! `crates/quorlock-model` runs them in every order of events: see its module `real`.

use std::fmt;

use crate::Moment;
use crate::node::{NodeError, Response, SharedRequest};
use crate::votes::VoteReport;

mod attempt;
mod deployment;
mod hand_over;
mod keep;
mod key_states;
mod local_queue;
mod next_waiters;
mod node_set;
mod round;
#[cfg(test)]
mod tests;
mod undo;
pub mod wait;

pub use attempt::{Attempt, Offered, Wanted};
pub use deployment::Deployment;
pub use hand_over::{Replaced, Retained, Retention, Streak, Successor, may_hand_over};
pub use keep::{Due, Keep, Latest, Renewed};
pub use key_states::KeyStates;
pub use local_queue::{LocalQueue, LocalWaiter};
pub use next_waiters::{Next, NextWaiters};
pub use node_set::NodeSet;
pub use round::{Asked, Expect, Heard, INSPECT_PATIENCE, LEAST_PATIENCE, Number, Question, Round};
pub use undo::{GivenUp, Of, Offer, Terms, Undo, was_lost};

/// Where a request goes: a machine may have several rounds. A driver knows it by its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete")]
pub struct Address {
    /// Counted from zero.
    pub round: usize,
    /// The node.
    pub node: usize,
}

impl Address {
    /// Returns the address with this index, where there are this many `nodes`.
    #[must_use]
    pub fn of(index: usize, nodes: usize) -> Address {
        let nodes = nodes.max(1);
        Address { round: index / nodes, node: index % nodes }
    }

    /// Returns the index, where there are this many `nodes`. In the first round it is that of the node.
    #[must_use]
    pub fn index(self, nodes: usize) -> usize {
        self.round * nodes + self.node
    }
}

/// What one driver runs: it gets the responses, and is then asked what to send. A request is known by the index of its
/// [`Address`], which is that of the node in a machine with one round.
pub trait Machine: fmt::Debug + Send + 'static {
    /// Returns the first round: it says what is left on the nodes.
    fn round(&self) -> &Round;

    /// Returns the first round.
    fn round_mut(&mut self) -> &mut Round;

    /// Returns the round whose responses decide next.
    fn deciding(&self) -> &Round {
        self.round()
    }

    /// Returns when a request was sent, if it is the first to its node in its round and has no response.
    fn asked_at(&self, index: usize) -> Option<Moment> {
        self.round().asked_at(index)
    }

    /// Records the response to a request.
    fn handle_response(
        &mut self,
        nodes: &impl Deployment,
        index: usize,
        result: Result<Response, NodeError>,
        now: Moment,
    ) -> Heard
    where
        Self: Sized;

    /// Returns the index of the next request to send, and the request.
    fn poll_request(&mut self, nodes: &impl Deployment, now: Moment) -> Option<(usize, SharedRequest)>
    where
        Self: Sized;

    /// Returns when silence may next decide what is waited for.
    fn poll_silence(&self, now: Moment) -> Option<Moment> {
        self.round().poll_timeout(now)
    }

    /// Whether no response is awaited any more that may change what is left on the nodes.
    fn is_settled(&self) -> bool;

    /// Returns the responses so far in the round that decides, for people.
    fn report(&self, nodes: &impl Deployment, now: Moment) -> VoteReport
    where
        Self: Sized,
    {
        self.round().report(nodes, now)
    }
}
