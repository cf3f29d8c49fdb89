//! To whom a holder may offer its lock: the first waiter in the queue of each lock, of which a node has notified it.
//!
//! A lock is offered only to a waiter whose terms are recent, and only for the lease of which the node spoke: that which
//! stored the token, or that of the waiter whose turn it was, once it has acquired the lock.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{InboxId, Moment, NextWaiter, Token, WaiterId, is_fresh};

/// The waiter to which a lock may be offered.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the engine fills it in")]
pub struct Next {
    /// With its terms.
    pub waiter: Arc<NextWaiter>,
    /// The node that keeps the queue.
    pub home: usize,
    /// The lease it is for: the random part of its token, or the id of the waiter whose turn it is.
    pub to: Box<[u8]>,
    /// When the message came.
    pub received: Moment,
    /// Whether a waiter has seen a holder that is not in the queue.
    pub others_seen: bool,
}

/// The first waiter for each lock that a process holds or is about to acquire.
#[derive(Debug, Default)]
pub struct NextWaiters {
    by_key: HashMap<Arc<str>, Next>,
}

/// The most locks for which the next waiter is remembered, unless more than these are recent.
const MOST: usize = 1024;

impl NextWaiters {
    /// Records the first waiter for the lock at `key`, in place of the one before.
    pub fn note(&mut self, key: &Arc<str>, next: Next, now: Moment) {
        if self.by_key.len() >= MOST {
            self.by_key.retain(|_, next| next.is_fresh(now));
        }
        self.by_key.insert(key.clone(), next);
    }

    /// Records that the `waiter` whose turn it was has acquired the lock at `key` with this `token`.
    pub fn acquired(&mut self, key: &str, waiter: WaiterId, token: &Token) {
        if let Some(next) = self.by_key.get_mut(key)
            && *next.to == *waiter.to_string().as_bytes()
        {
            next.to = token.random_part().into();
        }
    }

    /// Takes the waiter to which to offer the lock at `key`, held with `token`, if it can still accept in time. The next
    /// holder is notified of its successor again. `inbox` is ours.
    pub fn take(
        &mut self,
        key: &str,
        token: &Token,
        inbox: InboxId,
        now: impl FnOnce() -> Moment,
    ) -> Option<Next> {
        let next = self.by_key.remove(key)?;
        // Our own request may have reached the queue after the offer that we accepted.
        let is_for_us = *next.to == *token.random_part() && next.waiter.terms.inbox != inbox;
        (is_for_us && next.is_fresh(now())).then_some(next)
    }
}

impl Next {
    fn is_fresh(&self, now: Moment) -> bool {
        is_fresh(now.since(self.received), self.waiter.terms.life)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::OfferTerms;

    const LIFE: Duration = Duration::from_millis(1200);

    fn next(to: &[u8]) -> Next {
        let (inbox, token) = (InboxId::new(2), Token::new(5, ""));
        let terms = OfferTerms { inbox, prefix_len: 0, life: LIFE, fenced: false, token };
        let waiter = Arc::new(NextWaiter { waiter: WaiterId::new(7), terms });
        Next { waiter, home: 0, to: to.into(), received: Moment::ORIGIN, others_seen: false }
    }

    fn taken(mut next: NextWaiters, token: &Token, inbox: InboxId, now: Moment) -> bool {
        let is_offered = next.take("r", token, inbox, || now).is_some();
        assert!(next.take("r", token, inbox, || now).is_none(), "an offer is made once");
        is_offered
    }

    #[test]
    fn a_lock_is_offered_for_the_lease_of_which_the_node_spoke() {
        let (ours, now) = (InboxId::new(1), Moment::ORIGIN);
        let (token, other) = (Token::new(3, ""), Token::new(4, ""));
        let noted = |to: &[u8]| {
            let mut next_waiters = NextWaiters::default();
            next_waiters.note(&"r".into(), next(to), now);
            next_waiters
        };
        assert!(taken(noted(token.random_part()), &token, ours, now));
        assert!(!taken(noted(token.random_part()), &other, ours, now));
        assert!(!taken(noted(token.random_part()), &token, InboxId::new(2), now), "it is one of our own");
        let last = now + LIFE * 8;
        assert!(!taken(noted(token.random_part()), &token, ours, last), "its terms are old");

        let mut in_turn = noted(WaiterId::new(9).to_string().as_bytes());
        in_turn.acquired("r", WaiterId::new(9), &other);
        in_turn.acquired("r", WaiterId::new(8), &token);
        assert!(taken(in_turn, &other, ours, now));
    }

    #[test]
    fn old_waiters_are_forgotten() {
        let mut next_waiters = NextWaiters::default();
        for lock in 0..MOST {
            next_waiters.note(&lock.to_string().into(), next(b"1"), Moment::ORIGIN);
        }
        let later = Moment::ORIGIN + LIFE * 8;
        next_waiters.note(&"r".into(), Next { received: later, ..next(b"1") }, later);
        assert_eq!(next_waiters.by_key.len(), 1);
    }
}
