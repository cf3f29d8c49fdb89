//! The effects of steps.

use quorlock_protocol::{FenceVotes, FencingToken, Moment, Term};

use super::state::{Attempt, Kind, Mail, Node, Renewal, State, Vote};
use super::{Act, Offer, Scheme, Step};
use crate::clock::{moment, renewed};
use crate::common::is_won;
use crate::record::{Ask, Kept, Reply, What};
use crate::scene::{Lease, Phase};
use crate::world::{Clocks, Fencing};

impl<const N: usize, const K: usize> Offer<N, K> {
    pub(super) fn after(&self, state: &State<N, K>, step: Step) -> State<N, K> {
        let mut state = *state;
        match step {
            Step::Tick { missed_by } => state.tick(missed_by),
            Step::RunAhead { node } => {
                state.nodes[node].ahead += 1;
                state.nodes[node].tick();
            }
            Step::Restart { node } => {
                state.past.restarts += 1;
                let there = &mut state.nodes[node];
                (there.kept, there.age) = ([Kept::nothing()], Some(0));
                there.mail.iter_mut().for_each(|mail| mail.unnumbered = false);
            }
            Step::Vote { attempt, node, .. } => self.vote(&mut state, attempt, node),
            Step::Renew { attempt } => renew(&mut state, attempt),
            Step::NewRenewal { attempt, node } => {
                renew(&mut state, attempt);
                self.renewal(&mut state, attempt, node);
            }
            Step::Renewal { attempt, node, .. } => self.renewal(&mut state, attempt, node),
            Step::End { attempt } => self.end(&mut state, attempt),
            Step::Release { attempt, node } => state.nodes[node].kept[0].apply(Ask::release(attempt)),
            Step::Own(act) => self.act(&mut state, act),
        }
        state.note_interruptions(|state, one, other| {
            let runs = self.world.clocks == Clocks::Running;
            runs && self.is_other(state, one, other) && self.believes(&state.attempts[other])
        });
        self.tidy(&mut state);
        state
    }

    fn act(&self, state: &mut State<N, K>, act: Act) {
        match act {
            Act::Remind { node } => {
                state.past.reminders += 1;
                let [kept] = state.nodes[node].kept;
                if let Some(holder) = kept.holder() {
                    self.push(state, holder, node, kept.counter());
                }
            }
            Act::Vanish { node } => {
                let kept = &mut state.nodes[node].kept[0];
                kept.holder().into_iter().for_each(|holder| kept.apply(Ask::release(holder)));
            }
            Act::Question { attempt } => ask(state, attempt),
            Act::AskAgain { attempt } => state.attempts[attempt].clock = 0,
            Act::Offer { attempt, to, node } => self.offer(state, attempt, to, node),
            Act::Push { attempt, node } => {
                if let Vote::Pushed(number) = state.nodes[node].mail[attempt].vote {
                    state.nodes[node].mail[attempt].vote = Vote::None;
                    self.hear(state, attempt, node, number);
                }
            }
            Act::Forge { attempt, node } => self.hear(state, attempt, node, FencingToken::ZERO),
            Act::Draw { attempt, node } => self.draw(state, attempt, node),
            Act::Decide { attempt } => self.decide(state, attempt),
            Act::WriteBack { attempt, node } => self.write_back(state, attempt, node),
        }
    }

    /// Whether the attempt may act as the holder, decided by [`Term`](quorlock_protocol::Term) as
    /// in the library.
    pub(super) fn believes(&self, attempt: &Attempt) -> bool {
        let never_ends = self.world.clocks == Clocks::None && attempt.lease().is_some();
        never_ends || attempt.asserts()
    }

    /// A plain request for a vote arrives.
    fn vote(&self, state: &mut State<N, K>, attempt: usize, node: usize) {
        if state.attempts[attempt].phase == Phase::Idle {
            ask(state, attempt);
        }
        let vote = self.vote_of(&state.attempts[attempt], attempt);
        let there = &mut state.nodes[node];
        there.mail[attempt].vote = Vote::None;
        if self.scheme == Scheme::TwoCommands && !self.world.is_young(there.age) {
            there.kept[0].apply(vote.numbered(None));
            there.mail[attempt].unnumbered = true;
            return;
        }
        let (_, number) = there.kept[0].ask(vote);
        self.note_time(state, number);
        self.push(state, attempt, node, number);
    }

    /// Raises the counter as a vote would, and leaves the key as it is.
    fn draw(&self, state: &mut State<N, K>, attempt: usize, node: usize) {
        let vote = self.vote_of(&state.attempts[attempt], attempt);
        let there = &mut state.nodes[node];
        there.mail[attempt].unnumbered = false;
        let mut free = Kept::nothing().with(|record| record.counter = there.kept[0].record().counter);
        let (_, number) = free.ask(vote);
        there.kept[0] = there.kept[0].with(|record| record.counter = number.get());
        self.note_time(state, number);
        self.push(state, attempt, node, number);
    }

    fn offer(&self, state: &mut State<N, K>, attempt: usize, to: usize, node: usize) {
        if self.scheme != Scheme::UntilAnswered && state.attempts[attempt].lease().is_some() {
            state.attempts[attempt].phase = Phase::Ended;
        }
        if state.attempts[to].phase == Phase::Idle {
            ask(state, to);
        }
        let there = &mut state.nodes[node];
        // Two attempts that offer the lock to each other repeatedly would draw ever larger numbers.
        there.mail[attempt].offered = self.world.fencing != Fencing::Without;
        let (releasers, waiters) = (state.attempts[attempt].own.number, state.attempts[to].own.hint);
        let hint = if self.scheme == Scheme::ReleasersHint { releasers } else { releasers.max(waiters) };
        let counter = there.kept[0].record().counter;
        let raises = self.scheme != Scheme::NotRaised;
        if !raises {
            there.kept[0] = there.kept[0].with(|record| record.counter = 0);
        }
        // A transfer, but only of what the node has: a free lock is not stored.
        let from = there.kept[0].holder().unwrap_or(attempt);
        let (_, number) =
            there.kept[0].ask(Ask::transfer(from, to, self.world.offer).numbered(self.fence(hint)));
        if !raises {
            there.kept[0] = there.kept[0].with(|record| record.counter = record.counter.max(counter));
        }
        self.note_time(state, number);
        self.push(state, to, node, number);
    }

    /// Returns the hint or number of a request, if nodes draw numbers.
    fn fence(&self, number: FencingToken) -> Option<FencingToken> {
        (self.world.fencing != Fencing::Without).then_some(number)
    }

    /// Returns the attempt's request for a vote.
    pub(super) fn vote_of(&self, asking: &Attempt, attempt: usize) -> Ask {
        Ask::acquire(attempt, self.world.ttl).numbered(self.fence(asking.own.hint))
    }

    pub(super) fn renewal_of(&self, asking: &Attempt, attempt: usize) -> Ask {
        Ask::renew(attempt, self.world.ttl).numbered(self.fence(asking.own.number))
    }

    /// Calendars are ahead of every number drawn.
    fn note_time(&self, state: &mut State<N, K>, drawn: FencingToken) {
        if self.world.fencing == Fencing::Calendars {
            state.past.calendar = state.past.calendar.max(drawn);
        }
    }

    /// A node notifies the attempt that it has its token, if the connection reports it as old enough to vote.
    fn push(&self, state: &mut State<N, K>, attempt: usize, node: usize, number: FencingToken) {
        let is_young = self.world.is_young(state.nodes[node].age);
        let counts = self.scheme == Scheme::YoungVotes && state.attempts[attempt].own.kind == Kind::Waiter;
        if is_young && !counts {
            return;
        }
        if self.world.is_literal() {
            let vote = &mut state.nodes[node].mail[attempt].vote;
            if matches!(vote, Vote::None | Vote::Asked) {
                *vote = Vote::Pushed(number);
            }
        } else {
            self.hear(state, attempt, node, number);
        }
    }

    /// An attempt learns of a vote.
    fn hear(&self, state: &mut State<N, K>, attempt: usize, node: usize, number: FencingToken) {
        for one in 0..K {
            let hears =
                one == attempt || (self.scheme == Scheme::AnyOffer && state.attempts[one].is_waiting());
            let may_count = matches!(state.attempts[one].phase, Phase::Voting | Phase::Waiting { .. });
            if hears && may_count {
                let vote = &mut state.nodes[node].mail[one].vote;
                let again = self.scheme == Scheme::Twice && matches!(vote, Vote::Counted(_));
                *vote = if again { Vote::CountedTwice(number) } else { Vote::Counted(number) };
            }
        }
        // With numbers, more votes may arrive before it decides: one may be larger.
        if self.world.fencing == Fencing::Without {
            for one in 0..K {
                if self.has_quorum(state, one) {
                    self.take(state, one);
                }
            }
        }
    }

    /// Whether the attempt counts votes of a quorum.
    pub(super) fn has_quorum(&self, state: &State<N, K>, attempt: usize) -> bool {
        let asking = &state.attempts[attempt];
        if !matches!(asking.phase, Phase::Voting | Phase::Waiting { .. }) {
            return false;
        }
        let pools = |other: usize| {
            let other = &state.attempts[other];
            self.scheme == Scheme::TwoTokens
                && asking.is_waiting()
                && other.is_waiting()
                && other.clock >= asking.clock
        };
        let votes = |node: &Node<K>| {
            let ours = node.mail[attempt].vote.count();
            let others = (0..K).filter(|&other| pools(other)).map(|other| node.mail[other].vote.count());
            ours.max(others.max().unwrap_or(0))
        };
        let missing = usize::from(self.scheme == Scheme::Minority && asking.is_waiting());
        is_won(self.quorum, state.nodes.iter().map(votes).sum::<usize>() + missing)
    }

    /// Whether these votes of the nodes are a quorum.
    fn is_won(&self, nodes: &[Node<K>; N], votes: impl Fn(&Node<K>) -> usize) -> bool {
        is_won(self.quorum, nodes.iter().map(votes).sum())
    }

    /// Like `machine::Attempt::decide` in the library.
    fn decide(&self, state: &mut State<N, K>, attempt: usize) {
        let counted = state.nodes.iter().filter_map(|node| node.mail[attempt].vote.number());
        let Some(drawn) = FenceVotes::of(counted) else { return };
        let is_final = drawn.stands(self.quorum) || self.scheme == Scheme::NoWriteBack;
        let number = if is_final { drawn.token() } else { drawn.next() };
        state.attempts[attempt].own.number = number;
        self.note_time(state, number);
        if is_final {
            return self.take(state, attempt);
        }
        state.attempts[attempt].phase = Phase::WritingBack;
        state.nodes.iter_mut().for_each(|node| node.mail[attempt].vote.settle());
    }

    /// Whether a node confirms the attempt's number.
    pub(super) fn carries(&self, kept: Kept, asking: &Attempt, attempt: usize) -> bool {
        let is_below = kept.counter() < asking.own.number;
        if self.scheme == Scheme::AnyKeyCarries {
            is_below
        } else {
            kept.would(write_back(asking, attempt)) == Reply::Granted
        }
    }

    fn write_back(&self, state: &mut State<N, K>, attempt: usize, node: usize) {
        let there = &mut state.nodes[node];
        if self.scheme == Scheme::AnyKeyCarries {
            let number = state.attempts[attempt].own.number.get();
            there.kept[0] = there.kept[0].with(|record| record.counter = number);
        } else {
            there.kept[0].apply(write_back(&state.attempts[attempt], attempt));
        }
        let is_young = self.world.is_young(there.age);
        if is_young {
            return;
        }
        there.mail[attempt].vote = Vote::Carries;
        let carries = |node: &Node<K>| usize::from(node.mail[attempt].vote == Vote::Carries);
        if self.is_won(&state.nodes, carries) {
            self.take(state, attempt);
        }
    }

    /// With a quorum, it holds the lock, unless that comes too late.
    fn take(&self, state: &mut State<N, K>, attempt: usize) {
        let asking = &mut state.attempts[attempt];
        let life = self.life(asking);
        let from = if self.scheme == Scheme::FromPush && asking.is_waiting() { asking.clock } else { 0 };
        let mut until = self.world.deadline(from, life);
        if self.scheme == Scheme::NoDeadline && asking.is_waiting() {
            until = until.max(moment(asking.clock + 1));
        }
        if moment(asking.clock) >= until {
            asking.phase = Phase::Over { held: false };
            return;
        }
        asking.phase = Phase::Holding(Lease::new(until));
        asking.own.overtaken =
            self.world.fencing != Fencing::Without && asking.own.number <= state.past.largest;
        state.past.largest = state.past.largest.max(asking.own.number);
        state.nodes.iter_mut().for_each(|node| node.mail[attempt].vote.settle());
    }

    fn renewal(&self, state: &mut State<N, K>, attempt: usize, node: usize) {
        let renewal = self.renewal_of(&state.attempts[attempt], attempt);
        let there = &mut state.nodes[node];
        let (reply, _) = there.kept[0].ask(renewal);
        let is_young = self.world.is_young(there.age);
        let repairs_count =
            self.scheme == Scheme::RestoredCounts || self.counts_late(&state.attempts[attempt]);
        let counts = match reply {
            Reply::Granted => !is_young,
            Reply::Restored => repairs_count && !is_young,
            Reply::Free | Reply::Refused => false,
        };
        there.mail[attempt].renewal = if counts { Renewal::Counted } else { Renewal::None };
        let counted = |node: &Node<K>| usize::from(node.mail[attempt].renewal == Renewal::Counted);
        if self.is_won(&state.nodes, counted) {
            self.count(state, attempt);
        }
    }

    /// Like `Keeper::count`.
    fn count(&self, state: &mut State<N, K>, attempt: usize) {
        let never_late = self.counts_late(&state.attempts[attempt]);
        let asking = &mut state.attempts[attempt];
        let Phase::Holding(lease) = &mut asking.phase else { return };
        let Some(sent) = lease.renewal else { return };
        let to = self.world.deadline(sent, self.world.ttl);
        let now = if never_late { Moment::ORIGIN } else { moment(asking.clock) };
        let Some(until) = renewed(&Term::until(lease.until), to, now) else {
            asking.phase = Phase::Ended;
            return;
        };
        lease.until = until;
        lease.renewal = None;
        for node in &mut state.nodes {
            let renewal = &mut node.mail[attempt].renewal;
            if *renewal == Renewal::Counted {
                *renewal = Renewal::None;
            }
        }
    }

    /// A holder releases the lock, or a waiter gives up.
    fn end(&self, state: &mut State<N, K>, attempt: usize) {
        let keeps_keys = self.world.is_literal();
        let phase = &mut state.attempts[attempt].phase;
        if matches!(phase, Phase::Holding(_)) {
            *phase = if keeps_keys { Phase::Ended } else { Phase::Over { held: true } };
        } else if matches!(phase, Phase::Waiting { .. }) && self.scheme == Scheme::Reuse {
            *phase = Phase::Waiting { given_back: true };
            state.nodes.iter_mut().for_each(|node| node.mail[attempt].vote.settle());
        } else {
            *phase = Phase::Over { held: false };
        }
    }

    /// Whether renewals of the attempt count although they are late and stored the key again.
    pub(super) fn counts_late(&self, attempt: &Attempt) -> bool {
        self.scheme == Scheme::RestoredLate && attempt.own.kind == Kind::Waiter
    }

    /// Returns the TTL of the attempt's votes.
    pub(super) fn life(&self, attempt: &Attempt) -> u8 {
        if attempt.own.kind == Kind::Waiter { self.world.offer } else { self.world.ttl }
    }
}

/// An attempt reads its clock and asks, or sends its question.
fn ask<const N: usize, const K: usize>(state: &mut State<N, K>, attempt: usize) {
    let asking = &mut state.attempts[attempt];
    asking.own.floor = state.past.largest;
    asking.own.hint = state.past.calendar;
    if asking.own.kind == Kind::Waiter {
        asking.phase = Phase::Waiting { given_back: false };
    } else {
        asking.phase = Phase::Voting;
        state.nodes.iter_mut().for_each(|node| node.mail[attempt].vote = Vote::Asked);
    }
}

/// Returns the attempt's request to carry its number.
fn write_back(asking: &Attempt, attempt: usize) -> Ask {
    Ask::of(What::WriteBack, attempt).numbered(Some(asking.own.number))
}

/// Like `Keeper::renew`.
fn renew<const N: usize, const K: usize>(state: &mut State<N, K>, attempt: usize) {
    let asking = &mut state.attempts[attempt];
    let Phase::Holding(lease) = &mut asking.phase else { return };
    lease.renewals += 1;
    lease.renewal = Some(asking.clock);
    state.nodes.iter_mut().for_each(|node| node.mail[attempt].renewal = Renewal::Unarrived);
}

impl Vote {
    pub(super) fn count(self) -> usize {
        match self {
            Vote::None | Vote::Asked | Vote::Pushed(_) | Vote::Carries => 0,
            Vote::Counted(_) => 1,
            Vote::CountedTwice(_) => 2,
        }
    }

    fn number(self) -> Option<FencingToken> {
        match self {
            Vote::Counted(number) | Vote::CountedTwice(number) => Some(number),
            Vote::None | Vote::Asked | Vote::Pushed(_) | Vote::Carries => None,
        }
    }

    /// Counted votes are of no further use.
    pub(super) fn settle(&mut self) {
        if matches!(self, Vote::Counted(_) | Vote::CountedTwice(_) | Vote::Carries) {
            *self = Vote::None;
        }
    }
}

impl Mail {
    /// Whether no request of it is in flight.
    pub(super) fn is_quiet(self) -> bool {
        self.renewal != Renewal::Unarrived && self.vote != Vote::Asked
    }
}
