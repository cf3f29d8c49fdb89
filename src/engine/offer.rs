//! Asks for offers of other processes, and withdraws tokens and votes that are no longer of use.
//!
//! An offer passes a lock from holder to holder in one trip. The holder releases the lock by a
//! request that replaces its token by the waiter's, in one step on each node. Each node then sends
//! the waiter its vote. A waiter with such votes from a quorum holds the lock, and has asked no node.
//!
//! ```text
//!  waiter          home node         holder          all nodes
//!    │ place, terms  │                 │                 │
//!    ├──────────────►│ who is next     │                 │
//!    │               ├────────────────►│                 │
//!    │               │                 │ Offer (release) │
//!    │               │                 ├────────────────►│ token replaced
//!    │◄────────────────────────────────┼─────────────────┤ vote of each node
//!    │ a quorum: holds the lock
//! ```
//!
//! It is safe because an offer is a vote like any other that comes late. The request is that for a
//! place in the queue: it names a token that is new or recent, and validity counts from before the
//! first request with that token was sent. The token says which request a vote answers.
//!
//! # States of a request
//!
//! | state | meaning | left by |
//! |---|---|---|
//! | open | The token is sent with each request for a place, until it is an eighth of its life old. Then a new token takes its place, and the old one stays open. | a vote, a withdrawal, `forgotten` |
//! | with votes | A node has offered the lock. The waiter waits one turn for the votes of the others. | a quorum, the end of that turn |
//! | taken up | A quorum has offered, and an [`Attempt`] has the votes. | |
//! | given up | The token was withdrawn. A vote that arrives now is released on its node. | |
//! | forgotten | Two lives after the request no vote can arrive any more. | |
//!
//! # Events
//!
//! - `ask`: a place is asked for. Repeats the last token while that is recent, or draws a new one.
//! - A vote arrives (`OfferRequest::offered` in `offer_inbox`): it is counted, or given back if the
//!   request was given up or the offer is shorter than its terms.
//! - The node says that we are first soon (`turned_stale`): the contender asks again, so that the
//!   offer counts from a recent request.
//! - `take_offered`: a quorum has offered, and enough of the validity is left (O-5, judged in
//!   `contender/turn.rs`). `give_back`: too few have, in time.
//! - The home names one of our tokens as the holder, but its vote has not come
//!   (`give_back_unheard`): the message was lost, so the lock is given back.
//! - The coordinator closes (`withdraw_all`): all open tokens are withdrawn on all nodes.
//!
//! # Invariants
//!
//! - A vote counts for the token that it names, once for each node (O-2), from before the first
//!   request with that token was sent (O-3).
//! - A token that was given up never counts again, and what is stored under it is released (O-6).
//!   `given_up` is a mutex. It is held while a vote is counted, so each vote either is counted before
//!   the token is given up, or is given back. Taking votes up
//!   holds it too: a token is either taken up by its waiter or withdrawn by a coordinator that closes.
//! - The terms name the life of an offer: no longer than the TTL and half of `max_ttl` (O-7). A shorter
//!   offer is given back.
//! - Offers are asked for only where messages arrive from the home and from a quorum (O-8).
//!
//! # Cancel safety
//!
//! Dropping an [`OfferRequests`] withdraws nothing. Its owner calls `give_back` before: the
//! contender's guard does, when the wait ends or its future is dropped. Votes that arrive later find
//! the request given up.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::attempt::{Attempt, new_claim};
use super::cleanup::{Cleanup, CleanupOf, cancel};
use super::context::EngineContext;
use super::offer_inbox::{GiveBack, OfferRequest};
use super::options::{AcquireRequest, Fencing, Renewal};
use crate::node::SharedRequest;
use crate::quorum::round::{Driven, Expect, Round};
use crate::runtime::Mutex;
use quorlock_protocol::machine::{self, KeyStates, Wanted};
use quorlock_protocol::{
    KeyState, Moment, OfferTerms, Token, Verdict, least_left, offer_life, offer_renamed_after,
};

/// Withdraws at all nodes the tokens to which an offer may still come: no waiter would receive it, and the lock would stay taken
/// (rule O-6).
pub(crate) fn withdraw_all(engine: &Arc<EngineContext>) {
    let requests = engine.offers.as_ref().map(|offers| offers.open_requests(engine.now()));
    for request in requests.into_iter().flatten() {
        let OfferRequest { claim, life, runtime, .. } = &*request;
        if !request.give_up() {
            continue;
        }
        let cancel = SharedRequest::from(cancel(engine, claim));
        let round = Round::start(&engine.nodes, Expect::Released, *life, |_| Some(cancel.clone()));
        engine.tasks.spawn(async move { round.settled().await }, runtime);
    }
}

impl GiveBack for EngineContext {
    fn give_back(self: Arc<Self>, request: &OfferRequest, node: usize, life: Duration) {
        let (claim, tasks) = (request.claim.clone(), self.tasks.clone());
        let at_node = |other| if other == node { KeyState::Holds } else { KeyState::Without };
        let key_states = KeyStates::of((0..=node).map(at_node));
        // Spawned, because this runs on the node's own task.
        let rest = async move {
            if let Some(cleanup) = Cleanup::start(&self, &claim, life, key_states, CleanupOf::Lease) {
                cleanup.finish().await;
            }
        };
        tasks.spawn(rest, &request.runtime);
    }
}

fn attempt(
    request: &OfferRequest,
    engine: &Arc<EngineContext>,
    acquisition: &Arc<AcquireRequest>,
) -> Attempt {
    Attempt::offered(engine, &request.runtime, acquisition, (request.claim.clone(), request.votes.clone()))
}

/// The open requests of one wait, newest last.
#[derive(Default)]
pub(super) struct OfferRequests {
    open_requests: VecDeque<Arc<OfferRequest>>,
    /// When the first vote without a quorum arrived.
    since: Option<Moment>,
}

impl OfferRequests {
    /// Asks for an offer in the queue of `home`: with a new token, unless the last one is recent enough. Returns `None`
    /// where an offer is no use: messages do not arrive, the holder renews manually, or the lease would be too short.
    pub(super) fn ask(
        &mut self,
        engine: &Arc<EngineContext>,
        acquisition: &AcquireRequest,
        (home, round_trip): (usize, Duration),
    ) -> Option<Arc<OfferTerms>> {
        let offers = engine.offers.as_ref()?;
        let (now, nodes) = (engine.now(), &engine.nodes);
        self.open_requests.retain(|request| now < request.forgotten);
        if acquisition.renewal == Renewal::Manual || !offers.is_open_at(home, nodes.quorum.needed()) {
            return None;
        }
        let life = offer_life(acquisition.ttl, engine.max_ttl);
        if life < least_left(life, round_trip).saturating_mul(2) {
            return None;
        }
        if let Some(last) = self.open_requests.back()
            && now.since(last.votes.sent) < offer_renamed_after(life)
            && !last.stale.load(Ordering::Relaxed)
            && !last.has_votes()
        {
            last.repeated.store(true, Ordering::Relaxed);
            return Some(last.terms.clone());
        }
        let fence_hint = engine.fence_hint(acquisition, None);
        let claim = new_claim(engine, acquisition, fence_hint);
        let token = claim.token().clone();
        let (inbox, prefix_len) = (offers.inbox, engine.key_prefix.len());
        let terms = Arc::new(OfferTerms {
            inbox,
            prefix_len,
            life,
            fenced: acquisition.fencing == Fencing::On,
            token,
        });
        let wanted = Wanted { claim: claim.clone(), ttl: life, fence_hint };
        let votes = Driven::attempt(nodes, machine::Attempt::offered(&**nodes, engine.now(), wanted));
        let is_newest = self.open_requests.back().is_none_or(|last| last.votes.sent <= votes.sent);
        debug_assert!(is_newest, "the newest request is not the last");
        let weak: Weak<EngineContext> = Arc::downgrade(engine);
        let request = Arc::new(OfferRequest {
            engine: weak,
            runtime: Handle::current(),
            claim,
            // A message may be in flight for as long again.
            forgotten: votes.sent + life.saturating_mul(2),
            votes,
            life,
            terms: terms.clone(),
            stale: AtomicBool::new(false),
            repeated: AtomicBool::new(false),
            taken_up: AtomicBool::new(false),
            given_up: Mutex::new(false),
        });
        offers.expect(&request, now);
        self.open_requests.push_back(request);
        Some(terms)
    }

    /// Waits for a vote on the requests so far; `bell` is notified of each.
    pub(super) fn voted(&self, bell: Arc<Notify>) -> impl Future<Output = ()> + use<> {
        let open_requests = self.open_requests.clone();
        async move {
            while !open_requests.iter().any(|request| request.has_votes()) {
                bell.notified().await;
            }
        }
    }

    /// Whether any node has offered the lock.
    pub(super) fn has_votes(&self) -> bool {
        self.open_requests.iter().any(|request| request.has_votes())
    }

    /// Whether the latest request is too old for an offer that is about to come. Returns `true`
    /// once only: there may be no newer request.
    pub(super) fn turned_stale(&self) -> bool {
        self.open_requests.back().is_some_and(|request| request.stale.swap(false, Ordering::Relaxed))
    }

    /// The deadline for the other nodes' votes: `patience` after the first.
    pub(super) fn wait_until(&mut self, now: Moment, patience: Duration) -> Moment {
        *self.since.get_or_insert(now) + patience
    }

    /// Returns the attempt that a quorum has offered, and whether it belongs to the latest request, which was not sent
    /// again.
    pub(super) fn take_offered(
        &mut self,
        engine: &Arc<EngineContext>,
        acquisition: &Arc<AcquireRequest>,
    ) -> Option<(Attempt, bool)> {
        let now = engine.now();
        let won = |request: &Arc<OfferRequest>| request.votes.tally(now).verdict() == Some(Verdict::Won);
        let request = self.open_requests.remove(self.open_requests.iter().position(won)?)?;
        self.since = None;
        let attempt = attempt(&request, engine, acquisition);
        let is_last = !request.repeated.load(Ordering::Relaxed)
            && self.open_requests.back().is_none_or(|other| other.votes.sent <= request.votes.sent);
        // The coordinator may have been closed meanwhile, and have withdrawn the token at the nodes.
        request.take_up().then_some((attempt, is_last))
    }

    /// Gives back the lock if `home` holds it for one of the requests and its message was lost: it would have come before
    /// the answer that says so.
    pub(super) fn give_back_unheard(
        &mut self,
        engine: &Arc<EngineContext>,
        acquisition: &Arc<AcquireRequest>,
        (home, holder): (usize, &Token),
    ) {
        let is_unheard = |request: &Arc<OfferRequest>| {
            request.claim.token() == holder && request.votes.key_states().get(home) != KeyState::Holds
        };
        if let Some(lost) = self.open_requests.iter().position(is_unheard)
            && let Some(request) = self.open_requests.remove(lost)
        {
            drop(attempt(&request, engine, acquisition));
        }
    }

    /// Gives back what too few nodes have offered.
    pub(super) fn give_back(&mut self, engine: &Arc<EngineContext>, acquisition: &Arc<AcquireRequest>) {
        self.since = None;
        for request in self.open_requests.drain(..) {
            // Before the votes are looked at: one that arrives in between would not be given back.
            if request.give_up() && request.has_votes() {
                drop(attempt(&request, engine, acquisition));
            }
        }
    }
}
