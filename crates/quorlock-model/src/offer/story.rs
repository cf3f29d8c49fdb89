//! Describes the steps of a violation that only this model has.

use super::state::State;
use super::{Act, Offer};
use crate::names::name;
use crate::scene::Phase;

impl<const N: usize, const K: usize> Offer<N, K> {
    pub(super) fn describe(&self, before: &State<N, K>, act: Act) -> String {
        match act {
            Act::Remind { node } => {
                format!(
                    "node {node} restarts with its data, and notifies the waiter again whose token it has"
                )
            }
            Act::Vanish { node } => format!("the key on node {node} vanishes"),
            Act::Question { attempt } => format!("{} sends its question", name(attempt)),
            Act::AskAgain { attempt } => format!("{} asks again with the same token", name(attempt)),
            Act::Offer { attempt, to, node } => {
                let asks = if before.attempts[to].phase == Phase::Idle && !self.world.is_literal() {
                    ", which has just asked,"
                } else {
                    ""
                };
                let instead = match before.nodes[node].kept[0].holder() {
                    Some(holder) if holder == attempt => String::new(),
                    Some(holder) => format!(" instead of that of {}", name(holder)),
                    None => " where there was none".into(),
                };
                let (from, to) = (name(attempt), name(to));
                format!(
                    "{from}'s offer to {to}{asks} reaches node {node}, which stores {to}'s token{instead}"
                )
            }
            Act::Push { attempt, node } => format!("{} hears from node {node}", name(attempt)),
            Act::Forge { attempt, node } => {
                format!("{} hears in the name of node {node}, which has sent nothing", name(attempt))
            }
            Act::Draw { attempt, node } => {
                format!(
                    "node {node}, whose counter is {}, draws a number for {}",
                    before.nodes[node].kept[0].counter(),
                    name(attempt)
                )
            }
            Act::Decide { attempt } => format!("{} decides on its number", name(attempt)),
            Act::WriteBack { attempt, node } => {
                let number = before.attempts[attempt].own.number;
                format!("node {node} carries {number} of {}", name(attempt))
            }
        }
    }
}
