//! Offers between processes: those that this process receives, and those that it may make (ADR 26).

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::attempt::{Attempt, expect, new_claim};
use super::cleanup::{Cleanup, CleanupOf, cancel};
use super::context::EngineContext;
use super::options::{AcquireRequest, Fencing, Renewal};
use super::queue::WaitQueues;
use super::recently_contended::Contended;
use crate::node::{Hint, HintListener, Identity, Response, SharedRequest, Vote};
use crate::quorum::key_states::KeyStates;
use crate::quorum::node_set::NodeSet;
use crate::quorum::round::{Expect, Round};
use crate::runtime::{Mutex, clock::Clock};
use quorlock_protocol::{
    Claim, InboxId, InboxMessage, KeyState, Moment, NextWaiter, OTHERS_FOR, OfferTerms, Token, Verdict,
    WaiterId, is_fresh, least_left, offer_life, offer_renamed_after,
};

/// The offers of a coordinator: those that it waits for, and those that it may make.
pub(crate) struct Offers {
    /// Where nodes send offers.
    inbox: InboxId,
    /// Whether any offer was ever expected or possible; if not, a release skips all this.
    used: AtomicBool,
    inside: Mutex<Inner>,
}

struct Inner {
    /// The nodes whose messages arrive.
    open: NodeSet,
    /// The open requests, by the random part of their token.
    requests: HashMap<Box<[u8]>, Arc<OfferRequest>>,
    /// How many entries trigger a purge of the expired ones.
    purge_above: usize,
    /// The first waiter for a lock that this process holds or is about to acquire.
    next: HashMap<Arc<str>, Next>,
    /// Locks that a client outside the queue held a moment ago.
    others: Contended,
}

/// The waiter to which the lock may be offered.
pub(crate) struct Next {
    pub(crate) waiter: Arc<NextWaiter>,
    /// The node that keeps the queue.
    pub(crate) home: usize,
    /// The lease it is for: the random part of its token, or the id of the waiter whose turn it is.
    to: Box<[u8]>,
    received: Moment,
    /// Whether a waiter has seen a holder that is not in the queue.
    pub(crate) others_seen: bool,
}

/// The purge threshold: this many, or twice the number of entries that have not expired.
const LEAST_ROOM: usize = 64;
/// The most locks for which the next waiter is remembered.
const MOST: usize = 1024;

impl Offers {
    pub(crate) fn new(inbox: InboxId) -> Offers {
        let inside = Inner {
            open: NodeSet::default(),
            requests: HashMap::new(),
            purge_above: LEAST_ROOM,
            next: HashMap::new(),
            others: Contended::remembering(OTHERS_FOR),
        };
        Offers { inbox, used: AtomicBool::new(false), inside: Mutex::new(inside) }
    }

    /// Marks the random part of a token as this process's.
    pub(crate) fn mark(&self, random: u128) -> u128 {
        self.inbox.mark(random)
    }

    /// Whether messages arrive from at least `needed` nodes, including `home`.
    fn is_open_at(&self, home: usize, needed: usize) -> bool {
        let inside = self.inside.lock();
        inside.open.contains(home) && inside.open.len() >= needed
    }

    fn expect(&self, request: &Arc<OfferRequest>, now: Moment) {
        self.used.store(true, Ordering::Relaxed);
        let mut inside = self.inside.lock();
        if inside.requests.len() >= inside.purge_above {
            inside.requests.retain(|_, known| now < known.forgotten);
            // So that each entry is checked twice on average, however many there are.
            inside.purge_above = LEAST_ROOM.max(2 * inside.requests.len());
        }
        inside.requests.insert(request.claim.token().random_part().into(), request.clone());
    }

    /// Marks `token` as withdrawn: offers for it that arrive from now on are given back, too (rule
    /// O-6).
    pub(crate) fn give_up(&self, token: &Token) {
        if self.used.load(Ordering::Relaxed)
            && let Some(request) = self.request(token.random_part())
        {
            *request.given_up.lock() = true;
        }
    }

    fn request(&self, token: &[u8]) -> Option<Arc<OfferRequest>> {
        self.inside.lock().requests.get(token).cloned()
    }

    /// Withdraws at all nodes the tokens to which an offer may still come: no waiter would receive it, and the lock would stay taken
    /// (rule O-6).
    pub(crate) fn withdraw_all(&self, shared: &Arc<EngineContext>) {
        let now = shared.now();
        let open = |request: &&Arc<OfferRequest>| {
            now < request.forgotten && !request.taken_up.load(Ordering::Relaxed)
        };
        let requests: Vec<_> = self.inside.lock().requests.values().filter(open).cloned().collect();
        for OfferRequest { claim, life, runtime, given_up, .. } in requests.iter().map(|request| &**request) {
            *given_up.lock() = true;
            let cancel = SharedRequest::from(cancel(shared, claim));
            let round = Round::start(&shared.nodes, Expect::Released, *life, |_| Some(cancel.clone()));
            shared.tasks.spawn(async move { round.settled().await }, runtime);
        }
    }

    /// Takes the waiter to which to offer the lock at `key`, held with `token`, if it can still
    /// accept in time. The next holder is notified of its successor again.
    pub(crate) fn take_next(&self, key: &str, token: &Token, now: impl FnOnce() -> Moment) -> Option<Next> {
        if !self.used.load(Ordering::Relaxed) {
            return None;
        }
        let next = self.inside.lock().next.remove(key)?;
        let now = now();
        // Our own request may have reached the queue after the offer that we accepted.
        let is_for_us = *next.to == *token.random_part() && next.waiter.terms.inbox != self.inbox;
        (is_for_us && is_fresh(now.since(next.received), next.waiter.terms.life)).then_some(next)
    }

    /// Records that the `waiter` whose turn it was has acquired the lock at `key` with this
    /// `token`.
    pub(crate) fn acquired(&self, key: &str, waiter: WaiterId, token: &Token) {
        if self.used.load(Ordering::Relaxed)
            && let Some(next) = self.inside.lock().next.get_mut(key)
            && *next.to == *waiter.to_string().as_bytes()
        {
            next.to = token.random_part().into();
        }
    }

    fn note_next(&self, key: &Arc<str>, next: Next, now: Moment) {
        self.used.store(true, Ordering::Relaxed);
        let mut inside = self.inside.lock();
        if inside.next.len() >= MOST {
            inside.next.retain(|_, next| is_fresh(now.since(next.received), next.waiter.terms.life));
        }
        inside.next.insert(key.clone(), next);
    }

    /// Records that a client outside the queue holds the lock at `key`.
    pub(crate) fn note_outsider(&self, key: &Arc<str>, now: Moment) {
        self.inside.lock().others.remember(key, now);
    }

    /// Whether one held it a moment ago.
    pub(crate) fn saw_outsider(&self, key: &str, now: Moment) -> bool {
        self.inside.lock().others.contains(key, now)
    }
}

impl fmt::Debug for Offers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offers").field("inbox", &self.inbox).finish_non_exhaustive()
    }
}

/// A request for a place in the queue that an offer may answer. Each has its own token, by which an
/// offer names the request that it answers (rule O-3).
pub(crate) struct OfferRequest {
    shared: Weak<EngineContext>,
    /// The runtime that gives back late offers.
    runtime: Handle,
    pub(super) claim: Arc<Claim>,
    /// The votes. The round sends nothing: they arrive unasked.
    pub(super) round: Arc<Round>,
    pub(super) life: Duration,
    /// When every offer for it has expired on the nodes, too.
    forgotten: Moment,
    /// The terms in the request.
    terms: Arc<OfferTerms>,
    /// Whether to ask again, because a coming offer would count from too long ago.
    stale: AtomicBool,
    /// Whether it was sent again.
    repeated: AtomicBool,
    /// Whether a lease has come of it.
    taken_up: AtomicBool,
    /// Whether the token was withdrawn.
    given_up: Mutex<bool>,
}

impl OfferRequest {
    /// Whether any node has offered the lock.
    fn has_votes(&self) -> bool {
        self.round.has_vote(&Vote::Granted)
    }

    fn attempt(&self, shared: &Arc<EngineContext>, plan: &Arc<AcquireRequest>) -> Attempt {
        Attempt::offered(shared, &self.runtime, plan, (self.claim.clone(), self.round.clone(), self.life))
    }

    /// Records that the node has stored an offer with this `life` and fencing token.
    fn offered(&self, node: usize, answer: Response, life: Duration, now: Moment) {
        let given_up = self.given_up.lock();
        if !*given_up && life >= self.life {
            return self.round.offered(node, answer, now);
        }
        drop(given_up);
        // It would keep other clients out until it expires (rule O-6). Spawned, because this runs
        // on the node's own task.
        let (Some(shared), claim) = (self.shared.upgrade(), self.claim.clone()) else { return };
        let at_node = |other| if other == node { KeyState::Holds } else { KeyState::Without };
        let key_states = KeyStates::of((0..=node).map(at_node));
        let tasks = shared.tasks.clone();
        let rest = async move {
            if let Some(cleanup) = Cleanup::start(&shared, &claim, life, key_states, CleanupOf::Lease) {
                cleanup.finish().await;
            }
        };
        tasks.spawn(rest, &self.runtime);
    }
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
        shared: &Arc<EngineContext>,
        plan: &AcquireRequest,
        (home, round_trip): (usize, Duration),
    ) -> Option<Arc<OfferTerms>> {
        let offers = shared.offers.as_ref()?;
        let (now, nodes) = (shared.now(), &shared.nodes);
        self.open_requests.retain(|request| now < request.forgotten);
        if plan.renewal == Renewal::Manual || !offers.is_open_at(home, nodes.quorum.needed()) {
            return None;
        }
        let life = offer_life(plan.ttl, shared.max_ttl);
        if life < least_left(life, round_trip).saturating_mul(2) {
            return None;
        }
        if let Some(last) = self.open_requests.back()
            && now.since(last.round.sent) < offer_renamed_after(life)
            && !last.stale.load(Ordering::Relaxed)
            && !last.has_votes()
        {
            last.repeated.store(true, Ordering::Relaxed);
            return Some(last.terms.clone());
        }
        let fence_hint = shared.fence_hint(plan, None);
        let claim = new_claim(shared, plan, fence_hint);
        let token = claim.token().clone();
        let (inbox, prefix_len) = (offers.inbox, shared.key_prefix.len());
        let terms =
            Arc::new(OfferTerms { inbox, prefix_len, life, fenced: plan.fencing == Fencing::On, token });
        let round = Round::without_requests(nodes, expect(fence_hint), life);
        let request = Arc::new(OfferRequest {
            shared: Arc::downgrade(shared),
            runtime: Handle::current(),
            claim,
            // A message may be in flight for as long again.
            forgotten: round.sent + life.saturating_mul(2),
            round,
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
        shared: &Arc<EngineContext>,
        plan: &Arc<AcquireRequest>,
    ) -> Option<(Attempt, bool)> {
        let now = shared.now();
        let won = |request: &Arc<OfferRequest>| request.round.tally(now).verdict() == Some(Verdict::Won);
        let request = self.open_requests.remove(self.open_requests.iter().position(won)?)?;
        self.since = None;
        request.taken_up.store(true, Ordering::Relaxed);
        let is_last = !request.repeated.load(Ordering::Relaxed)
            && self.open_requests.back().is_none_or(|other| other.round.sent <= request.round.sent);
        Some((request.attempt(shared, plan), is_last))
    }

    /// Gives back the lock if `home` holds it for one of the requests and its message was lost: it would have come before
    /// the answer that says so.
    pub(super) fn give_back_unheard(
        &mut self,
        shared: &Arc<EngineContext>,
        plan: &Arc<AcquireRequest>,
        (home, holder): (usize, &Token),
    ) {
        let is_unheard = |request: &Arc<OfferRequest>| {
            request.claim.token() == holder && request.round.key_states().get(home) != KeyState::Holds
        };
        if let Some(lost) = self.open_requests.iter().position(is_unheard)
            && let Some(request) = self.open_requests.remove(lost)
        {
            drop(request.attempt(shared, plan));
        }
    }

    /// Gives back what too few nodes have offered.
    pub(super) fn give_back(&mut self, shared: &Arc<EngineContext>, plan: &Arc<AcquireRequest>) {
        self.since = None;
        for request in self.open_requests.drain(..) {
            if request.has_votes() {
                drop(request.attempt(shared, plan));
            } else {
                *request.given_up.lock() = true;
            }
        }
    }
}

/// Receives the messages of one node.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Nodes keep their listeners, and may outlive the coordinator.
    pub(crate) offers: Weak<Offers>,
    pub(crate) queues: Weak<WaitQueues>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) node: usize,
}

impl HintListener for Inbox {
    fn on_hint(&self, hint: Hint<'_>) {
        if hint == Hint::Unsubscribed
            && let Some(offers) = self.offers.upgrade()
        {
            offers.inside.lock().open.remove(self.node);
        }
    }

    fn inbox(&self) -> Option<InboxId> {
        Some(self.offers.upgrade()?.inbox)
    }

    fn inbox_open(&self) {
        if let Some(offers) = self.offers.upgrade() {
            offers.inside.lock().open.add(NodeSet::of(self.node));
        }
    }

    fn receive(&self, message: InboxMessage<'_>, from: &Arc<Identity>) {
        let (Some(offers), Some(queues)) = (self.offers.upgrade(), self.queues.upgrade()) else { return };
        let now = self.clock.now();
        match message {
            InboxMessage::Offered { token, number, life } => {
                let Some(request) = offers.request(token) else { return };
                let answer = Response::new(Vote::Granted, from.clone()).with_fencing_token(number);
                request.offered(self.node, answer, life, now);
                queues.notify_offer(request.claim.key());
            }
            InboxMessage::Soon { token } => {
                let Some(request) = offers.request(token) else { return };
                if now.since(request.round.sent) >= offer_renamed_after(request.life) {
                    request.stale.store(true, Ordering::Relaxed);
                    queues.notify_offer(request.claim.key());
                }
            }
            InboxMessage::Next { key, to, next, others_seen } => {
                if let Some(key) = queues.known(key) {
                    let (waiter, to) = (Arc::new(next), to.into());
                    let next = Next { waiter, home: self.node, to, received: now, others_seen };
                    offers.note_next(&key, next, now);
                }
            }
        }
    }
}
