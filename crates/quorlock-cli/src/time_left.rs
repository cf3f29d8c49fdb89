//! How long a lock stays held.

use std::time::Duration;

use quorlock::{
    duration,
    node::Expiry,
    votes::{Holder, NodeVote, VoteOutcome, VoteReport},
};

/// Returns how long a lock stays held; it is held for ever if there is no time.
pub(crate) fn in_words(remaining: Option<Duration>) -> String {
    match remaining {
        Some(remaining) => format!("for up to {} more", duration::format(remaining)),
        None => "which never expires".to_owned(),
    }
}

/// Returns the time that is left of a holder; nothing if its key never expires.
pub(crate) fn remaining(report: &VoteReport, holder: &Holder) -> Option<Duration> {
    let never = |vote: &NodeVote| matches!(&vote.outcome, VoteOutcome::Held(held) if held.token == holder.token && held.expiry == Expiry::Never);
    (!report.votes().iter().any(never)).then_some(holder.remaining)
}
