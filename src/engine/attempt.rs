//! One attempt to acquire a lock, with a token of its own.
//!
//! Which node is asked when, what the votes mean, and which number is written back, the machine
//! [decides](quorlock_protocol::machine::Attempt). Here is what its owner holds: dropped, it is taken back.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tracing::debug;

use super::cleanup::{Cleanup, CleanupOf};
use super::context::EngineContext;
use super::options::AcquireRequest;
use crate::quorum::round::Driven;
use quorlock_protocol::machine::Machine as _;
use quorlock_protocol::machine::wait::AskOrder;
use quorlock_protocol::machine::{self, KeyStates, NodeSet, Wanted};
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
    votes: Arc<Driven<machine::Attempt>>,
    kept: bool,
}

impl Attempt {
    /// Asks the nodes. `seen` is the largest fencing token seen so far for this lock, which most likely all grant if it
    /// `is_turn`, and `place` the waiter whose places in the queue may be taken.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub(crate) fn start(
        engine: &Arc<EngineContext>,
        acquisition: &Arc<AcquireRequest>,
        order: AskOrder,
        (seen, is_turn): (Option<FencingToken>, bool),
        place: Option<WaiterId>,
    ) -> Attempt {
        let runtime = Handle::current();
        let fence_hint = engine.fence_hint(acquisition, seen);
        let fence_hint = fence_hint.map(|hint| if is_turn { hint.in_turn() } else { hint });
        let claim = new_claim(engine, acquisition, fence_hint);
        let claim = match place {
            Some(waiter) => Arc::new(Claim::clone(&claim).in_place_of(waiter)),
            None => claim,
        };
        let nodes = &engine.nodes;
        let first = match order {
            AskOrder::PreferredFirst(preference) => {
                let count = nodes.quorum.nodes();
                Some(preference.first(claim.preferred_node(count), count))
            }
            AskOrder::AllAtOnce => None,
        };
        let wanted = Wanted { claim, ttl: acquisition.ttl, fence_hint };
        let votes = Driven::attempt(nodes, machine::Attempt::ask(&**nodes, engine.now(), wanted, first));
        Attempt::of(engine, &runtime, acquisition, &votes)
    }

    /// The attempt with these votes.
    pub(super) fn of(
        engine: &Arc<EngineContext>,
        runtime: &Handle,
        acquisition: &Arc<AcquireRequest>,
        votes: &Arc<Driven<machine::Attempt>>,
    ) -> Attempt {
        let claim = votes.with(|votes, _| votes.claim().clone());
        let (engine, runtime, acquisition) = (engine.clone(), runtime.clone(), acquisition.clone());
        Attempt { engine, runtime, acquisition, claim, votes: votes.clone(), kept: false }
    }

    pub(super) fn token(&self) -> &Token {
        self.claim.token()
    }

    /// The TTL that was asked for; that of an offer is how long it lasts at most.
    pub(super) fn ttl(&self) -> Duration {
        self.votes.ttl
    }

    /// Whether the previous holder offered the lock: the lease then has less than its TTL until it
    /// is renewed.
    pub(crate) fn is_offered(&self) -> bool {
        self.votes.with(|votes, _| votes.is_offered())
    }

    /// Waits for the verdict. Asks the other nodes once the preferred one has not refused.
    ///
    /// # Cancel safety
    ///
    /// May be called again.
    pub(crate) async fn verdict(&mut self) -> Verdict {
        decide(&self.engine, &self.votes).await
    }

    /// The moment after which a lease from this attempt must not be trusted.
    pub(crate) fn deadline(&self) -> Moment {
        self.votes.with(|votes, nodes| votes.round().deadline(nodes, self.engine.drift))
    }

    /// Whether a verdict that is known at `now` is in time.
    pub(crate) fn in_time(&self, now: Moment) -> bool {
        is_in_time(&self.engine, &self.votes, now)
    }

    /// The nodes that have granted so far.
    pub(super) fn granted(&self) -> NodeSet {
        let key_states = self.votes.key_states();
        (0..self.engine.nodes.quorum.nodes())
            .filter(|node| key_states.get(*node) == KeyState::Holds)
            .collect()
    }

    /// When the nodes were asked.
    pub(crate) fn sent(&self) -> Moment {
        self.votes.sent
    }

    pub(crate) fn report(&self) -> VoteReport {
        self.votes.report()
    }

    /// The number of rounds: one, plus one if the fencing token had to be written back.
    pub(crate) fn rounds(&self) -> usize {
        self.votes.with(|votes, _| votes.rounds())
    }

    /// The largest fencing token that a node has reported.
    pub(crate) fn largest_number(&self) -> Option<FencingToken> {
        self.votes.with(|votes, nodes| votes.round().largest_number(nodes))
    }

    /// Turns the attempt into a lease, which the keeper owns from now on.
    pub(crate) fn keep(mut self) -> (Arc<Claim>, Arc<Driven<machine::Attempt>>, Option<FencingToken>) {
        self.kept = true;
        let fence = self.votes.with(|votes, _| votes.number());
        (self.claim.clone(), self.votes.clone(), fence)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.kept {
            let key_states = give_up(&self.votes);
            let in_a_queue = self.acquisition.mode == Mode::Exclusive && !self.acquisition.keys.are_several();
            let of = if in_a_queue && !self.is_offered() { CleanupOf::Attempt } else { CleanupOf::Lease };
            clean_up(&self.engine, &self.runtime, &self.claim, self.ttl(), key_states, of);
        }
    }
}

/// Waits for the verdict on an attempt, and sends what it needs for that.
///
/// # Cancel safety
///
/// May be called again.
pub(super) async fn decide(engine: &EngineContext, votes: &Arc<Driven<machine::Attempt>>) -> Verdict {
    loop {
        if let Some(verdict) = votes.decided().await {
            return verdict;
        }
        let unwritten =
            votes.with(|votes, _| votes.unwritten().map(|number| (votes.claim().clone(), number)));
        if let Some((claim, fencing_token)) = unwritten {
            let key = claim.key();
            debug!(key, %fencing_token, "the nodes issued different fencing tokens; raising them to the next");
            engine.meters.wrote_back();
        }
        votes.send_due(engine.now());
    }
}

/// Whether a verdict that is known at `now` is in time.
pub(super) fn is_in_time(engine: &EngineContext, votes: &Driven<machine::Attempt>, now: Moment) -> bool {
    votes.with(|votes, nodes| votes.round().is_in_time(nodes, engine.drift, engine.clock_bound(), now))
}

/// Sends nothing more, and returns where the key may be.
pub(super) fn give_up(votes: &Driven<machine::Attempt>) -> KeyStates {
    votes.abandon();
    votes.with(|votes, _| votes.give_up())
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
