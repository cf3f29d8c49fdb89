//! Describes the steps of a violation.

use std::fmt;

use super::state::{Attempt, Kind, Phase, State};
use super::{Fencing, Offer, Step};
use crate::names::name;
use crate::record::Reply;

impl<const N: usize, const K: usize> Offer<N, K> {
    /// Describes the step in a sentence.
    pub(super) fn tell(&self, before: &State<N, K>, step: Step) -> String {
        let after = self.after(before, step);
        let what = match step {
            Step::Tick { missed_by: None } => "a tick passes".into(),
            Step::Tick { missed_by: Some(attempt) } => {
                format!("a tick passes, which the clock of {} misses", name(attempt))
            }
            Step::RunAhead { node } => format!("the clock of node {node} runs ahead by a tick"),
            Step::Restart { node } => format!("node {node} restarts without its data"),
            Step::Remind { node } => {
                format!(
                    "node {node} restarts with its data, and notifies the waiter again whose token it has"
                )
            }
            Step::Vanish { node } => format!("the key on node {node} vanishes"),
            Step::Vote { attempt, node } => {
                format!("the request of {} reaches node {node} and is granted", name(attempt))
            }
            Step::Question { attempt } => format!("{} sends its question", name(attempt)),
            Step::AskAgain { attempt } => format!("{} asks again with the same token", name(attempt)),
            Step::Offer { attempt, to, node } => {
                let asks = if before.attempts[to].phase == Phase::Idle && !self.world.is_literal() {
                    ", which has just asked,"
                } else {
                    ""
                };
                let instead = match before.nodes[node].kept.holder() {
                    Some(holder) if holder == attempt => String::new(),
                    Some(holder) => format!(" instead of that of {}", name(holder)),
                    None => " where there was none".into(),
                };
                let (from, to) = (name(attempt), name(to));
                format!(
                    "{from}'s offer to {to}{asks} reaches node {node}, which stores {to}'s token{instead}"
                )
            }
            Step::Push { attempt, node } => format!("{} hears from node {node}", name(attempt)),
            Step::Forge { attempt, node } => {
                format!("{} hears in the name of node {node}, which has sent nothing", name(attempt))
            }
            Step::Decide { attempt } => format!("{} decides on its number", name(attempt)),
            Step::WriteBack { attempt, node } => {
                format!("node {node} carries the number of {}", name(attempt))
            }
            Step::NewRenewal { attempt, node } => {
                let done = self.renewal_reply(before, attempt, node);
                format!("{} sends a renewal, which reaches node {node} and {done}", name(attempt))
            }
            Step::Renewal { attempt, node } => {
                let done = self.renewal_reply(before, attempt, node);
                format!("the renewal of {} reaches node {node} and {done}", name(attempt))
            }
            Step::End { attempt } => format!("{} releases the lock, or gives up", name(attempt)),
            Step::Release { attempt, node } => {
                format!("the release of {} reaches node {node} and deletes its key", name(attempt))
            }
        };
        let news = (0..K).filter_map(|attempt| self.describe_changes(before, &after, attempt));
        [what].into_iter().chain(news).collect::<Vec<_>>().join("; ")
    }

    fn renewal_reply(&self, before: &State<N, K>, attempt: usize, node: usize) -> Reply {
        before.nodes[node].kept.would(self.renewal_of(&before.attempts[attempt], attempt))
    }

    /// Describes what else changes for an attempt.
    fn describe_changes(&self, before: &State<N, K>, after: &State<N, K>, attempt: usize) -> Option<String> {
        let (old, new) = (&before.attempts[attempt], &after.attempts[attempt]);
        let numbered = |attempt: &Attempt| match self.world.fencing {
            Fencing::Without => String::new(),
            Fencing::Numbers | Fencing::Calendars => format!(" with {}", attempt.number),
        };
        let name = name(attempt);
        match (old.lease(), new.lease()) {
            (None, Some(lease)) => {
                Some(format!("{name} has the lock{} until {:?} of its clock", numbered(new), lease.until))
            }
            (Some(was), Some(lease)) if was.until != lease.until => {
                Some(format!("{name} has renewed its lease until {:?} of its clock", lease.until))
            }
            (Some(_), Some(_)) if self.believes(old) && !self.believes(new) => {
                Some(format!("the lease of {name} has ended"))
            }
            (Some(_), None) => Some(format!("{name} no longer holds the lock")),
            (None, None) if new.phase == Phase::WritingBack && old.phase != Phase::WritingBack => {
                Some(format!("{name} has to write {} back", new.number))
            }
            (_, _) => None,
        }
    }
}

/// The initial state.
impl<const N: usize, const K: usize> fmt::Display for State<N, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.attempts.iter().enumerate().map(|(attempt, asking)| {
            let kind = match asking.kind {
                Kind::Holder => "a holder",
                Kind::Waiter => "a waiter",
                Kind::Plain => "a plain client",
            };
            format!("{} is {kind}", name(attempt))
        });
        let keys = self.nodes.iter().enumerate().filter_map(|(node, there)| {
            there.kept.holder().map(|holder| format!("{} has the key on node {node}", name(holder)))
        });
        let told: Vec<String> = kinds.chain(keys).collect();
        let counters: Vec<String> = self.nodes.iter().map(|node| node.kept.counter().to_string()).collect();
        write!(f, "{}; the counters are {}", told.join(", "), counters.join(", "))
    }
}
