//! Describes the steps of a violation.

use std::fmt;

use quorlock_protocol::FencingToken;

use super::state::{Phase, State};
use super::{Fence, Step};
use crate::common::Answer;
use crate::names::name;

impl<const N: usize, const K: usize> Fence<N, K> {
    /// Describes the step in a sentence.
    pub(super) fn describe(&self, before: &State<N, K>, step: Step) -> String {
        let after = self.after(before, step);
        match step {
            Step::Tick => format!("the time is {:?}", self.world.wall(after.now)),
            Step::Restart { node } => {
                format!("node {node} restarts without its counter of {}", before.nodes[node].counter)
            }
            Step::SetClock { node } => {
                let wall = self.world.wall(after.now + after.nodes[node].ahead);
                format!(
                    "the clock of node {node} is stepped to {wall:?}; its counter is {}",
                    after.nodes[node].counter
                )
            }
            Step::Begin { attempt } => {
                let asking = &after.attempts[attempt];
                let wall = self.world.wall(asking.sent + asking.ahead);
                format!("{} asks all nodes; its clock says {wall:?}", name(attempt))
            }
            Step::Vote { attempt, node, answer } => {
                let heard = match answer {
                    Answer::Heard => "",
                    Answer::Unheard => ", which it does not count",
                };
                let number = after.nodes[node].counter;
                format!("{}'s request reaches node {node} and draws {number}{heard}", name(attempt))
            }
            Step::Refuse { attempt, node } => {
                let (name, number) = (name(attempt), after.nodes[node].counter);
                format!(
                    "{name}'s request reaches node {node}, is refused, and raises the counter to {number}"
                )
            }
            Step::Decide { attempt } => {
                let numbers: Vec<FencingToken> =
                    before.nodes.iter().filter_map(|node| node.counted(attempt)).collect();
                let then = match after.attempts[attempt].phase {
                    Phase::WritingBack { token, .. } => format!("has to write {token} back"),
                    Phase::Returned { .. } => returns(&after, attempt),
                    Phase::Idle | Phase::Voting | Phase::Stopped { .. } => "no quorum can carry it".into(),
                };
                let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
                format!("{} counts {} and {then}", name(attempt), numbers.join(", "))
            }
            Step::Raise { node } => {
                format!("another lock raises the counter of node {node} to {}", after.nodes[node].counter)
            }
            Step::WriteBack { attempt, node, .. } => {
                let counter = before.nodes[node].counter;
                let token = before.attempts[attempt].writes_back().unwrap_or(FencingToken::ZERO);
                let then = match (before.attempts[attempt].is_open(), after.attempts[attempt].returned()) {
                    (true, Some(_)) => format!(", so {} {}", name(attempt), returns(&after, attempt)),
                    (_, _) => String::new(),
                };
                let name = name(attempt);
                format!(
                    "{name}'s write-back of {token} is granted by node {node}, whose counter was {counter}{then}"
                )
            }
        }
    }
}

/// The initial state.
impl<const N: usize, const K: usize> fmt::Display for State<N, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = self.nodes.map(|node| node.counter.to_string());
        let ahead = self.attempts.map(|attempt| attempt.ahead.to_string());
        write!(f, "the counters are {}; clocks ahead by {}", counters.join(", "), ahead.join(", "))
    }
}

fn returns<const N: usize, const K: usize>(state: &State<N, K>, attempt: usize) -> String {
    let asking = &state.attempts[attempt];
    match asking.returned() {
        Some(token) if token <= asking.floor => {
            format!("returns with {token}, though {} was issued before it began", asking.floor)
        }
        Some(token) => format!("returns with {token}"),
        None => "does not return".into(),
    }
}
