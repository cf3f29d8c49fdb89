//! Offers between processes: those that this process waits for, those that it may make, and the messages of nodes about
//! both (ADR 3).

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use super::queue::WaitQueues;
use super::recently_contended::Contended;
use crate::node::{Hint, HintListener, Identity, Response, Vote};
use crate::quorum::round::Driven;
use crate::runtime::{Mutex, clock::Clock};
use quorlock_protocol::machine::{Attempt, NodeSet};
use quorlock_protocol::{
    Claim, InboxId, InboxMessage, Moment, NextWaiter, OTHERS_FOR, OfferTerms, Token, WaiterId, is_fresh,
    offer_renamed_after,
};

/// The offers of a coordinator: those that it waits for, and those that it may make.
pub(crate) struct Offers {
    /// Where nodes send offers.
    pub(super) inbox: InboxId,
    pub(super) time: Time,
    /// Whether any offer was ever expected or possible; if not, a release skips all this.
    used: AtomicBool,
    inside: Mutex<Inner>,
}

/// The clock of a coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Time {
    /// The machine's.
    Real,
    /// That of a test or a simulation, which no thread may disturb.
    Simulated,
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
    pub(crate) fn new(inbox: InboxId, time: Time) -> Offers {
        let inside = Inner {
            open: NodeSet::default(),
            requests: HashMap::new(),
            purge_above: LEAST_ROOM,
            next: HashMap::new(),
            others: Contended::remembering(OTHERS_FOR),
        };
        Offers { inbox, time, used: AtomicBool::new(false), inside: Mutex::new(inside) }
    }

    /// Marks the random part of a token as this process's.
    pub(crate) fn mark(&self, random: u128) -> u128 {
        self.inbox.mark(random)
    }

    /// Whether messages arrive from at least `needed` nodes, including `home`.
    pub(super) fn is_open_at(&self, home: usize, needed: usize) -> bool {
        let inside = self.inside.lock();
        inside.open.contains(home) && inside.open.len() >= needed
    }

    pub(super) fn expect(&self, request: &Arc<OfferRequest>, now: Moment) {
        self.used.store(true, Ordering::Relaxed);
        let mut inside = self.inside.lock();
        if inside.requests.len() >= inside.purge_above {
            inside.requests.retain(|_, known| now < known.forgotten);
            // So that each entry is checked twice on average, however many there are.
            inside.purge_above = LEAST_ROOM.max(2 * inside.requests.len());
        }
        let before = inside.requests.insert(request.claim.token().random_part().into(), request.clone());
        debug_assert!(before.is_none(), "two requests name the same token");
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

    /// Returns the requests to which an offer may still come, and of which no lease has come.
    pub(super) fn open_requests(&self, now: Moment) -> Vec<Arc<OfferRequest>> {
        let open = |request: &&Arc<OfferRequest>| {
            now < request.forgotten && !request.taken_up.load(Ordering::Relaxed)
        };
        self.inside.lock().requests.values().filter(open).cloned().collect()
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
    pub(super) engine: Weak<dyn GiveBack>,
    /// The runtime that gives back late offers.
    pub(super) runtime: Handle,
    pub(super) claim: Arc<Claim>,
    /// The votes: they arrive unasked.
    pub(super) votes: Arc<Driven<Attempt>>,
    pub(super) life: Duration,
    /// When every offer for it has expired on the nodes, too.
    pub(super) forgotten: Moment,
    /// The terms in the request.
    pub(super) terms: Arc<OfferTerms>,
    /// Whether to ask again, because a coming offer would count from too long ago.
    pub(super) stale: AtomicBool,
    /// Whether it was sent again.
    pub(super) repeated: AtomicBool,
    /// Whether a lease has come of it. Written while `given_up` is locked.
    pub(super) taken_up: AtomicBool,
    /// Whether the token was withdrawn. Locked while a vote is counted, so that none is counted after that.
    pub(super) given_up: Mutex<bool>,
}

impl OfferRequest {
    /// Whether any node has offered the lock.
    pub(super) fn has_votes(&self) -> bool {
        self.votes.has_vote(&Vote::Granted)
    }

    /// Takes up what was offered. Returns whether it may be: not once the token was given up (rule O-6).
    pub(super) fn take_up(&self) -> bool {
        let given_up = self.given_up.lock();
        let takes_up = !*given_up;
        if takes_up {
            let before = self.taken_up.swap(true, Ordering::Relaxed);
            debug_assert!(!before, "an offer was taken up twice");
        }
        takes_up
    }

    /// Gives the token up, unless its offer was taken up: an offer that arrives from now on is given back. Returns whether
    /// it did.
    pub(super) fn give_up(&self) -> bool {
        let mut given_up = self.given_up.lock();
        let is_open = !self.taken_up.load(Ordering::Relaxed);
        *given_up |= is_open;
        is_open
    }

    /// Records that the node has stored an offer with this `life` and fencing token.
    fn offered(&self, node: usize, answer: Response, life: Duration, now: Moment) {
        let given_up = self.given_up.lock();
        if !*given_up && life >= self.life {
            return self.votes.offered(node, answer, now);
        }
        drop(given_up);
        // It would keep other clients out until it expires (rule O-6).
        if let Some(engine) = self.engine.upgrade() {
            engine.give_back(self, node, life);
        }
    }
}

/// Gives back an offer that came too late or is too short. The context of the engine does it, which has the offers.
pub(super) trait GiveBack: Send + Sync {
    /// Withdraws the offer for `request` that the node has stored for this `life`.
    fn give_back(self: Arc<Self>, request: &OfferRequest, node: usize, life: Duration);
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
                if now.since(request.votes.sent) >= offer_renamed_after(request.life) {
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::node::max_ttls::MaxTtls;
    use crate::node::{Node, Responder, SharedRequest};
    use crate::quorum::members::Nodes;
    use crate::runtime::clock::SystemClock;
    use crate::runtime::entropy::SystemEntropy;
    use quorlock_protocol::machine::Wanted;
    use quorlock_protocol::{Drift, Quarantine, Quorum};

    const LIFE: Duration = Duration::from_secs(5);

    #[derive(Debug)]
    struct Silent;

    impl Node for Silent {
        fn name(&self) -> &'static str {
            "silent"
        }

        fn ask(&self, _: SharedRequest, _: Responder) {}
    }

    /// The nodes at which an offer was given back.
    #[derive(Default)]
    struct GivenBack(Mutex<Vec<usize>>);

    impl GiveBack for GivenBack {
        fn give_back(self: Arc<Self>, _: &OfferRequest, node: usize, _: Duration) {
            self.0.lock().push(node);
        }
    }

    fn nodes() -> Arc<Nodes> {
        let quorum = Quorum::majority(3);
        let max_ttls = Arc::new(MaxTtls::new(LIFE, Drift::default(), quorum));
        let nodes = (0..3).map(|_| Arc::new(Silent) as Arc<dyn Node>).collect();
        Arc::new(Nodes::new(
            nodes,
            quorum,
            (Arc::new(SystemClock), Arc::new(SystemEntropy)),
            (Quarantine::none(), max_ttls),
            None,
        ))
    }

    fn offered(request: &OfferRequest, node: usize) {
        let identity = Identity::new(node.to_string(), Moment::ORIGIN, Duration::ZERO);
        let vote = Response::new(Vote::Granted, Arc::new(identity));
        request.offered(node, vote, LIFE, request.votes.sent);
    }

    /// In another order, as two threads may take: rule O-6 holds in each.
    #[tokio::test]
    async fn o6_an_offer_counts_or_is_given_back_and_never_both() {
        let nodes = nodes();
        let given_back = Arc::new(GivenBack::default());
        let request = |random| {
            let token = Token::new(random, "");
            let engine: Weak<GivenBack> = Arc::downgrade(&given_back);
            let claim = Arc::new(Claim::new("r".into(), token.clone()));
            let wanted = Wanted { claim: claim.clone(), ttl: LIFE, fence_hint: None };
            let votes = Driven::attempt(&nodes, Attempt::offered(&*nodes, nodes.clock.now(), wanted));
            let inbox = InboxId::new(1);
            OfferRequest {
                engine,
                runtime: Handle::current(),
                claim,
                life: LIFE,
                forgotten: votes.sent + LIFE * 2,
                votes,
                terms: Arc::new(OfferTerms { inbox, prefix_len: 0, life: LIFE, fenced: false, token }),
                stale: AtomicBool::new(false),
                repeated: AtomicBool::new(false),
                taken_up: AtomicBool::new(false),
                given_up: Mutex::new(false),
            }
        };

        let given_up = request(1);
        assert!(given_up.give_up() && !given_up.take_up(), "a token that was given up is not taken up");
        offered(&given_up, 0);
        assert!(!given_up.has_votes(), "an offer that comes later does not count");
        assert_eq!(*given_back.0.lock(), [0]);

        let taken_up = request(2);
        offered(&taken_up, 1);
        assert!(taken_up.take_up() && !taken_up.give_up(), "one that was taken up is not withdrawn");
        assert!(taken_up.has_votes());
        assert_eq!(*given_back.0.lock(), [0]);
    }
}
