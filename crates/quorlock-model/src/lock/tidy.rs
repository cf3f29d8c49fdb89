//! Removes what can make no difference any more, so that equivalent states become equal.

use super::Lock;
use super::rules::end;
use super::state::{Mail, Node, Process, Request, State};
use crate::record::Ask;
use crate::scene::{Lease, Phase};

impl<const N: usize, const K: usize> Lock<N, K> {
    pub(super) fn tidy(&self, state: &mut State<N, K>) {
        for attempt in 0..K {
            if self.cannot_succeed(state, attempt) {
                end(&mut state.attempts[attempt]);
            }
        }
        for node in &mut state.nodes {
            node.age = node.age.filter(|&age| self.world.is_young(Some(age)));
            if node.age.is_none() {
                node.own = Process { remembers: node.own.remembers, ..Process::default() };
            }
        }
        if self.world.is_literal() {
            return;
        }
        for attempt in 0..K {
            let asking = state.attempts[attempt];
            if asking.is_over() {
                state.nodes.iter_mut().for_each(|node| forget(node, attempt));
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
            Phase::Voting => now >= self.deadline(0),
            Phase::Holding(lease) => {
                let may_revive = lease.renewal.is_some_and(|sent| now < self.deadline(sent));
                !self.asserts(asking) && !may_revive
            }
            Phase::Idle | Phase::Waiting { .. } | Phase::WritingBack | Phase::Ended | Phase::Over { .. } => {
                false
            }
        }
    }

    /// Whether any further answer may count for the holder.
    fn may_count_more(&self, lease: &Lease) -> bool {
        lease.renewal.is_some() || lease.renewals < self.world.renewals
    }
}

/// Removes all traces of the attempt.
fn forget<const K: usize>(node: &mut Node<K>, attempt: usize) {
    node.kept[0].apply(Ask::release(attempt));
    node.mail[attempt] = spent();
}

fn spent() -> Mail {
    Mail { vote: Request::Spent, renewal: Request::Spent, late: 0 }
}
