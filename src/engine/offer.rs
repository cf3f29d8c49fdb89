//! Offers: what holders of other processes give this one, and to whom it may give what it holds (ADR 26).

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::attempt::{Attempt, expect, new_claim};
use super::cleanup::{Cleanup, CleanupOf};
use super::context::EngineContext;
use super::options::{AcquireRequest, Fencing, Renewal};
use super::queue::Lines;
use super::recently_contended::Contended;
use crate::node::{Hint, HintListener, Identity, Response, Vote};
use crate::quorum::key_states::KeyStates;
use crate::quorum::node_set::NodeSet;
use crate::quorum::round::Round;
use crate::runtime::clock::Clock;
use quorlock_protocol::{
    Claim, InboxId, InboxMessage, Moment, NextWaiter, OTHERS_FOR, OfferTerms, Standing, Token, Verdict,
    WaiterId, is_fresh, least_left, offer_heartbeat, offer_life,
};

/// All offers of a coordinator: those that it waits for, and those that it may make.
pub(crate) struct Offers {
    /// Where nodes send them.
    inbox: InboxId,
    /// Whether there has ever been one to wait for or to make: else a release pays for none.
    used: AtomicBool,
    inside: Mutex<Inner>,
}

struct Inner {
    /// The nodes whose messages arrive.
    open: NodeSet,
    /// What was asked for, by the random part of its token.
    questions: HashMap<Box<[u8]>, Arc<Question>>,
    /// How many there may be before those are forgotten that are over.
    most_questions: usize,
    /// Who is first in the queue of a lock that this process has, or is about to have.
    next: HashMap<Arc<str>, Next>,
    /// Locks that programs had a moment ago which do not stand in the queue.
    others: Contended,
}

/// To whom the lock may be offered.
pub(crate) struct Next {
    pub(crate) waiter: Arc<NextWaiter>,
    /// The node that keeps the queue.
    pub(crate) home: usize,
    /// For which lease: by the random part of its token, or by the waiter whose turn it is.
    to: Box<[u8]>,
    heard: Moment,
    /// Whether a waiter has seen a program with the lock that does not stand in the queue.
    pub(crate) others_seen: bool,
}

/// Questions that are over are kept until there are this many, or twice as many as are not.
const LEAST_ROOM: usize = 64;
/// No more locks are remembered than this with the waiter that is next.
const MOST: usize = 1024;

impl Offers {
    pub(crate) fn new(inbox: InboxId) -> Offers {
        let inside = Inner {
            open: NodeSet::default(),
            questions: HashMap::new(),
            most_questions: LEAST_ROOM,
            next: HashMap::new(),
            others: Contended::remembering(OTHERS_FOR),
        };
        Offers { inbox, used: AtomicBool::new(false), inside: Mutex::new(inside) }
    }

    /// The random part of a token of this process.
    pub(crate) fn mark(&self, random: u128) -> u128 {
        self.inbox.mark(random)
    }

    /// Whether the messages of this many nodes arrive, and of `home` among them.
    fn is_open_at(&self, home: usize, needed: usize) -> bool {
        let inside = self.lock();
        inside.open.contains(home) && inside.open.len() >= needed
    }

    fn expect(&self, question: &Arc<Question>, now: Moment) {
        self.used.store(true, Ordering::Relaxed);
        let mut inside = self.lock();
        if inside.questions.len() >= inside.most_questions {
            inside.questions.retain(|_, known| now < known.forgotten);
            // So that each is looked at twice on average, however many there are.
            inside.most_questions = LEAST_ROOM.max(2 * inside.questions.len());
        }
        inside.questions.insert(question.claim.token().random_part().into(), question.clone());
    }

    /// The `token` is about to be taken back: what comes for it from now on is given back, too (rule O-6).
    pub(crate) fn give_up(&self, token: &Token) {
        if self.used.load(Ordering::Relaxed)
            && let Some(question) = self.question(token.random_part())
        {
            *question.given_up() = true;
        }
    }

    fn question(&self, token: &[u8]) -> Option<Arc<Question>> {
        self.lock().questions.get(token).cloned()
    }

    /// To whom to offer the lock at `key`, which is held with this `token`, if a waiter is known that may take it up in
    /// time. It is forgotten: the next holder learns it anew.
    pub(crate) fn take_next(&self, key: &str, token: &Token, now: impl FnOnce() -> Moment) -> Option<Next> {
        if !self.used.load(Ordering::Relaxed) {
            return None;
        }
        let next = self.lock().next.remove(key)?;
        let now = now();
        // A request of ours may have come to the queue after the offer that we have taken up.
        let is_for_us = *next.to == *token.random_part() && next.waiter.terms.inbox != self.inbox;
        (is_for_us && is_fresh(now.since(next.heard), next.waiter.terms.life)).then_some(next)
    }

    /// The lock at `key` was acquired with this `token` by the `waiter`, whose turn it was.
    pub(crate) fn acquired(&self, key: &str, waiter: WaiterId, token: &Token) {
        if self.used.load(Ordering::Relaxed)
            && let Some(next) = self.lock().next.get_mut(key)
            && *next.to == *waiter.to_string().as_bytes()
        {
            next.to = token.random_part().into();
        }
    }

    fn note_next(&self, key: &Arc<str>, next: Next, now: Moment) {
        self.used.store(true, Ordering::Relaxed);
        let mut inside = self.lock();
        if inside.next.len() >= MOST {
            inside.next.retain(|_, next| is_fresh(now.since(next.heard), next.waiter.terms.life));
        }
        inside.next.insert(key.clone(), next);
    }

    /// A program has the lock at `key` that does not stand in its queue.
    pub(crate) fn meet_others(&self, key: &Arc<str>, now: Moment) {
        self.lock().others.remember(key, now);
    }

    /// Whether one had it a moment ago.
    pub(crate) fn has_met_others(&self, key: &str, now: Moment) -> bool {
        self.lock().others.is_about(key, now)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Offers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offers").field("inbox", &self.inbox).finish_non_exhaustive()
    }
}

/// A request for a place in the queue that an offer may answer: each has a token of its own, so that what is offered
/// names the request that it answers (rule O-3).
pub(crate) struct Question {
    shared: Weak<EngineContext>,
    /// Where it waits, and gives back what comes too late.
    runtime: Handle,
    pub(super) claim: Arc<Claim>,
    /// The votes. Nothing is sent in it: they come unasked.
    pub(super) round: Arc<Round>,
    pub(super) life: Duration,
    /// After this, what may come for it has ended at the nodes, too.
    forgotten: Moment,
    /// Whether to ask once more: an offer that is about to come would count from too long ago.
    stale: AtomicBool,
    /// Whether the token is of no use any more.
    given_up: Mutex<bool>,
}

impl Question {
    fn given_up(&self) -> MutexGuard<'_, bool> {
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any node has offered the lock.
    fn has_votes(&self) -> bool {
        self.round.has_said(&Vote::Granted)
    }

    fn attempt(&self, shared: &Arc<EngineContext>, plan: &Arc<AcquireRequest>) -> Attempt {
        Attempt::offered(shared, &self.runtime, plan, (self.claim.clone(), self.round.clone(), self.life))
    }

    /// The node has stored an offer for this `life`, with this number.
    fn offered(&self, node: usize, answer: Response, life: Duration, now: Moment) {
        let given_up = self.given_up();
        if !*given_up && life >= self.life {
            return self.round.offered(node, answer, now);
        }
        drop(given_up);
        // It would keep the lock from others until it ends (rule O-6). Not here: this is the task of that node.
        let (Some(shared), claim) = (self.shared.upgrade(), self.claim.clone()) else { return };
        let at_node = |other| if other == node { Standing::Holds } else { Standing::Without };
        let standings = KeyStates::of((0..=node).map(at_node));
        let tasks = shared.tasks.clone();
        let rest = async move {
            if let Some(sweep) = Cleanup::start(&shared, &claim, life, standings, CleanupOf::Lease) {
                sweep.finish().await;
            }
        };
        tasks.spawn(rest, &self.runtime);
    }
}

/// The questions of one wait that may still be answered, the newest last.
#[derive(Default)]
pub(super) struct Questions {
    asked: VecDeque<Arc<Question>>,
    /// Since when there are votes for one of them, and no quorum.
    since: Option<Moment>,
}

impl Questions {
    /// Asks for an offer in the queue of `home`, with a token that nothing was asked for before. `None` where an offer
    /// would not do: nodes that cannot tell, a lease that its holder renews, or one that is too short to be taken up.
    pub(super) fn ask(
        &mut self,
        shared: &Arc<EngineContext>,
        plan: &AcquireRequest,
        (home, round_trip): (usize, Duration),
    ) -> Option<Arc<OfferTerms>> {
        let offers = shared.offers.as_ref()?;
        let (now, nodes) = (shared.now(), &shared.nodes);
        self.asked.retain(|question| now < question.forgotten);
        if plan.renewal == Renewal::Manual || !offers.is_open_at(home, nodes.quorum.needed()) {
            return None;
        }
        let life = offer_life(round_trip, plan.ttl, shared.max_ttl);
        if life < least_left(life, round_trip).saturating_mul(2) {
            return None;
        }
        let fence_hint = shared.fence_hint(plan, None);
        let claim = new_claim(shared, plan, fence_hint);
        let token = claim.token().clone();
        let round = Round::without_requests(nodes, expect(fence_hint), life);
        let question = Arc::new(Question {
            shared: Arc::downgrade(shared),
            runtime: Handle::current(),
            claim,
            // A message may be on its way for as long again.
            forgotten: round.sent + life.saturating_mul(2),
            round,
            life,
            stale: AtomicBool::new(false),
            given_up: Mutex::new(false),
        });
        offers.expect(&question, now);
        self.asked.push_back(question);
        Some(Arc::new(OfferTerms { inbox: offers.inbox, life, fenced: plan.fencing == Fencing::On, token }))
    }

    /// Waits for a vote on those that were asked by now, with a `bell` that rings for each.
    pub(super) fn voted(&self, bell: Arc<Notify>) -> impl Future<Output = ()> + use<> {
        let asked = self.asked.clone();
        async move {
            while !asked.iter().any(|question| question.has_votes()) {
                bell.notified().await;
            }
        }
    }

    /// Whether any node has offered the lock.
    pub(super) fn has_votes(&self) -> bool {
        self.asked.iter().any(|question| question.has_votes())
    }

    /// Whether the last of them is so old that an offer, which is about to come, would not last. Says so once: there
    /// may be no newer one.
    pub(super) fn turned_stale(&self) -> bool {
        self.asked.back().is_some_and(|question| question.stale.swap(false, Ordering::Relaxed))
    }

    /// Until when to wait for the votes of the others, which come within `patience` of the first.
    pub(super) fn wait_until(&mut self, now: Moment, patience: Duration) -> Moment {
        *self.since.get_or_insert(now) + patience
    }

    /// The attempt that a quorum has offered the lock, and whether it is of the last question.
    pub(super) fn take_offered(
        &mut self,
        shared: &Arc<EngineContext>,
        plan: &Arc<AcquireRequest>,
    ) -> Option<(Attempt, bool)> {
        let now = shared.now();
        let won = |question: &Arc<Question>| question.round.tally(now).verdict() == Some(Verdict::Won);
        let question = self.asked.remove(self.asked.iter().position(won)?)?;
        self.since = None;
        let is_last = self.asked.back().is_none_or(|other| other.round.sent <= question.round.sent);
        Some((question.attempt(shared, plan), is_last))
    }

    /// Gives back what was offered by too few.
    pub(super) fn give_back(&mut self, shared: &Arc<EngineContext>, plan: &Arc<AcquireRequest>) {
        self.since = None;
        for question in self.asked.drain(..) {
            if question.has_votes() {
                drop(question.attempt(shared, plan));
            } else {
                *question.given_up() = true;
            }
        }
    }
}

/// Receives the messages of one node.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Nodes keep their listeners, and may outlive the coordinator.
    pub(crate) offers: Weak<Offers>,
    pub(crate) lines: Weak<Lines>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) node: usize,
}

impl HintListener for Inbox {
    fn on_hint(&self, hint: Hint<'_>) {
        if hint == Hint::Unsubscribed
            && let Some(offers) = self.offers.upgrade()
        {
            offers.lock().open.remove(self.node);
        }
    }

    fn inbox(&self) -> Option<InboxId> {
        Some(self.offers.upgrade()?.inbox)
    }

    fn inbox_open(&self) {
        if let Some(offers) = self.offers.upgrade() {
            offers.lock().open.add(NodeSet::of(self.node));
        }
    }

    fn receive(&self, message: InboxMessage<'_>, from: &Arc<Identity>) {
        let (Some(offers), Some(lines)) = (self.offers.upgrade(), self.lines.upgrade()) else { return };
        let now = self.clock.now();
        match message {
            InboxMessage::Offered { token, number, life } => {
                let Some(question) = offers.question(token) else { return };
                let answer = Response::new(Vote::Granted, from.clone()).with_fencing_token(number);
                question.offered(self.node, answer, life, now);
                lines.ring_for(question.claim.key());
            }
            InboxMessage::Soon { token } => {
                let Some(question) = offers.question(token) else { return };
                if now.since(question.round.sent) >= offer_heartbeat(question.life) {
                    question.stale.store(true, Ordering::Relaxed);
                    lines.ring_for(question.claim.key());
                }
            }
            InboxMessage::Next { key, to, next, others_seen } => {
                if let Some(key) = lines.known(key) {
                    let (waiter, to) = (Arc::new(next), to.into());
                    let next = Next { waiter, home: self.node, to, heard: now, others_seen };
                    offers.note_next(&key, next, now);
                }
            }
        }
    }
}
