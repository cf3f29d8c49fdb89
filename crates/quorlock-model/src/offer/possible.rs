//! The possible steps.

use quorlock_protocol::FencingToken;

use super::state::{Attempt, Kind, Node, Past, Renewal, State, Vote, attempt};
use super::{Act, Offer, Scheme, Step};
use crate::common::Answer;
use crate::record::Reply;
use crate::scene::{Lease, Phase};
use crate::world::{Clocks, Fencing, Start};

impl<const N: usize, const K: usize> Offer<N, K> {
    /// Returns the initial states. If the first attempt holds the lock, it has its number from the
    /// counters of a quorum; the other counters are arbitrary, and counters may be ahead, because
    /// refused requests may raise them.
    pub(super) fn starts(&self) -> Vec<State<N, K>> {
        let past =
            Past { restarts: 0, reminders: 0, largest: FencingToken::ZERO, calendar: FencingToken::ZERO };
        let free = State { past, nodes: [Node::new(); N], attempts: self.kinds.map(attempt) };
        if self.world.start == Start::Free {
            return vec![free];
        }
        let stored = [self.quorum.needed(), N];
        stored.into_iter().flat_map(|stored| self.held(free, stored)).collect()
    }

    /// The first attempt holds the lock on `stored` nodes.
    fn held(&self, free: State<N, K>, stored: usize) -> Vec<State<N, K>> {
        let mut state = free;
        state.attempts[0].phase = Phase::Holding(Lease::new(self.world.deadline(0, self.world.ttl)));
        let vote = self.vote_of(&state.attempts[0], 0);
        for (index, node) in state.nodes.iter_mut().enumerate() {
            if index < stored {
                node.kept[0].apply(vote);
            } else {
                node.mail[0].vote = Vote::Asked;
            }
        }
        if self.world.fencing == Fencing::Without {
            return vec![state];
        }
        let number = |number| FencingToken::new(number).unwrap_or(FencingToken::MAX);
        (state.attempts[0].own.number, state.past.largest) = (number(1), number(1));
        let raise = |ahead: usize| {
            let mut state = state;
            for (index, node) in state.nodes.iter_mut().enumerate() {
                // From the last node on, so that nodes without a key come first.
                if index + ahead >= N {
                    node.kept[0] = node.kept[0].with(|record| record.counter = 2);
                }
            }
            if self.world.fencing == Fencing::Calendars {
                state.past.calendar =
                    state.nodes.iter().map(|node| node.kept[0].counter()).max().unwrap_or(state.past.largest);
            }
            state
        };
        (0..=N).map(raise).collect()
    }

    pub(super) fn possible(&self, state: &State<N, K>, steps: &mut Vec<Step>) {
        let is_done =
            |one: &Attempt| one.is_over() || (one.own.kind == Kind::Waiter && one.phase == Phase::Idle);
        // No attempt is left that could offer anything.
        if state.attempts.iter().all(is_done) {
            return;
        }
        if self.world.clocks == Clocks::Running {
            steps.push(Step::Tick { missed_by: None });
        }
        for (node, there) in state.nodes.iter().enumerate() {
            if there.ahead < self.world.nodes_ahead && there.has_clock() {
                steps.push(Step::RunAhead { node });
            }
            // Without a key there is nothing to lose.
            let Some(holder) = there.kept[0].holder() else { continue };
            if state.past.restarts < self.world.restarts {
                steps.push(Step::Restart { node });
            }
            if state.past.reminders < self.world.reminders && state.attempts[holder].is_waiting() {
                steps.push(Step::Own(Act::Remind { node }));
            }
            if self.world.clocks == Clocks::None {
                steps.push(Step::Own(Act::Vanish { node }));
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
            steps.push(Step::Own(Act::Decide { attempt }));
        }
        match asking.phase {
            Phase::Idle if literal && asking.own.kind == Kind::Waiter => {
                steps.push(Step::Own(Act::Question { attempt }));
            }
            Phase::Waiting { given_back } => {
                if self.scheme == Scheme::OneToken && asking.clock > 0 {
                    steps.push(Step::Own(Act::AskAgain { attempt }));
                }
                if literal && !given_back {
                    steps.push(Step::End { attempt });
                }
            }
            Phase::Voting | Phase::WritingBack if literal => steps.push(Step::End { attempt }),
            Phase::Holding(_) => steps.push(Step::End { attempt }),
            Phase::Idle | Phase::Voting | Phase::WritingBack | Phase::Ended | Phase::Over { .. } => {}
        }
    }

    fn requests_possible(&self, state: &State<N, K>, attempt: usize, node: usize, steps: &mut Vec<Step>) {
        let (there, asking) = (&state.nodes[node], &state.attempts[attempt]);
        let vote = there.mail[attempt].vote;
        let begins = asking.phase == Phase::Idle && asking.own.kind != Kind::Waiter;
        if (begins || vote == Vote::Asked)
            && !there.kept[0].is_of(attempt)
            && there.kept[0].would(self.vote_of(asking, attempt)) == Reply::Granted
        {
            steps.push(Step::Vote { attempt, node, answer: Answer::Heard });
        }
        if there.mail[attempt].unnumbered {
            steps.push(Step::Own(Act::Draw { attempt, node }));
        }
        if matches!(vote, Vote::Pushed(_)) {
            steps.push(Step::Own(Act::Push { attempt, node }));
        }
        if self.scheme == Scheme::Forged && asking.is_waiting() && vote.count() == 0 {
            steps.push(Step::Own(Act::Forge { attempt, node }));
        }
        if asking.phase == Phase::WritingBack
            && vote != Vote::Carries
            && self.carries(there.kept[0], asking, attempt)
        {
            steps.push(Step::Own(Act::WriteBack { attempt, node }));
        }
        let gives_back =
            matches!(asking.phase, Phase::Ended | Phase::Over { .. } | Phase::Waiting { given_back: true });
        if gives_back && there.kept[0].is_of(attempt) {
            steps.push(Step::Release { attempt, node });
        }
    }

    fn renewals_possible(&self, state: &State<N, K>, attempt: usize, node: usize, steps: &mut Vec<Step>) {
        let (there, asking) = (&state.nodes[node], &state.attempts[attempt]);
        let arrives = || {
            let reply = there.kept[0].would(self.renewal_of(asking, attempt));
            matches!(reply, Reply::Granted | Reply::Restored)
        };
        if there.mail[attempt].renewal == Renewal::Unarrived && arrives() {
            steps.push(Step::Renewal { attempt, node, answer: Answer::Heard });
        }
        let may_renew = |lease: &Lease| lease.renewals < self.world.renewals && self.believes(asking);
        if asking.lease().is_some_and(may_renew) && arrives() {
            steps.push(Step::NewRenewal { attempt, node });
        }
    }

    fn offers_possible(&self, state: &State<N, K>, attempt: usize, node: usize, steps: &mut Vec<Step>) {
        let (there, asking) = (&state.nodes[node], &state.attempts[attempt]);
        let ends_first = !self.world.is_literal() || self.scheme == Scheme::UntilAnswered;
        let may_offer = asking.phase == Phase::Ended || (asking.lease().is_some() && ends_first);
        if asking.own.kind == Kind::Plain || !may_offer || there.mail[attempt].offered {
            return;
        }
        for (to, waiter) in state.attempts.iter().enumerate() {
            let stores = match there.kept[0].holder() {
                Some(holder) if holder == attempt => true,
                Some(holder) => self.scheme == Scheme::AnyKey && holder != to,
                None => matches!(self.scheme, Scheme::AbsentToo | Scheme::AnyKey),
            };
            let is_public =
                if self.world.is_literal() { waiter.phase != Phase::Idle } else { !waiter.is_over() };
            if stores && is_public && waiter.own.kind == Kind::Waiter && to != attempt {
                steps.push(Step::Own(Act::Offer { attempt, to, node }));
            }
        }
    }
}
