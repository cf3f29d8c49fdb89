//! The possible steps.

use quorlock_protocol::FencingToken;

use super::rules::write_back;
use super::state::{Attempt, Kind, Lease, Phase, Renewal, State, Vote};
use super::{Clocks, Fencing, Offer, Scheme, Start, Step};
use crate::record::Reply;

impl<const N: usize, const K: usize> Offer<N, K> {
    /// Returns the initial states. If the first attempt holds the lock, it has its number from the
    /// counters of a quorum; the other counters are arbitrary, and counters may be ahead, because
    /// refused requests may raise them.
    pub(super) fn starts(&self) -> Vec<State<N, K>> {
        let free = State::new(self.kinds);
        if self.world.start == Start::Free {
            return vec![free];
        }
        let stored = [self.quorum.needed(), N];
        stored.into_iter().flat_map(|stored| self.held(free, stored)).collect()
    }

    /// The first attempt holds the lock on `stored` nodes.
    fn held(&self, free: State<N, K>, stored: usize) -> Vec<State<N, K>> {
        let mut state = free;
        state.attempts[0].phase = Phase::Holding(Lease {
            until: self.world.deadline(0, self.world.ttl),
            renewals: 0,
            renewal: None,
            interrupted: false,
        });
        let vote = self.vote_of(&state.attempts[0], 0);
        for (index, node) in state.nodes.iter_mut().enumerate() {
            if index < stored {
                node.kept.ask(vote);
            } else {
                node.mail[0].vote = Vote::Asked;
            }
        }
        if self.world.fencing == Fencing::Without {
            return vec![state];
        }
        let number = |number| FencingToken::new(number).unwrap_or(FencingToken::MAX);
        (state.attempts[0].number, state.largest) = (number(1), number(1));
        let raise = |ahead: usize| {
            let mut state = state;
            for (index, node) in state.nodes.iter_mut().enumerate() {
                // From the last node on, so that nodes without a key come first.
                if index + ahead >= N {
                    node.kept = node.kept.with(|record| record.counter = 2);
                }
            }
            if self.world.fencing == Fencing::Calendars {
                state.calendar =
                    state.nodes.iter().map(|node| node.kept.counter()).max().unwrap_or(state.largest);
            }
            state
        };
        (0..=N).map(raise).collect()
    }

    pub(super) fn possible(&self, state: &State<N, K>, steps: &mut Vec<Step>) {
        let is_done = |one: &Attempt| one.is_over() || (one.kind == Kind::Waiter && one.phase == Phase::Idle);
        // No attempt is left that could offer anything.
        if state.attempts.iter().all(is_done) {
            return;
        }
        if self.world.clocks == Clocks::Running {
            steps.push(Step::Tick { missed_by: None });
        }
        for (node, there) in state.nodes.iter().enumerate() {
            let has_clock = !there.kept.is_free() || there.age.is_some();
            if there.ahead < self.world.nodes_ahead && has_clock {
                steps.push(Step::RunAhead { node });
            }
            // Without a key there is nothing to lose.
            let Some(holder) = there.kept.holder() else { continue };
            if state.restarts < self.world.restarts {
                steps.push(Step::Restart { node });
            }
            if state.reminders < self.world.reminders && state.attempts[holder].is_waiting() {
                steps.push(Step::Remind { node });
            }
            if self.world.clocks == Clocks::None {
                steps.push(Step::Vanish { node });
            }
        }
        for (attempt, asking) in state.attempts.iter().enumerate() {
            if asking.is_running() && asking.behind < self.world.attempts_behind {
                steps.push(Step::Tick { missed_by: Some(attempt) });
            }
            self.decisions_possible(state, attempt, steps);
            for node in 0..N {
                self.requests_possible(state, attempt, node, steps);
                self.renewals_possible(state, attempt, node, steps);
                self.offers_possible(state, attempt, node, steps);
            }
        }
    }

    fn decisions_possible(&self, state: &State<N, K>, attempt: usize, steps: &mut Vec<Step>) {
        let (asking, literal) = (&state.attempts[attempt], self.world.is_literal());
        if self.world.fencing != Fencing::Without && self.has_quorum(state, attempt) {
            steps.push(Step::Decide { attempt });
        }
        match asking.phase {
            Phase::Idle if literal && asking.kind == Kind::Waiter => steps.push(Step::Question { attempt }),
            Phase::Waiting { given_back } => {
                if self.scheme == Scheme::OneToken && asking.clock > 0 {
                    steps.push(Step::AskAgain { attempt });
                }
                if literal && !given_back {
                    steps.push(Step::End { attempt });
                }
            }
            Phase::Asking | Phase::WritingBack if literal => steps.push(Step::End { attempt }),
            Phase::Holding(_) => steps.push(Step::End { attempt }),
            Phase::Idle | Phase::Asking | Phase::WritingBack | Phase::Ended | Phase::Over { .. } => {}
        }
    }

    fn requests_possible(&self, state: &State<N, K>, attempt: usize, node: usize, steps: &mut Vec<Step>) {
        let (there, asking) = (&state.nodes[node], &state.attempts[attempt]);
        let vote = there.mail[attempt].vote;
        let begins = asking.phase == Phase::Idle && asking.kind != Kind::Waiter;
        if (begins || vote == Vote::Asked)
            && !there.kept.is_of(attempt)
            && there.kept.would(self.vote_of(asking, attempt)) == Reply::Granted
        {
            steps.push(Step::Vote { attempt, node });
        }
        if matches!(vote, Vote::Pushed(_)) {
            steps.push(Step::Push { attempt, node });
        }
        if self.scheme == Scheme::Forged && asking.is_waiting() && vote.count() == 0 {
            steps.push(Step::Forge { attempt, node });
        }
        if asking.phase == Phase::WritingBack
            && vote != Vote::Carries
            && there.kept.would(write_back(asking, attempt)) == Reply::Granted
        {
            steps.push(Step::WriteBack { attempt, node });
        }
        let gives_back = match asking.phase {
            Phase::Ended | Phase::Over { .. } => true,
            Phase::Waiting { given_back } => given_back,
            Phase::Idle | Phase::Asking | Phase::WritingBack | Phase::Holding(_) => false,
        };
        if gives_back && there.kept.is_of(attempt) {
            steps.push(Step::Release { attempt, node });
        }
    }

    fn renewals_possible(&self, state: &State<N, K>, attempt: usize, node: usize, steps: &mut Vec<Step>) {
        let (there, asking) = (&state.nodes[node], &state.attempts[attempt]);
        let arrives = || {
            let reply = there.kept.would(self.renewal_of(asking, attempt));
            matches!(reply, Reply::Granted | Reply::Restored)
        };
        if there.mail[attempt].renewal == Renewal::Unarrived && arrives() {
            steps.push(Step::Renewal { attempt, node });
        }
        let may_renew = |lease: &Lease| lease.renewals < self.world.renewals && self.believes(asking);
        if asking.lease().is_some_and(may_renew) && arrives() {
            steps.push(Step::NewRenewal { attempt, node });
        }
    }

    fn offers_possible(&self, state: &State<N, K>, attempt: usize, node: usize, steps: &mut Vec<Step>) {
        let (there, asking) = (&state.nodes[node], &state.attempts[attempt]);
        let may_offer = match asking.phase {
            Phase::Ended => true,
            Phase::Holding(_) => !self.world.is_literal() || self.scheme == Scheme::UntilAnswered,
            Phase::Idle | Phase::Asking | Phase::Waiting { .. } | Phase::WritingBack | Phase::Over { .. } => {
                false
            }
        };
        if asking.kind == Kind::Plain || !may_offer || there.mail[attempt].offered {
            return;
        }
        for (to, waiter) in state.attempts.iter().enumerate() {
            let stores = match there.kept.holder() {
                Some(holder) if holder == attempt => true,
                Some(holder) => self.scheme == Scheme::AnyKey && holder != to,
                None => matches!(self.scheme, Scheme::AbsentToo | Scheme::AnyKey),
            };
            let is_public = match waiter.phase {
                Phase::Idle | Phase::Over { .. } => self.world.is_literal() != (waiter.phase == Phase::Idle),
                Phase::Asking
                | Phase::Waiting { .. }
                | Phase::WritingBack
                | Phase::Holding(_)
                | Phase::Ended => true,
            };
            if stores && is_public && waiter.kind == Kind::Waiter && to != attempt {
                steps.push(Step::Offer { attempt, to, node });
            }
        }
    }
}
