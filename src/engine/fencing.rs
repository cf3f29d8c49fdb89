//! Draws the fencing token of an attempt and decides whether it may be used.

use std::sync::Arc;

use tracing::debug;

use super::context::EngineContext;
use crate::node::{Request, SharedRequest};
use crate::quorum::round::{Expect, Round};
use quorlock_protocol::{Claim, FencingToken, Moment, Verdict};

/// The outcome of an attempt.
pub(crate) struct Decision {
    pub(crate) verdict: Verdict,
    /// `None` if fencing is off, or the attempt was not granted.
    pub(crate) fence: Option<FencingToken>,
    /// The round that decided.
    pub(crate) round: Arc<Round>,
}

impl Decision {
    /// The number of rounds, the first of which was `votes`.
    pub(crate) fn rounds(&self, votes: &Arc<Round>) -> usize {
        if Arc::ptr_eq(&self.round, votes) { 1 } else { 2 }
    }
}

/// Waits for the verdict on the attempt that asked for `claim` in the round `votes`.
///
/// Its fencing token is the largest number among the votes that count. If fewer than a quorum of them carry it, it is
/// the next number, to which a quorum of nodes raises its counter in a second round: they must still hold the claim's
/// key, with a counter below (rules F-4 and F-5).
///
/// # Cancel safety
///
/// May be called again.
pub(crate) async fn decide(engine: &EngineContext, claim: &Arc<Claim>, votes: &Arc<Round>) -> Decision {
    let verdict = votes.verdict().await;
    let drawn = if verdict == Verdict::Won { votes.drawn() } else { None };
    let Some(drawn) = drawn else {
        return Decision { verdict, fence: None, round: votes.clone() };
    };
    if drawn.stands(engine.nodes.quorum) {
        return Decision { verdict, fence: Some(drawn.token()), round: votes.clone() };
    }
    let fencing_token = drawn.next();
    debug!(key = claim.key(), %fencing_token, "the nodes issued different fencing tokens; raising them to the next");
    engine.meters.wrote_back();
    let request = SharedRequest::from(Request::WriteBack { claim: claim.clone(), fencing_token });
    let round = Round::start(&engine.nodes, Expect::Hold, votes.ttl, |_| Some(request.clone()));
    Decision { verdict: round.verdict().await, fence: Some(fencing_token), round }
}

/// Whether an attempt that asked in the round `votes`, and is valid until `deadline`, is decided in
/// time at `now`.
///
/// A fencing token is at least as large as the clocks were when the attempt ended. If the nodes
/// then lose their counters and return after a quarantine of `max_ttl` or more, the next token is
/// larger, provided that the clocks agree within half of `max_ttl` and attempts take no longer than
/// the other half.
pub(crate) fn in_time(engine: &EngineContext, votes: &Round, deadline: Moment, now: Moment) -> bool {
    let latest = match votes.expect {
        Expect::Number => deadline.min(votes.sent + engine.clock_bound()),
        Expect::Hold | Expect::Released | Expect::AnyAnswer => deadline,
    };
    now < latest
}
