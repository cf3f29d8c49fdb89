//! Removes what can make no difference any more, so that equivalent states become equal.

use quorlock_protocol::FencingToken;

use super::state::{self, Attempt, Kind, Mail, State, Vote};
use super::{Offer, Scheme};
use crate::clock::moment;
use crate::record::Ask;
use crate::scene::Phase;

impl<const N: usize, const K: usize> Offer<N, K> {
    pub(super) fn tidy(&self, state: &mut State<N, K>) {
        for node in &mut state.nodes {
            node.age = node.age.filter(|&age| self.world.is_young(Some(age)));
        }
        for attempt in 0..K {
            self.tidy_attempt(state, attempt);
        }
        // An attempt whose lease has ended, and that cannot offer to any other, is over. That may
        // have changed now.
        for attempt in 0..K {
            if state.attempts[attempt].phase == Phase::Ended && !self.may_offer(state, attempt) {
                state.attempts[attempt].phase = Phase::Over { held: true };
            }
            if state.attempts[attempt].is_over() {
                self.forget(state, attempt);
            }
        }
    }

    fn tidy_attempt(&self, state: &mut State<N, K>, attempt: usize) {
        let asking = &mut state.attempts[attempt];
        let is_late = moment(asking.clock) >= self.world.deadline(0, self.life(asking));
        match asking.phase {
            Phase::Voting | Phase::WritingBack if is_late => asking.phase = Phase::Over { held: false },
            Phase::Waiting { .. } if is_late => {
                if matches!(self.scheme, Scheme::NoDeadline | Scheme::FromPush) {
                    asking.clock = self.world.offer;
                } else {
                    asking.phase = Phase::Over { held: false };
                }
            }
            Phase::Holding(lease) if !self.believes(asking) => {
                let may_revive = self.counts_late(asking)
                    && lease
                        .renewal
                        .is_some_and(|sent| moment(asking.clock) < self.world.deadline(sent, self.world.ttl));
                if !may_revive {
                    asking.phase = Phase::Ended;
                }
            }
            Phase::Ended => {}
            Phase::Idle
            | Phase::Voting
            | Phase::Waiting { .. }
            | Phase::WritingBack
            | Phase::Holding(_)
            | Phase::Over { .. } => return,
        }
        let asking = &mut state.attempts[attempt];
        if matches!(asking.phase, Phase::Ended | Phase::Over { .. }) {
            (asking.clock, asking.behind) = (0, 0);
            (asking.own.floor, asking.own.hint) = (FencingToken::ZERO, FencingToken::ZERO);
        }
    }

    /// Whether the keys of an attempt whose lease has ended may still have an effect.
    fn may_offer(&self, state: &State<N, K>, attempt: usize) -> bool {
        let asking = &state.attempts[attempt];
        let literal = self.world.is_literal();
        let takes = |other: (usize, &Attempt)| {
            other.0 != attempt && other.1.own.kind == Kind::Waiter && !other.1.is_over()
        };
        let is_wanted = literal || state.attempts.iter().enumerate().any(takes);
        let anywhere = matches!(self.scheme, Scheme::AbsentToo | Scheme::AnyKey);
        let has_key =
            state.nodes.iter().any(|node| node.kept[0].is_of(attempt) || !node.mail[attempt].is_quiet());
        asking.own.kind != Kind::Plain && is_wanted && (has_key || anywhere)
    }

    /// Removes all traces of the attempt that could count.
    fn forget(&self, state: &mut State<N, K>, attempt: usize) {
        let asking = &mut state.attempts[attempt];
        *asking = Attempt { phase: asking.phase, ..state::attempt(asking.own.kind) };
        for node in &mut state.nodes {
            let asked = node.mail[attempt].vote == Vote::Asked && self.world.is_literal();
            let (vote, unnumbered) =
                (if asked { Vote::Asked } else { Vote::None }, node.mail[attempt].unnumbered);
            node.mail[attempt] = Mail { vote, unnumbered, ..Mail::default() };
            if !self.world.is_literal() {
                node.kept[0].apply(Ask::release(attempt));
            }
        }
    }
}
