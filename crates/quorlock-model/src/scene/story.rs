//! Describes the steps of a violation.

use super::{Attempt, Node, Own, Phase, State, Step};
use crate::common::Answer;
use crate::names::name;
use crate::record::Kept;

impl<S> Step<S> {
    /// Describes the step in a sentence, between the states before and after it.
    pub(crate) fn describe<W, T, M, O: Own, const N: usize, const K: usize, const L: usize>(
        self,
        before: &State<W, Node<T, M, K, L>, Attempt<O>, N, K>,
        after: &State<W, Node<T, M, K, L>, Attempt<O>, N, K>,
        own: impl Fn(S) -> String,
    ) -> String {
        let done = |node: usize| {
            let changes = before.nodes[node].kept.iter().zip(after.nodes[node].kept);
            let changes: Vec<String> = changes.filter_map(|(before, after)| change(*before, after)).collect();
            if changes.is_empty() { "changes nothing".to_owned() } else { changes.join(" and ") }
        };
        let heard = |answer| if answer == Answer::Heard { "" } else { ", unheard" };
        let what = match self {
            Step::Tick { missed_by: None } => "a tick passes".to_owned(),
            Step::Tick { missed_by: Some(attempt) } => {
                format!("a tick passes, which the clock of {} misses", name(attempt))
            }
            Step::RunAhead { node } => format!("the clock of node {node} runs ahead by a tick"),
            Step::Restart { node } => format!("node {node} restarts, and {}", done(node)),
            Step::Vote { attempt, node, answer } => {
                let begins = before.attempts[attempt].phase == Phase::Idle;
                let begins = if begins { " reads its clock and asks all nodes: its" } else { "'s" };
                let (name, done) = (name(attempt), done(node));
                format!(
                    "{name}{begins} request for a vote reaches node {node}, which {done}{}",
                    heard(answer)
                )
            }
            Step::Renew { attempt } => format!("{} reads its clock and sends a renewal", name(attempt)),
            Step::Renewal { attempt, node, answer } => {
                let (name, done) = (name(attempt), done(node));
                format!("{name}'s renewal reaches node {node}, which {done}{}", heard(answer))
            }
            Step::NewRenewal { attempt, node } => {
                let (name, done) = (name(attempt), done(node));
                format!("{name} reads its clock and sends a renewal, which reaches node {node}, which {done}")
            }
            Step::End { attempt } => format!("{} releases what it has, or gives up", name(attempt)),
            Step::Release { attempt, node } => {
                format!("{}'s release reaches node {node}, which {}", name(attempt), done(node))
            }
            Step::Own(step) => own(step),
        };
        let attempts = before.attempts.iter().zip(&after.attempts).enumerate();
        let news = attempts.filter_map(|(attempt, (old, new))| news(name(attempt), old, new));
        [what].into_iter().chain(news).collect::<Vec<_>>().join("; ")
    }
}

/// Describes what a node does.
fn change(before: Kept, after: Kept) -> Option<String> {
    match (before.holder(), after.holder()) {
        (Some(old), Some(new)) if old != new => {
            Some(format!("replaces the token of {} by that of {}", name(old), name(new)))
        }
        (None, Some(new)) => Some(format!("stores the token of {}", name(new))),
        (Some(old), None) if after.is_free() => Some(format!("deletes the token of {}", name(old))),
        _ if before != after => Some(format!("then keeps {after:?}")),
        (_, _) => None,
    }
}

/// Describes what else changes for an attempt.
fn news<O: Own>(name: char, old: &Attempt<O>, new: &Attempt<O>) -> Option<String> {
    match (old.lease(), new.lease()) {
        (None, Some(lease)) => {
            let with = new.own.number().map_or_else(String::new, |number| format!(" with {number}"));
            Some(format!("{name} has the lock{with} until {:?} of its clock", lease.until))
        }
        (Some(was), Some(lease)) if was.until != lease.until => {
            Some(format!("{name} has renewed its lease until {:?} of its clock", lease.until))
        }
        (Some(_), None) => Some(format!("{name} no longer holds the lock")),
        (None, None) if new.phase == Phase::WritingBack && old.phase != Phase::WritingBack => {
            Some(format!("{name} has to write its number back"))
        }
        (_, _) => None,
    }
}
