//! The possible steps and their effects.

use std::time::Duration;

use quorlock_protocol::{FenceHint, FenceVotes, FencingToken};

use super::state::{Attempt, Mail, Node, Phase, State, Vote, Way, WriteBack};
use super::{Fence, Scheme, Step, token};
use crate::common::{Answer, is_won};

/// The possible steps.
impl<const N: usize, const K: usize> Fence<N, K> {
    pub(super) fn possible(&self, state: &State<N, K>, steps: &mut Vec<Step>) {
        let literal = self.world.is_literal();
        if !literal && !state.attempts.iter().any(Attempt::is_open) {
            return;
        }
        if state.now < self.world.ticks {
            steps.push(Step::Tick);
        }
        let matters = |node: &Node<K>| literal || state.awaits(node);
        for (node, there) in state.nodes.iter().enumerate().filter(|(_, there)| matters(there)) {
            if state.restarts < self.world.restarts && there.counter > FencingToken::ZERO {
                steps.push(Step::Restart { node });
            }
            // Only votes read the clock.
            let awaits_vote = there.mail.iter().any(|mail| mail.vote == Vote::Unarrived);
            if state.clock_steps < self.world.clock_steps && awaits_vote {
                steps.push(Step::SetClock { node });
            }
            if state.raises < self.world.raises {
                steps.push(Step::Raise { node });
            }
        }
        for (attempt, asking) in state.attempts.iter().enumerate() {
            if asking.phase == Phase::Idle && (self.world.has_time() || literal) {
                steps.push(Step::Begin { attempt });
                continue;
            }
            let counted = |node: &Node<K>| node.counted(attempt).is_some();
            if asking.phase == Phase::Voting && self.is_carried(&state.nodes, counted) {
                steps.push(Step::Decide { attempt });
            }
            for node in (0..N).filter(|node| matters(&state.nodes[*node])) {
                self.votes_possible(state, attempt, node, steps);
                self.write_backs_possible(state, attempt, node, steps);
            }
        }
    }

    fn votes_possible(&self, state: &State<N, K>, attempt: usize, node: usize, steps: &mut Vec<Step>) {
        let (there, asking) = (&state.nodes[node], &state.attempts[attempt]);
        if there.mail[attempt].vote != Vote::Unarrived {
            return;
        }
        let waits = matches!(asking.phase, Phase::Idle | Phase::Voting);
        let may_raise = waits && state.raises < self.world.raises;
        if may_raise && self.raised(state, attempt, node).is_some() {
            steps.push(Step::Refuse { attempt, node });
        }
        if waits && !self.world.is_quarantined(there.restarted, asking.sent) {
            steps.push(Step::Vote { attempt, node, answer: Answer::Heard });
        }
        steps.push(Step::Vote { attempt, node, answer: Answer::Unheard });
    }

    fn write_backs_possible(&self, state: &State<N, K>, attempt: usize, node: usize, steps: &mut Vec<Step>) {
        let (there, asking) = (&state.nodes[node], &state.attempts[attempt]);
        let is_due = there.mail[attempt].write_back == WriteBack::Unarrived;
        if is_due && asking.writes_back().is_some_and(|token| self.confirms(there, token)) {
            steps.push(Step::WriteBack { attempt, node, answer: Answer::Heard });
            if self.world.is_literal() {
                steps.push(Step::WriteBack { attempt, node, answer: Answer::Unheard });
            }
        }
    }
}

/// The effects.
impl<const N: usize, const K: usize> Fence<N, K> {
    pub(super) fn after(&self, state: &State<N, K>, step: Step) -> State<N, K> {
        let mut state = *state;
        match step {
            Step::Tick => state.now += 1,
            Step::Restart { node } => {
                state.restarts += 1;
                let there = &mut state.nodes[node];
                (there.counter, there.restarted) = (FencingToken::ZERO, Some(state.now));
            }
            Step::SetClock { node } => {
                state.clock_steps += 1;
                state.nodes[node].ahead = if state.nodes[node].ahead > 0 { 0 } else { self.world.clock_step };
            }
            Step::Raise { node } => {
                state.raises += 1;
                let counter = &mut state.nodes[node].counter;
                *counter = token(counter.get() + 1);
            }
            Step::Begin { attempt } => begin(&mut state, attempt),
            Step::Vote { attempt, node, answer } => {
                if state.attempts[attempt].phase == Phase::Idle {
                    begin(&mut state, attempt);
                }
                self.vote(&mut state, attempt, node, answer);
            }
            Step::Refuse { attempt, node } => {
                state.raises += 1;
                let raised = self.raised(&state, attempt, node);
                if state.attempts[attempt].phase == Phase::Idle {
                    begin(&mut state, attempt);
                }
                state.nodes[node].counter = raised.unwrap_or(state.nodes[node].counter);
            }
            Step::Decide { attempt } => self.decide(&mut state, attempt),
            Step::WriteBack { attempt, node, answer } => self.write_back(&mut state, attempt, node, answer),
        }
        self.tidy(&mut state);
        state
    }

    fn clock_of(&self, now: u8, node: &Node<K>) -> Duration {
        self.world.wall(now + node.ahead)
    }

    /// Returns the counter after a request without a script, if that raises it: whether the key was free or not.
    fn raised(&self, state: &State<N, K>, attempt: usize, node: usize) -> Option<FencingToken> {
        let asking = &state.attempts[attempt];
        let sent = if asking.phase == Phase::Idle { state.now } else { asking.sent };
        let draw = self.draw(sent + asking.ahead);
        let there = &state.nodes[node];
        let raised = draw.usual() > there.counter && draw.is_within(self.clock_of(state.now, there));
        raised.then(|| draw.usual())
    }

    fn draw(&self, clock: u8) -> FenceHint {
        FenceHint::at(self.world.wall(clock), None, self.world.wall(self.world.lead))
    }

    fn vote(&self, state: &mut State<N, K>, attempt: usize, node: usize, answer: Answer) {
        let Attempt { ahead, sent, .. } = state.attempts[attempt];
        let draw = self.draw(sent + ahead);
        let wall = self.clock_of(state.now, &state.nodes[node]);
        let there = &mut state.nodes[node];
        let Ok(number) = draw.from(there.counter, wall) else { return };
        there.counter = number;
        there.mail[attempt].vote = match answer {
            Answer::Heard => Vote::Counted(number),
            Answer::Unheard => Vote::Spent,
        };
    }

    /// Like `machine::Attempt::decide` in the library.
    fn decide(&self, state: &mut State<N, K>, attempt: usize) {
        let Some(drawn) = FenceVotes::of(state.nodes.iter().filter_map(|node| node.counted(attempt))) else {
            return;
        };
        let is_final = drawn.stands(self.quorum) || self.scheme == Scheme::NoWriteBack;
        for node in &mut state.nodes {
            let mail = &mut node.mail[attempt];
            mail.spend_vote();
            if is_final {
                mail.write_back = WriteBack::Spent;
            }
        }
        let token = if is_final { drawn.token() } else { drawn.next() };
        if is_final {
            hand_out(&mut state.attempts[attempt], token, Way::Drawn);
        } else {
            state.attempts[attempt].phase = Phase::WritingBack { sent: state.now, token };
        }
    }

    fn write_back(&self, state: &mut State<N, K>, attempt: usize, node: usize, answer: Answer) {
        let asking = state.attempts[attempt];
        let Some(token) = asking.writes_back() else { return };
        let there = &mut state.nodes[node];
        there.counter = there.counter.max(token);
        there.mail[attempt].write_back = match (answer, asking.phase) {
            (Answer::Heard, Phase::WritingBack { sent, .. })
                if !self.world.is_quarantined(there.restarted, sent) =>
            {
                WriteBack::Acknowledged
            }
            (Answer::Heard | Answer::Unheard, _) => WriteBack::Spent,
        };
        let counts = |node: &Node<K>| node.mail[attempt].write_back == WriteBack::Acknowledged;
        if asking.is_open() && self.is_carried(&state.nodes, counts) {
            hand_out(&mut state.attempts[attempt], token, Way::WrittenBack);
        }
    }

    /// Whether a node would confirm this number.
    pub(super) fn confirms(&self, node: &Node<K>, token: FencingToken) -> bool {
        match self.scheme {
            Scheme::Quorlock => token > node.counter,
            Scheme::EqualConfirms => token >= node.counter,
            Scheme::AnyNodeConfirms => true,
            Scheme::NoWriteBack => false,
        }
    }

    /// Whether the granting nodes are a quorum.
    pub(super) fn is_carried(&self, nodes: &[Node<K>; N], grants: impl Fn(&Node<K>) -> bool) -> bool {
        is_won(self.quorum, nodes.iter().filter(|node| grants(node)).count())
    }
}

impl<const K: usize> Node<K> {
    pub(super) fn counted(&self, attempt: usize) -> Option<FencingToken> {
        match self.mail[attempt].vote {
            Vote::Counted(number) => Some(number),
            Vote::Unarrived | Vote::Spent => None,
        }
    }
}

impl<const N: usize, const K: usize> State<N, K> {
    /// Whether the node's answers matter to an attempt that may still return.
    fn awaits(&self, node: &Node<K>) -> bool {
        let is_due = |mail: &Mail| mail.write_back == WriteBack::Unarrived;
        self.attempts.iter().zip(&node.mail).any(|(asking, mail)| asking.is_open() && is_due(mail))
    }
}

impl Mail {
    pub(super) fn spend_vote(&mut self) {
        if let Vote::Counted(_) = self.vote {
            self.vote = Vote::Spent;
        }
    }
}

fn begin<const N: usize, const K: usize>(state: &mut State<N, K>, attempt: usize) {
    let largest = state.attempts.iter().filter_map(Attempt::returned).max();
    let asking = &mut state.attempts[attempt];
    asking.sent = state.now;
    asking.floor = largest.unwrap_or(FencingToken::ZERO);
    asking.phase = Phase::Voting;
}

fn hand_out(asking: &mut Attempt, token: FencingToken, by: Way) {
    asking.phase = Phase::Returned { token, by };
    if token > asking.floor {
        // The order was kept, so the floor no longer matters.
        asking.floor = FencingToken::ZERO;
    }
}
