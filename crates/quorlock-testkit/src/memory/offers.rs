//! Offers of locks to waiters (rules O-1 to O-9), which no record knows: the terms on which waiters accept them, and the
//! messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::record::Outcome;
use quorlock::node::{NodeError, Request, Vote};
use quorlock::protocol::{
    Claim, FenceHint, FencingToken, InboxId, NextWaiter, OTHERS_FOR, OfferTerms, WaiterId, micros,
    offer_renamed_after,
};

use super::locks::Locks;

/// What is known of waiters beside their places in queues.
#[derive(Debug, Default)]
pub(super) struct Offers {
    /// Waiters that accept offers.
    terms: BTreeMap<(Arc<str>, WaiterId), Accepted>,
    /// Until when programs outside the queue of a lock count as seen, in microseconds.
    others_seen: BTreeMap<Arc<str>, u64>,
    /// The inboxes at which clients listen.
    inboxes: BTreeSet<InboxId>,
}

#[derive(Clone, Debug)]
struct Accepted {
    terms: Arc<OfferTerms>,
    /// When the waiter last asked, in microseconds.
    asked: u64,
}

/// How many waiters that have died one request drops at most.
const MOST_AT_ONCE: usize = 32;

impl Offers {
    pub(super) fn forget(&mut self) {
        self.terms.clear();
        self.others_seen.clear();
    }

    /// Sets the inboxes at which clients listen.
    pub(super) fn listen(&mut self, inboxes: impl Iterator<Item = InboxId>) {
        self.inboxes = inboxes.collect();
    }

    fn of(&self, key: &Arc<str>, waiter: WaiterId) -> Option<&Accepted> {
        self.terms.get(&(Arc::clone(key), waiter))
    }
}

impl Offers {
    /// Applies a request, and sends the messages that go with it.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the others have no messages, or are newer than this crate"
    )]
    pub(super) fn apply(&mut self, locks: &mut Locks, request: &Request) -> Result<Outcome, NodeError> {
        match request {
            Request::Enqueue { key, waiter, terms, others_seen, .. } => {
                locks.watch.forget_turn(key, *waiter);
                let place = (Arc::clone(key), *waiter);
                match terms.clone() {
                    Some(terms) => self.terms.insert(place, Accepted { terms, asked: locks.now() }),
                    None => self.terms.remove(&place),
                };
                if *others_seen {
                    let until = locks.now() + micros(OTHERS_FOR);
                    self.others_seen.insert(Arc::clone(key), until);
                }
                let outcome = locks.apply(request)?;
                if let (Vote::Queued(queued), _) = &outcome
                    && let (0, Some(holding)) = (queued.ahead, &queued.holding)
                    && let Some(accepted) = self.of(key, *waiter)
                {
                    // The holder learns which waiter is next.
                    let next =
                        self.next_message(locks, key, holding.token.random_part(), *waiter, &accepted.terms);
                    self.send(locks, InboxId::of(&holding.token), next);
                }
                Ok(outcome)
            }
            Request::Offer { claim, next, queued, fence_hint } => {
                self.offer(locks, claim, next, *queued, *fence_hint)
            }
            Request::Release { .. } | Request::Cancel { .. } => self.passing_turns(locks, request),
            Request::LeaveQueue { key, waiter } => {
                locks.watch.forget_turn(key, *waiter);
                self.terms.remove(&(Arc::clone(key), *waiter));
                self.passing_turns(locks, request)
            }
            _ => locks.apply(request),
        }
    }

    /// Applies a request after which it may be a waiter's turn, which learns which waiter is next.
    fn passing_turns(&mut self, locks: &mut Locks, request: &Request) -> Result<Outcome, NodeError> {
        let mut first = Vec::new();
        for key in request.keys() {
            first.extend(self.first_living(locks, key)?.map(|waiter| (Arc::clone(key), waiter)));
        }
        let outcome = locks.apply(request)?;
        for (key, waiter) in first {
            let waits = locks.record(&key).is_some_and(|record| record.queue.place(waiter).is_some());
            if !waits && let Some(accepted) = self.terms.remove(&(Arc::clone(&key), waiter)) {
                let next = self.next_in_queue(locks, &key, waiter.to_string().as_bytes());
                self.send(locks, Some(accepted.terms.inbox), next.unwrap_or_default());
            }
        }
        Ok(outcome)
    }

    /// Releases the lock and stores the token of the next holder, if a client listens for that.
    fn offer(
        &mut self,
        locks: &mut Locks,
        claim: &Arc<Claim>,
        next: &NextWaiter,
        queued: bool,
        fence_hint: Option<FenceHint>,
    ) -> Result<Outcome, NodeError> {
        let NextWaiter { waiter, terms } = next;
        let (key, release) = (Arc::<str>::from(claim.key()), Request::Release { claim: Arc::clone(claim) });
        let held = locks.record(&key).and_then(|record| record.held);
        if !held.is_some_and(|held| held.token == *claim.token()) || !self.inboxes.contains(&terms.inbox) {
            return self.passing_turns(locks, &release);
        }
        let to = Arc::new(Claim::new(Arc::clone(&key), terms.token.clone()));
        let transfer = Request::Transfer { from: Arc::clone(claim), to, ttl: terms.life, fence_hint };
        // The lock is released, whether or not a number can be drawn, or the next token was withdrawn.
        let Ok((Vote::Granted, number)) = locks.apply(&transfer) else {
            return self.passing_turns(locks, &release);
        };
        let token = terms.token.random_part();
        let number = number.map_or(0, FencingToken::get);
        let mut reply = [b"o ", token, format!(" {number} {}", terms.life.as_millis()).as_bytes()].concat();
        if queued {
            locks.watch.forget_turn(&key, *waiter);
            self.terms.remove(&(Arc::clone(&key), *waiter));
            locks.apply(&Request::LeaveQueue { key: Arc::clone(&key), waiter: *waiter })?;
            if let Some(next) = self.next_in_queue(locks, &key, token) {
                reply.extend([b"\n", &*next].concat());
            }
        }
        self.send(locks, Some(terms.inbox), reply);
        Ok((Vote::Notified, None))
    }

    /// Returns the first waiter whose process has not died, and drops the others before it.
    fn first_living(&mut self, locks: &mut Locks, key: &Arc<str>) -> Result<Option<WaiterId>, NodeError> {
        for waiter in locks.waiters(key).into_iter().take(MOST_AT_ONCE) {
            match self.of(key, waiter) {
                Some(accepted) if !self.inboxes.contains(&accepted.terms.inbox) => {
                    self.terms.remove(&(Arc::clone(key), waiter));
                    locks.apply(&Request::LeaveQueue { key: Arc::clone(key), waiter })?;
                }
                Some(_) | None => return Ok(Some(waiter)),
            }
        }
        Ok(None)
    }

    /// Returns the message about the first in the queue, for an inbox; `None` if that waiter accepts no offer. Warns the
    /// second.
    fn next_in_queue(&self, locks: &mut Locks, key: &Arc<str>, to: &[u8]) -> Option<Vec<u8>> {
        let front = locks.waiters(key);
        if let Some(Accepted { terms, asked }) = front.get(1).and_then(|second| self.of(key, *second))
            && Duration::from_micros(locks.now().saturating_sub(*asked)) >= offer_renamed_after(terms.life)
        {
            let (inbox, soon) = (terms.inbox, [b"s ", terms.token.random_part()].concat());
            self.send(locks, Some(inbox), soon);
        }
        let first = front.first().and_then(|first| Some((*first, self.of(key, *first)?)));
        first.map(|(waiter, accepted)| self.next_message(locks, key, to, waiter, &accepted.terms))
    }

    /// Encodes the message about the next waiter, for the lease of this token or waiter.
    fn next_message(
        &self,
        locks: &Locks,
        key: &str,
        to: &[u8],
        waiter: WaiterId,
        terms: &OfferTerms,
    ) -> Vec<u8> {
        let seen = self.others_seen.get(key).is_some_and(|until| locks.now() < *until);
        let waiter = format!(" {waiter} {} {key} ", key.len());
        [format!("n {} ", u8::from(seen)).as_bytes(), to, waiter.as_bytes(), &terms.to_bytes()].concat()
    }

    fn send(&self, locks: &mut Locks, inbox: Option<InboxId>, message: Vec<u8>) {
        if inbox.is_some_and(|inbox| self.inboxes.contains(&inbox)) && !message.is_empty() {
            locks.watch.message(message);
        }
    }

    /// Returns the waiters for a lock that accept offers, in the order of their turns.
    pub(super) fn accepting(&self, locks: &Locks, key: &str) -> Vec<NextWaiter> {
        let key = Arc::from(key);
        let accepting = locks.waiters(&key).into_iter().filter_map(|waiter| {
            let terms = OfferTerms::clone(&self.of(&key, waiter)?.terms);
            Some(NextWaiter { waiter, terms })
        });
        accepting.collect()
    }
}
