//! Waits for the verdict on an attempt, and writes its fencing token back where too few nodes have drawn it.

use std::sync::Arc;

use tracing::debug;

use super::context::EngineContext;
use crate::node::{Request, SharedRequest};
use crate::quorum::round::{Expect, Round};
use quorlock_protocol::machine::Number;
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

/// Waits for the verdict on the attempt that asked for `claim` in the round `votes`, and for its
/// [`Number`](quorlock_protocol::machine::Round::number).
///
/// # Cancel safety
///
/// May be called again.
pub(crate) async fn decide(engine: &EngineContext, claim: &Arc<Claim>, votes: &Arc<Round>) -> Decision {
    let verdict = votes.verdict().await;
    let fencing_token = match votes.with(|votes, nodes| votes.number(nodes, verdict)) {
        Number::Drawn(fence) => return Decision { verdict, fence, round: votes.clone() },
        Number::WriteBack(fencing_token) => fencing_token,
    };
    debug!(key = claim.key(), %fencing_token, "the nodes issued different fencing tokens; raising them to the next");
    engine.meters.wrote_back();
    let request = SharedRequest::from(Request::WriteBack { claim: claim.clone(), fencing_token });
    let round = Round::start(&engine.nodes, Expect::Hold, votes.ttl, |_| Some(request.clone()));
    Decision { verdict: round.verdict().await, fence: Some(fencing_token), round }
}

/// Whether an attempt that asked in the round `votes` is decided in time at `now`.
pub(crate) fn in_time(engine: &EngineContext, votes: &Round, now: Moment) -> bool {
    votes.with(|votes, nodes| votes.is_in_time(nodes, engine.drift, engine.clock_bound(), now))
}
