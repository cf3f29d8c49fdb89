//! The conclusion from the answers of all nodes.

use quorlock::{
    duration,
    protocol::machine::wait::Count,
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
    /// It depends on nodes that are silent, or restarted too recently to vote.
    Unclear(Option<Holder>),
}

impl Finding {
    /// Concludes from the votes. A node that restarted too recently to vote may have lost the key of a holder.
    pub(super) fn of(report: &VoteReport) -> Finding {
        let count = Count::of(report);
        match report.holder() {
            Some(holder) if count.leads() => Finding::Held(holder),
            holder if count.is_unknown() => Finding::Unclear(holder),
            Some(_) | None => Finding::Free,
        }
    }

    pub(super) fn in_words(&self, report: &VoteReport) -> String {
        let quorum = report.quorum();
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
                    "is held by no client, and too few nodes are free to grant it: no token is stored on more than {nodes} of {} \
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
            Finding::Unclear(holder) => {
                let seen = holder.as_ref().map_or_else(String::new, |holder| {
                    format!("; {} holds it on at least {}", holder.describe(), holder.nodes)
                });
                let young = match (too_young(report), report.quarantined_for()) {
                    (0, _) => String::new(),
                    (young, left) => format!(
                        ", {young} of them restarted or first used too recently to vote (restart guard{})",
                        if left.is_zero() {
                            String::new()
                        } else {
                            format!(": {} to go", duration::format(left))
                        }
                    ),
                };
                format!(
                    "may be free or held, no quorum: {} of {} nodes answered{young}, {} needed{seen}",
                    answers(report),
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
            Finding::Unclear(_) => paint.bad(sentence),
        }
    }

    pub(super) fn word(&self) -> &'static str {
        match self {
            Finding::Held(holder) if holder.token.is_retained() => "retained",
            Finding::Held(_) => "held",
            Finding::Free => "free",
            Finding::Unclear(_) => "unknown",
        }
    }
}

/// Whether a node reported who holds its key.
pub(super) fn is_answer(reply: &VoteOutcome) -> bool {
    matches!(
        reply,
        VoteOutcome::Held(_)
            | VoteOutcome::Free
            | VoteOutcome::Quarantined { .. }
            | VoteOutcome::Granted
            | VoteOutcome::Restored
    )
}

fn answers(report: &VoteReport) -> usize {
    report.votes().iter().filter(|vote| is_answer(&vote.outcome)).count()
}

/// Counts the nodes without a key that restarted too recently to vote.
fn too_young(report: &VoteReport) -> usize {
    report.votes().iter().filter(|vote| matches!(vote.outcome, VoteOutcome::Quarantined { .. })).count()
}
