//! Removes what can make no difference any more, so that equivalent states become equal.

use super::Lock;
use super::state::{Lease, Mail, Node, Phase, Request, State};
use crate::record::Ask;

impl<const N: usize, const K: usize> Lock<N, K> {
    pub(super) fn tidy(&self, state: &mut State<N, K>) {
        for attempt in 0..K {
            if self.cannot_succeed(state, attempt) {
                state.attempts[attempt].end();
            }
        }
        for node in &mut state.nodes {
            node.age = node.age.filter(|&age| self.world.is_quarantined(age));
            if node.age.is_none() {
                (node.forward, node.known) = (false, None);
            }
        }
        if self.world.is_literal() {
            return;
        }
        for attempt in 0..K {
            let asking = state.attempts[attempt];
            if asking.is_over() {
                state.nodes.iter_mut().for_each(|node| node.forget(attempt));
            } else if asking.lease().is_some_and(|lease| !self.may_count_more(lease)) {
                state.nodes.iter_mut().for_each(|node| node.mail[attempt] = spent());
            }
        }
    }

    /// Whether the attempt can no longer hold the lock. A lease that has ended is kept while late
    /// acknowledgements could revive it, if they were counted.
    fn cannot_succeed(&self, state: &State<N, K>, attempt: usize) -> bool {
        let asking = &state.attempts[attempt];
        let now = self.world.moment(asking.clock);
        match &asking.phase {
            Phase::Idle | Phase::Over { .. } => false,
            Phase::Voting => now >= self.world.deadline(0),
            Phase::Holding(lease) => {
                let may_revive = match lease.renewal {
                    Some(renewal) => now < self.world.deadline(renewal.sent),
                    None => false,
                };
                !self.asserts(asking) && !may_revive
            }
        }
    }

    /// Whether any further answer may count for the holder.
    fn may_count_more(&self, lease: &Lease) -> bool {
        lease.renewal.is_some() || lease.renewals < self.world.renewals
    }
}

impl<const K: usize> Node<K> {
    /// Removes all traces of the attempt.
    fn forget(&mut self, attempt: usize) {
        self.kept.ask(Ask::release(attempt));
        self.mail[attempt] = spent();
    }
}

fn spent() -> Mail {
    Mail { vote: Request::Spent, renewal: Request::Spent, late: 0 }
}
