//! Asks for offers of other processes, and withdraws tokens and votes that are no longer of use.
//!
//! What an offer is, and when it is taken up or given back, [`OfferRequests`] decides. The messages of the nodes reach its
//! requests in `offer_inbox.rs`.
//!
//! # Cancel safety
//!
//! Dropping the [`OfferRequests`] withdraws nothing. Their owner calls `give_back` before: the
//! contender's guard does, when the wait ends or its future is dropped. Votes that arrive later find
//! the request given up.

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
use quorlock_protocol::machine::wait::{OfferRequests, OfferStep, asks_for_offers};
use quorlock_protocol::machine::{self, KeyStates, Wanted};
use quorlock_protocol::{KeyState, OfferTerms, RoundTrip, Token, offer_life};

/// The open requests of one wait.
pub(super) type Requests = OfferRequests<Arc<OfferRequest>>;

/// Withdraws at all nodes the tokens to which an offer may still come: no waiter would receive it, and the lock would stay taken
/// (rule O-6).
pub(crate) fn withdraw_all(engine: &Arc<EngineContext>) {
    let requests = engine.offers.as_ref().map(|offers| offers.open_requests(engine.now()));
    for request in requests.into_iter().flatten() {
        let votes = &request.votes;
        let Some(claim) = votes.with(|votes, _| votes.withdraw().then(|| votes.claim().clone())) else {
            continue;
        };
        let cancel = SharedRequest::from(cancel(engine, &claim));
        let round = Round::start(&engine.nodes, Expect::Released, votes.ttl, |_| Some(cancel.clone()));
        engine.tasks.spawn(async move { round.settled().await }, &request.runtime);
    }
}

impl GiveBack for EngineContext {
    fn give_back(self: Arc<Self>, request: &OfferRequest, node: usize, life: Duration) {
        let (claim, tasks) = (request.claim(), self.tasks.clone());
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

/// Asks for an offer in the queue of `home`. Returns the terms, or `None` where an offer is no use: messages do not arrive,
/// the holder renews manually, the node is near, or the lease would be too short.
pub(super) fn ask(
    requests: &mut Requests,
    engine: &Arc<EngineContext>,
    acquisition: &AcquireRequest,
    (home, round_trip): (usize, RoundTrip),
) -> Option<Arc<OfferTerms>> {
    let offers = engine.offers.as_ref()?;
    let (now, nodes) = (engine.now(), &engine.nodes);
    requests.forget(now);
    let life = offer_life(acquisition.ttl, engine.max_ttl);
    let is_open = acquisition.renewal != Renewal::Manual && offers.is_open_at(home, nodes.quorum.needed());
    if !is_open || !asks_for_offers(life, round_trip) {
        return None;
    }
    if let Some(last) = requests.repeat(now) {
        return Some(last.terms.clone());
    }
    let fence_hint = engine.fence_hint(acquisition, None);
    let claim = new_claim(engine, acquisition, fence_hint);
    let terms = Arc::new(OfferTerms {
        inbox: offers.inbox,
        prefix_len: engine.key_prefix.len(),
        life,
        fenced: acquisition.fencing == Fencing::On,
        token: claim.token().clone(),
    });
    let wanted = Wanted { claim, ttl: life, fence_hint };
    let votes = Driven::attempt(nodes, machine::Attempt::offered(&**nodes, engine.now(), wanted));
    let engine: Weak<EngineContext> = Arc::downgrade(engine);
    let request = Arc::new(OfferRequest { engine, runtime: Handle::current(), votes, terms: terms.clone() });
    offers.expect(&request, now);
    requests.push(request);
    Some(terms)
}

/// Waits for a vote on the requests so far; `bell` is notified of each.
pub(super) fn voted(requests: &Requests, bell: Arc<Notify>) -> impl Future<Output = ()> + use<> {
    let requests = requests.clone();
    async move {
        while !requests.has_offers() {
            bell.notified().await;
        }
    }
}

/// Decides what to do about the offers so far. An attempt that is dropped is taken back.
pub(super) fn next(
    requests: &mut Requests,
    engine: &Arc<EngineContext>,
    acquisition: &Arc<AcquireRequest>,
    round_trip: Duration,
) -> OfferStep<Attempt> {
    requests
        .next(&*engine.nodes, round_trip, engine.drift, engine.now())
        .map(|request| request.attempt(engine, acquisition))
}

/// Takes back what too few nodes have offered.
pub(super) fn give_back(
    requests: &mut Requests,
    engine: &Arc<EngineContext>,
    acquisition: &Arc<AcquireRequest>,
) {
    for request in requests.give_back() {
        drop(request.attempt(engine, acquisition));
    }
}

/// Takes the lock back if `home` holds it for one of the requests and its message was lost.
pub(super) fn give_back_unheard(
    requests: &mut Requests,
    engine: &Arc<EngineContext>,
    acquisition: &Arc<AcquireRequest>,
    (home, holder): (usize, &Token),
) {
    if let Some(lost) = requests.unheard(home, holder) {
        drop(lost.attempt(engine, acquisition));
    }
}

impl OfferRequest {
    /// The attempt that has its votes.
    fn attempt(&self, engine: &Arc<EngineContext>, acquisition: &Arc<AcquireRequest>) -> Attempt {
        Attempt::of(engine, &self.runtime, acquisition, &self.votes)
    }
}
