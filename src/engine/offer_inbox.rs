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
use quorlock_protocol::machine::wait::SharedAttempt;
use quorlock_protocol::machine::{Attempt, Next, NextWaiters, NodeSet};
use quorlock_protocol::{Claim, InboxId, InboxMessage, Moment, OTHERS_FOR, OfferTerms, Token, WaiterId};

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
    /// Of the locks that this process holds or is about to acquire.
    next: NextWaiters,
    /// Locks that a client outside the queue held a moment ago.
    others: Contended,
}

/// The purge threshold: this many, or twice the number of entries that have not expired.
const LEAST_ROOM: usize = 64;

impl Offers {
    pub(crate) fn new(inbox: InboxId, time: Time) -> Offers {
        let inside = Inner {
            open: NodeSet::default(),
            requests: HashMap::new(),
            purge_above: LEAST_ROOM,
            next: NextWaiters::default(),
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
            inside.requests.retain(|_, known| now < known.forgotten_at());
            // So that each entry is checked twice on average, however many there are.
            inside.purge_above = LEAST_ROOM.max(2 * inside.requests.len());
        }
        let before = inside.requests.insert(request.terms.token.random_part().into(), request.clone());
        debug_assert!(before.is_none(), "two requests name the same token");
    }

    /// Marks `token` as withdrawn: offers for it that arrive from now on are given back, too (rule
    /// O-6).
    pub(crate) fn give_up(&self, token: &Token) {
        if self.used.load(Ordering::Relaxed)
            && let Some(request) = self.request(token.random_part())
        {
            request.votes.with(|votes, _| votes.give_up());
        }
    }

    fn request(&self, token: &[u8]) -> Option<Arc<OfferRequest>> {
        self.inside.lock().requests.get(token).cloned()
    }

    /// Returns the requests to which an offer may still come, and of which no lease has come.
    pub(super) fn open_requests(&self, now: Moment) -> Vec<Arc<OfferRequest>> {
        let requests: Vec<_> = self.inside.lock().requests.values().cloned().collect();
        let is_open = |request: &Arc<OfferRequest>| {
            request.votes.with(|votes, _| votes.is_open() && now < votes.forgotten_at())
        };
        requests.into_iter().filter(is_open).collect()
    }

    /// Takes the waiter to which to offer the lock at `key`, held with `token`, if it can still
    /// accept in time. The next holder is notified of its successor again.
    pub(crate) fn take_next(&self, key: &str, token: &Token, now: impl FnOnce() -> Moment) -> Option<Next> {
        if !self.used.load(Ordering::Relaxed) {
            return None;
        }
        self.inside.lock().next.take(key, token, self.inbox, now)
    }

    /// Records that the `waiter` whose turn it was has acquired the lock at `key` with this
    /// `token`.
    pub(crate) fn acquired(&self, key: &str, waiter: WaiterId, token: &Token) {
        if self.used.load(Ordering::Relaxed) {
            self.inside.lock().next.acquired(key, waiter, token);
        }
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
    /// The votes: they arrive unasked.
    pub(super) votes: Arc<Driven<Attempt>>,
    /// The terms in the request.
    pub(super) terms: Arc<OfferTerms>,
}

impl OfferRequest {
    pub(super) fn claim(&self) -> Arc<Claim> {
        self.votes.with(|votes, _| votes.claim().clone())
    }

    fn forgotten_at(&self) -> Moment {
        self.votes.with(|votes, _| votes.forgotten_at())
    }
}

impl SharedAttempt for OfferRequest {
    fn with<T>(&self, work: impl FnOnce(&mut Attempt) -> T) -> T {
        self.votes.with(|votes, _| work(votes))
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
                if !request.votes.offered(self.node, answer, life, now)
                    && let Some(engine) = request.engine.upgrade()
                {
                    engine.give_back(&request, self.node, life);
                }
                queues.notify_offer(request.claim().key());
            }
            InboxMessage::Soon { token } => {
                let Some(request) = offers.request(token) else { return };
                if request.votes.with(|votes, _| votes.handle_soon(now)) {
                    queues.notify_offer(request.claim().key());
                }
            }
            InboxMessage::Next { key, to, next, others_seen } => {
                if let Some(key) = queues.known(key) {
                    let (waiter, to) = (Arc::new(next), to.into());
                    let next = Next { waiter, home: self.node, to, received: now, others_seen };
                    offers.used.store(true, Ordering::Relaxed);
                    offers.inside.lock().next.note(&key, next, now);
                }
            }
        }
    }
}
