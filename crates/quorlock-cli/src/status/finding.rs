//! The conclusion from the answers of all nodes.

use std::time::Duration;

use quorlock::{
    duration,
    votes::{Holder, VoteOutcome, VoteReport},
};

use crate::paint::Paint;
use crate::time_left;

/// The conclusion from the answers.
pub(crate) enum Finding {
    /// A holder has a quorum.
    Held(Holder),
    /// No holder has a quorum, whatever the silent nodes would answer.
    Free,
    /// Free, but no client can acquire it for this long: too many nodes restarted recently.
    NotYet(Duration),
    /// It depends on the silent nodes.
    Unclear(Option<Holder>),
}

impl Finding {
    /// Concludes from the votes, and from how much longer each node does not vote.
    pub(super) fn of(report: &VoteReport, quarantines: &[Duration]) -> Finding {
        let needed = report.quorum().needed();
        let answered = report.votes().iter().filter(|vote| is_answer(&vote.outcome)).count();
        let silent = report.quorum().nodes() - answered;
        match report.holder() {
            Some(holder) if holder.nodes >= needed => Finding::Held(holder),
            holder if answered < needed => Finding::Unclear(holder),
            Some(holder) if holder.nodes + silent >= needed => Finding::Unclear(Some(holder)),
            Some(_) | None => {
                let votes = report.votes().iter().zip(quarantines);
                let answered = votes.filter(|(vote, _)| is_answer(&vote.outcome));
                let mut lefts: Vec<Duration> = answered.map(|(_, left)| *left).collect();
                lefts.sort_unstable();
                match lefts.get(needed.saturating_sub(1)) {
                    Some(left) if !left.is_zero() => Finding::NotYet(*left),
                    Some(_) | None => Finding::Free,
                }
            }
        }
    }

    pub(super) fn in_words(&self, report: &VoteReport) -> String {
        let quorum = report.quorum();
        let answered = report.votes().iter().filter(|vote| is_answer(&vote.outcome)).count();
        match self {
            Finding::Held(holder @ Holder { nodes, .. }) if holder.token.is_retained() => format!(
                "stays taken on {nodes} of {} nodes {}: {}",
                quorum.nodes(),
                time_left::in_words(holder.remaining),
                holder.describe(),
            ),
            Finding::Held(holder @ Holder { fencing_token, nodes, .. }) => format!(
                "is held by {} on {nodes} of {} nodes {}{}",
                holder.describe(),
                quorum.nodes(),
                time_left::in_words(holder.remaining),
                fencing_token.map_or_else(String::new, |number| format!(", with fencing token {number}"))
            ),
            Finding::Free => match report.holder() {
                None => "is free".to_owned(),
                Some(Holder { nodes, .. }) if report.is_taken() => format!(
                    "is held by no client, and no node can grant it yet: no token is stored on more than {nodes} of {} \
                     nodes, fewer than the {} needed; it is being acquired or passed on, or they are leftovers that will \
                     expire",
                    quorum.nodes(),
                    quorum.needed()
                ),
                Some(holder @ Holder { nodes, .. }) => format!(
                    "is free: {} is stored on {nodes} of {} nodes, fewer than the {} needed; it is being \
                     acquired, or is a leftover that will expire",
                    holder.describe(),
                    quorum.nodes(),
                    quorum.needed()
                ),
            },
            Finding::NotYet(left) => format!(
                "is free, but cannot be locked for another {}: too many nodes have restarted, or were \
                 first used, too recently to vote (restart guard)",
                duration::format(*left)
            ),
            Finding::Unclear(holder) => {
                let seen = holder.as_ref().map_or_else(String::new, |holder| {
                    format!("; {} holds it on at least {}", holder.describe(), holder.nodes)
                });
                format!(
                    "may be free or held, no quorum: {answered} of {} nodes answered, {} needed{seen}",
                    quorum.nodes(),
                    quorum.needed(),
                )
            }
        }
    }

    /// Colours `sentence` accordingly.
    pub(super) fn painted(&self, sentence: &str) -> String {
        let paint = Paint::for_stdout();
        match self {
            Finding::Held(_) => paint.strong(sentence),
            Finding::Free => paint.good(sentence),
            Finding::NotYet(_) | Finding::Unclear(_) => paint.bad(sentence),
        }
    }

    pub(super) fn word(&self) -> &'static str {
        match self {
            Finding::Held(holder) if holder.token.is_retained() => "retained",
            Finding::Held(_) => "held",
            Finding::Free | Finding::NotYet(_) => "free",
            Finding::Unclear(_) => "unknown",
        }
    }
}

/// Whether a node reported who holds its key.
pub(super) fn is_answer(reply: &VoteOutcome) -> bool {
    matches!(reply, VoteOutcome::Held(_) | VoteOutcome::Free | VoteOutcome::Granted | VoteOutcome::Restored)
}
