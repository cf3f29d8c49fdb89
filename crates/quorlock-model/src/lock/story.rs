//! Describes the steps of a violation that only this model has.

use super::state::State;
use super::{Act, Lock};
use crate::names::name;

impl<const N: usize, const K: usize> Lock<N, K> {
    pub(super) fn describe(&self, before: &State<N, K>, act: Act) -> String {
        let reply = |attempt, node: usize| before.nodes[node].kept[0].would(self.renewal_of(attempt));
        match act {
            Act::PutForward { node } => format!("the calendar clock of node {node} steps far forwards"),
            Act::Jump { node } => format!("the clock of node {node} jumps, and its key expires"),
            Act::AskAgain { attempt, node } => {
                format!("{} asks node {node} again, and {}", name(attempt), reply(attempt, node))
            }
            Act::Begin { attempt } => format!("{} reads its clock and asks all nodes", name(attempt)),
            Act::LateRenewal { attempt, node } => {
                let reply = reply(attempt, node);
                format!("an earlier renewal of {} reaches node {node} and {reply}", name(attempt))
            }
            Act::Count { attempt } => {
                format!("{} resumes and counts the renewal by the clock it had read", name(attempt))
            }
            Act::SeeEnd { attempt } => {
                format!("a check finds that the lease of {} has ended", name(attempt))
            }
        }
    }
}
