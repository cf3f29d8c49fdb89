//! One attempt to acquire a lock, with a token of its own.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::cleanup::{Cleanup, CleanupOf};
use super::context::EngineContext;
use super::fencing;
use super::fencing::Decision;
use super::options::AcquireRequest;
use crate::node::{Request, SharedRequest};
use crate::quorum::round::{Expect, Round};
use quorlock_protocol::machine::KeyStates;
use quorlock_protocol::machine::NodeSet;
use quorlock_protocol::machine::wait::AskOrder;
use quorlock_protocol::votes::VoteReport;
use quorlock_protocol::{Claim, FenceHint, FencingToken, KeyState, Mode, Moment, Token, Verdict, WaiterId};

/// An attempt to acquire, with a unique token (rule I-4).
///
/// Dropped before it has become a lease, it is withdrawn from every node that it may have reached
/// (rules I-5 and I-20).
pub(crate) struct Attempt {
    engine: Arc<EngineContext>,
    /// Runs the clean-up: the attempt may be dropped outside a runtime.
    runtime: Handle,
    acquisition: Arc<AcquireRequest>,
    claim: Arc<Claim>,
    round: Arc<Round>,
    /// The node that was asked first, alone, and the request it was sent.
    preferred: Option<(usize, SharedRequest)>,
    /// The decision, once there is one.
    decision: Option<Decision>,
    kept: bool,
    /// The TTL that was asked for.
    ttl: Duration,
    origin: Origin,
}

/// Where the votes come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    /// It asked for them.
    Asked,
    /// The previous holder offered them (rule O-1).
    Offered,
}

impl Attempt {
    /// Asks the nodes. `seen` is the largest fencing token seen so far for this lock, and `place` the waiter whose places
    /// in the queue may be taken.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub(crate) fn start(
        engine: &Arc<EngineContext>,
        acquisition: &Arc<AcquireRequest>,
        order: AskOrder,
        (seen, place): (Option<FencingToken>, Option<WaiterId>),
    ) -> Attempt {
        let runtime = Handle::current();
        let fence_hint = engine.fence_hint(acquisition, seen);
        let claim = new_claim(engine, acquisition, fence_hint);
        let claim = match place {
            Some(waiter) => Arc::new(Claim::clone(&claim).in_place_of(waiter)),
            None => claim,
        };
        let request = Request::Acquire { claim: claim.clone(), ttl: acquisition.ttl, fence_hint };
        let (request, expect) = (SharedRequest::from(request), expect(fence_hint));
        let preferred = match order {
            AskOrder::PreferredFirst(preference) => {
                let nodes = engine.nodes.quorum.nodes();
                Some((preference.first(claim.preferred_node(nodes), nodes), request.clone()))
            }
            AskOrder::AllAtOnce => None,
        };
        let round = match &preferred {
            Some((first, request)) => {
                Round::start_at(&engine.nodes, expect, acquisition.ttl, *first, request)
            }
            None => Round::start(&engine.nodes, expect, acquisition.ttl, |_| Some(request.clone())),
        };
        let (engine, acquisition, ttl) = (engine.clone(), acquisition.clone(), acquisition.ttl);
        let origin = Origin::Asked;
        Attempt {
            engine,
            runtime,
            acquisition,
            claim,
            round,
            preferred,
            decision: None,
            kept: false,
            ttl,
            origin,
        }
    }

    /// Creates an attempt from offered votes, which last for `life` at most, counted from the
    /// beginning of the round.
    pub(super) fn offered(
        engine: &Arc<EngineContext>,
        runtime: &Handle,
        acquisition: &Arc<AcquireRequest>,
        (claim, round, life): (Arc<Claim>, Arc<Round>, Duration),
    ) -> Attempt {
        Attempt {
            engine: engine.clone(),
            runtime: runtime.clone(),
            acquisition: acquisition.clone(),
            claim,
            round,
            preferred: None,
            decision: None,
            kept: false,
            ttl: life,
            origin: Origin::Offered,
        }
    }

    pub(super) fn token(&self) -> &Token {
        self.claim.token()
    }

    /// The TTL that was asked for.
    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Whether the previous holder offered the lock: the lease then has less than its TTL until it
    /// is renewed.
    pub(crate) fn is_offered(&self) -> bool {
        self.origin == Origin::Offered
    }

    /// Waits for the verdict. Asks the other nodes once the preferred one has not refused.
    ///
    /// # Cancel safety
    ///
    /// May be called again.
    pub(crate) async fn verdict(&mut self) -> Verdict {
        if let Some((preferred, request)) = &self.preferred {
            if self.round.refuses(*preferred).await {
                return Verdict::Contended;
            }
            self.round.ask_remaining(request);
        }
        let decision = fencing::decide(&self.engine, &self.claim, &self.round).await;
        self.decision.insert(decision).verdict
    }

    /// The moment after which a lease from this attempt must not be trusted.
    pub(crate) fn deadline(&self) -> Moment {
        self.round.with(|round, nodes| round.deadline(nodes, self.engine.drift))
    }

    /// Whether a verdict that is known at `now` is in time.
    pub(crate) fn in_time(&self, now: Moment) -> bool {
        fencing::in_time(&self.engine, &self.round, now)
    }

    /// The nodes that have granted so far.
    pub(super) fn granted(&self) -> NodeSet {
        let key_states = self.round.key_states();
        (0..self.engine.nodes.quorum.nodes())
            .filter(|node| key_states.get(*node) == KeyState::Holds)
            .collect()
    }

    /// When the nodes were asked.
    pub(crate) fn sent(&self) -> Moment {
        self.round.sent
    }

    pub(crate) fn report(&self) -> VoteReport {
        self.decision.as_ref().map_or(&self.round, |decision| &decision.round).report()
    }

    /// The number of rounds: one, plus one if the fencing token had to be written back.
    pub(crate) fn rounds(&self) -> usize {
        self.decision.as_ref().map_or(1, |decision| decision.rounds(&self.round))
    }

    /// The largest fencing token that a node has reported.
    pub(crate) fn largest_number(&self) -> Option<FencingToken> {
        self.round.largest_number()
    }

    /// Turns the attempt into a lease, which the keeper owns from now on.
    pub(crate) fn keep(mut self) -> (Arc<Claim>, Arc<Round>, Option<FencingToken>) {
        self.kept = true;
        let fence = self.decision.as_ref().and_then(|decision| decision.fence);
        (self.claim.clone(), self.round.clone(), fence)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.kept {
            self.round.abandon();
            let in_a_queue = self.acquisition.mode == Mode::Exclusive && !self.acquisition.keys.are_several();
            let of = if in_a_queue && !self.is_offered() { CleanupOf::Attempt } else { CleanupOf::Lease };
            clean_up(&self.engine, &self.runtime, &self.claim, self.ttl, self.round.key_states(), of);
        }
    }
}

/// Returns a new, unique claim, with a token made for `fence_hint`.
pub(crate) fn new_claim(
    engine: &EngineContext,
    acquisition: &AcquireRequest,
    fence_hint: Option<FenceHint>,
) -> Arc<Claim> {
    let (random, context) = (engine.entropy.next_u128(), &engine.context(&acquisition.label));
    // The mark in the token lets the node notify the holder of who is next.
    let random = engine.offers.as_ref().map_or(random, |offers| offers.mark(random));
    let claim = match (acquisition.mode, fence_hint) {
        (Mode::Exclusive, Some(fence_hint)) => {
            acquisition.keys.claim(Token::numbered(random, fence_hint.usual(), context))
        }
        (Mode::Exclusive, None) => acquisition.keys.claim(Token::new(random, context)),
        // A reader's token names no number: no inspection shows one.
        (Mode::Shared, _) => acquisition.keys.claim(Token::new(random, context)).shared(),
    };
    Arc::new(claim.below(engine.key_prefix.len()))
}

/// Withdraws `claim` from all nodes in the background.
pub(crate) fn clean_up(
    engine: &Arc<EngineContext>,
    runtime: &Handle,
    claim: &Arc<Claim>,
    ttl: Duration,
    key_states: KeyStates,
    of: CleanupOf,
) {
    if let Some(cleanup) = Cleanup::start(engine, claim, ttl, key_states, of) {
        engine.tasks.spawn(cleanup.finish(), runtime);
    }
}

/// The votes that a round expects which may draw a fencing token.
pub(crate) fn expect(fence_hint: Option<FenceHint>) -> Expect {
    fence_hint.map_or(Expect::Hold, |_| Expect::Number)
}
