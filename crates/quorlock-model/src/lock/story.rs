//! Describes the steps of a violation.

use std::fmt;

use super::state::{Phase, Request, State, Witness};
use super::{Lock, Step};
use crate::common::Answer;
use crate::names::name;
use crate::record::Reply;

impl<const N: usize, const K: usize> Lock<N, K> {
    /// Describes the step in a sentence.
    pub(super) fn tell(&self, before: &State<N, K>, step: Step) -> String {
        let after = self.after(before, step);
        let what = match step {
            Step::Tick { missed_by: None } => "a tick passes".into(),
            Step::Tick { missed_by: Some(attempt) } => {
                format!("a tick passes, which the clock of {} misses", name(attempt))
            }
            Step::RunAhead { node } => format!("the clock of node {node} runs ahead by a tick"),
            Step::Restart { node } => format!("node {node} restarts without its key"),
            Step::PutForward { node } => format!("the calendar clock of node {node} steps far forwards"),
            Step::Jump { node } => format!("the clock of node {node} jumps, and its key expires"),
            Step::AskAgain { attempt, node } => {
                let done = self.renewal_reply(before, attempt, node);
                format!("{} asks node {node} again, which {done}", name(attempt))
            }
            Step::Begin { attempt } => format!("{} reads its clock and asks all nodes", name(attempt)),
            Step::Vote { attempt, node, answer } => {
                let begins = match before.attempts[attempt].phase {
                    Phase::Idle => " reads its clock and asks all nodes: its",
                    Phase::Voting | Phase::Holding(_) | Phase::Over { .. } => "'s",
                };
                let counts = matches!(after.attempts[attempt].phase, Phase::Holding(_))
                    || after.nodes[node].mail[attempt].vote == Request::Counted;
                let granted = match before.nodes[node].kept.holder() {
                    Some(holder) if holder != attempt => {
                        format!("is refused, since {} has the key", name(holder))
                    }
                    Some(_) | None => format!("is granted{}", unless(counts && answer == Answer::Heard)),
                };
                format!("{}{begins} request for a vote reaches node {node} and {granted}", name(attempt))
            }
            Step::Renew { attempt } => format!("{} reads its clock and sends a renewal", name(attempt)),
            Step::Renewal { attempt, node, answer } => {
                let request = before.nodes[node].mail[attempt].renewal;
                let done = self.renewal_reply(before, attempt, node);
                let young = request == Request::Unarrived(Witness::Young);
                let heard = if answer == Answer::Heard { "" } else { ", unheard" };
                let young = if young { " (a young process)" } else { "" };
                format!("{}'s renewal reaches node {node}{young} and {done}{heard}", name(attempt))
            }
            Step::NewRenewal { attempt, node } => {
                let done = self.renewal_reply(before, attempt, node);
                format!(
                    "{} reads its clock and sends a renewal, which reaches node {node} and {done}",
                    name(attempt)
                )
            }
            Step::LateRenewal { attempt, node } => {
                let done = self.renewal_reply(before, attempt, node);
                format!("an earlier renewal of {} reaches node {node} and {done}", name(attempt))
            }
            Step::Count { attempt } => {
                format!("{} resumes and counts the renewal by the clock it had read", name(attempt))
            }
            Step::SeeEnd { attempt } => {
                format!("a check finds that the lease of {} has ended", name(attempt))
            }
            Step::End { attempt } => format!("{} releases the lock, or gives up", name(attempt)),
            Step::Release { attempt, node } => {
                let key = before.nodes[node].kept.holder().map_or('?', name);
                format!(
                    "{}'s release reaches node {node} and deletes the key with the token of {key}",
                    name(attempt)
                )
            }
        };
        let news = (0..K).filter_map(|attempt| self.describe_changes(before, &after, attempt));
        [what].into_iter().chain(news).collect::<Vec<_>>().join("; ")
    }

    fn renewal_reply(&self, before: &State<N, K>, attempt: usize, node: usize) -> Reply {
        self.prolong(&mut before.nodes[node].clone(), attempt)
    }

    /// Describes what else changes for an attempt.
    fn describe_changes(&self, before: &State<N, K>, after: &State<N, K>, attempt: usize) -> Option<String> {
        let (old, new) = (&before.attempts[attempt], &after.attempts[attempt]);
        let name = name(attempt);
        let clock = self.world.wall(new.clock);
        match (old.lease(), new.lease()) {
            (None, Some(lease)) => Some(format!("{name} has the lock until {:?} of its clock", lease.until)),
            (Some(was), Some(lease)) if was.until != lease.until => Some(format!(
                "{name} counts its renewal at {clock:?} and has the lock until {:?}",
                lease.until
            )),
            (Some(_), Some(_)) if self.asserts(old) && !self.asserts(new) => {
                Some(format!("the lease of {name} has ended"))
            }
            (Some(_), None) => Some(format!("{name} is over")),
            (_, _) => None,
        }
    }
}

/// The initial state.
impl<const N: usize, const K: usize> fmt::Display for State<N, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{N} nodes without keys, and {K} attempts")
    }
}

fn unless(counts: bool) -> &'static str {
    if counts { "" } else { ", which does not count" }
}
