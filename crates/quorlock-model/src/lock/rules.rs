//! The possible steps and their effects.

use quorlock_protocol::{Moment, Tally, Term, Verdict, believed};

use super::state::{Attempt, Mail, Node, Pause, Process, Request, State, Witness};
use super::{Act, Lock, Scheme, Step};
use crate::common::Answer;
use crate::record::{Ask, Kept, Reply};
use crate::scene::{Lease, Phase};
use crate::world::{Addresses, JumpsAt, Meeting, Pauses, Turns};

/// The possible steps.
impl<const N: usize, const K: usize> Lock<N, K> {
    pub(super) fn possible(&self, state: &State<N, K>, steps: &mut Vec<Step>) {
        if state.attempts.iter().all(Attempt::is_over) {
            return;
        }
        let literal = self.world.is_literal();
        steps.push(Step::Tick { missed_by: None });
        for (node, there) in state.nodes.iter().enumerate() {
            if there.ahead < self.world.nodes_ahead && there.has_clock() {
                steps.push(Step::RunAhead { node });
            }
            // Without a key there is nothing to lose.
            if state.past.restarts < self.world.restarts && (!there.kept[0].is_free() || literal) {
                steps.push(Step::Restart { node });
            }
            let may_step = there.age.is_some() && !there.own.forward;
            if state.past.puts_forward < self.world.puts_forward && may_step {
                steps.push(Step::Own(Act::PutForward { node }));
            }
            if state.past.jumps < self.world.jumps && self.may_jump(state, there) {
                steps.push(Step::Own(Act::Jump { node }));
            }
        }
        for (attempt, asking) in state.attempts.iter().enumerate() {
            if asking.is_running() && asking.behind < self.world.attempts_behind {
                steps.push(Step::Tick { missed_by: Some(attempt) });
            }
            if literal && asking.phase == Phase::Idle && self.may_begin(state, attempt) {
                steps.push(Step::Own(Act::Begin { attempt }));
            }
            if asking.lease().is_some() || (literal && asking.is_running()) {
                steps.push(Step::End { attempt });
            }
            if let Some(lease) = asking.lease() {
                self.lease_steps_possible(asking, lease, attempt, steps);
            }
            for node in 0..N {
                self.requests_possible(state, attempt, node, steps);
            }
        }
    }

    fn lease_steps_possible(&self, asking: &Attempt, lease: &Lease, attempt: usize, steps: &mut Vec<Step>) {
        let asserts = self.asserts(asking);
        if self.world.is_literal() && asserts && lease.renewals < self.world.renewals {
            steps.push(Step::Renew { attempt });
        }
        if asking.own.carried.is_some() {
            steps.push(Step::Own(Act::Count { attempt }));
        }
        if self.world.pauses == Pauses::Possible && !asserts && !asking.own.seen_to_end {
            steps.push(Step::Own(Act::SeeEnd { attempt }));
        }
    }

    fn requests_possible(&self, state: &State<N, K>, attempt: usize, node: usize, steps: &mut Vec<Step>) {
        if !self.reaches(attempt, node) {
            return;
        }
        let literal = self.world.is_literal();
        let (there, asking) = (&state.nodes[node], &state.attempts[attempt]);
        let mail = &there.mail[attempt];
        let may_begin = !literal && asking.phase == Phase::Idle && self.may_begin(state, attempt);
        if (may_begin || matches!(mail.vote, Request::Unarrived(_)))
            && (literal || self.is_granted(there, attempt))
        {
            steps.push(Step::Vote { attempt, node, answer: Answer::Heard });
            if literal {
                steps.push(Step::Vote { attempt, node, answer: Answer::Unheard });
            }
        }
        let may_renew = |lease: &Lease| lease.renewals < self.world.renewals && self.asserts(asking);
        let begins = !literal && asking.lease().is_some_and(may_renew);
        let is_sent = matches!(mail.renewal, Request::Unarrived(_));
        if (is_sent || mail.late > 0 || begins) && (literal || self.is_renewed_at(there, attempt)) {
            if is_sent {
                steps.push(Step::Renewal { attempt, node, answer: Answer::Heard });
                if literal {
                    steps.push(Step::Renewal { attempt, node, answer: Answer::Unheard });
                }
            }
            if mail.late > 0 {
                steps.push(Step::Own(Act::LateRenewal { attempt, node }));
            }
            if begins {
                steps.push(Step::NewRenewal { attempt, node });
            }
        }
        if self.world.jumps > 0 && there.kept[0].is_free() && self.asserts(asking) {
            steps.push(Step::Own(Act::AskAgain { attempt, node }));
        }
        if asking.is_over() && self.releases(there, attempt) {
            steps.push(Step::Release { attempt, node });
        }
    }

    /// Whether a node would store the attempt's key for a vote.
    fn is_granted(&self, node: &Node<K>, attempt: usize) -> bool {
        let is_ours = node.kept[0].is_of(self.token(attempt));
        !is_ours && node.kept[0].would(self.request(attempt)) == Reply::Granted
    }

    /// Whether a node would do anything with a renewal.
    fn is_renewed_at(&self, node: &Node<K>, attempt: usize) -> bool {
        matches!(node.kept[0].would(self.renewal_of(attempt)), Reply::Granted | Reply::Restored)
    }

    /// Whether a node's clock may jump past the expiry of its key.
    fn may_jump(&self, state: &State<N, K>, node: &Node<K>) -> bool {
        let Some(holder) = node.kept[0].holder() else { return false };
        let has = |node: &&Node<K>| node.kept[0].is_of(holder);
        let stored = state.nodes.iter().filter(has).count();
        self.world.jumps_at == JumpsAt::Any || stored > self.quorum.needed()
    }

    /// The attempt that reuses a token waits for the end of the other one.
    fn may_begin(&self, state: &State<N, K>, attempt: usize) -> bool {
        self.scheme != Scheme::TokenReuse || attempt != 1 || state.attempts[0].is_over()
    }

    /// Whether an address leads the attempt to the node.
    fn reaches(&self, attempt: usize, node: usize) -> bool {
        match self.world.addresses {
            Addresses::Right => true,
            Addresses::Astray => attempt != 0 || node != 1,
            Addresses::Balanced => {
                node + 1 < N - usize::from(attempt == 1) || node + 1 == N - usize::from(attempt != 1)
            }
        }
    }

    /// Whether a release by the attempt would delete the node's key.
    fn releases(&self, node: &Node<K>, attempt: usize) -> bool {
        let deletes = |holder| holder == self.token(attempt) || self.scheme == Scheme::BlindRelease;
        node.kept[0].holder().is_some_and(deletes)
    }

    /// Returns the attempt that the token is named after.
    fn token(&self, attempt: usize) -> usize {
        let copies = matches!(self.scheme, Scheme::TokenReuse | Scheme::CopiedToken);
        if copies && attempt == 1 { 0 } else { attempt }
    }
}

/// The effects.
impl<const N: usize, const K: usize> Lock<N, K> {
    pub(super) fn after(&self, state: &State<N, K>, step: Step) -> State<N, K> {
        let mut state = *state;
        match step {
            Step::Tick { missed_by } => {
                state.tick(missed_by);
                for node in &mut state.nodes {
                    // Measured by the clocks of the clients.
                    node.own.known = node.own.known.map(|known| known + self.world.wall(1));
                }
            }
            Step::RunAhead { node } => {
                state.nodes[node].ahead += 1;
                state.nodes[node].tick();
            }
            Step::Restart { node } => self.restart(&mut state, node),
            Step::Vote { attempt, node, answer } => {
                if state.attempts[attempt].phase == Phase::Idle {
                    self.begin(&mut state, attempt);
                }
                self.vote(&mut state, attempt, node, answer);
            }
            Step::Renew { attempt } => self.renew(&mut state, attempt),
            Step::Renewal { attempt, node, answer } => self.renewal(&mut state, attempt, node, answer),
            Step::NewRenewal { attempt, node } => {
                self.renew(&mut state, attempt);
                self.renewal(&mut state, attempt, node, Answer::Heard);
            }
            Step::End { attempt } => end(&mut state.attempts[attempt]),
            Step::Release { attempt, node } => self.release(&mut state.nodes[node], attempt),
            Step::Own(act) => self.act(&mut state, act),
        }
        state.note_interruptions(|state, _, other| self.asserts(&state.attempts[other]));
        self.tidy(&mut state);
        state
    }

    fn act(&self, state: &mut State<N, K>, act: Act) {
        match act {
            Act::PutForward { node } => {
                state.past.puts_forward += 1;
                state.nodes[node].own.forward = true;
            }
            Act::Jump { node } => {
                state.past.jumps += 1;
                state.nodes[node].kept = [Kept::nothing()];
            }
            // A key stored by this confirms nothing.
            Act::AskAgain { attempt, node } => {
                self.prolong(&mut state.nodes[node], attempt);
            }
            Act::Begin { attempt } => self.begin(state, attempt),
            Act::LateRenewal { attempt, node } => {
                state.nodes[node].mail[attempt].late -= 1;
                self.prolong(&mut state.nodes[node], attempt);
            }
            Act::Count { attempt } => self.count(state, attempt),
            Act::SeeEnd { attempt } => state.attempts[attempt].own.seen_to_end = true,
        }
    }

    pub(super) fn deadline(&self, sent: u8) -> Moment {
        self.world.deadline(sent, self.world.ttl)
    }

    /// Whether the attempt may act as the holder, decided by [`Term`] as in the library.
    pub(super) fn asserts(&self, attempt: &Attempt) -> bool {
        let now = self.world.moment(attempt.clock);
        attempt.lease().is_some_and(|lease| self.term(lease, attempt.own).remaining(now).is_some())
    }

    /// Returns the term, after the check that observed its end.
    fn term(&self, lease: &Lease, pause: Pause) -> Term {
        let term = Term::until(lease.until);
        if pause.seen_to_end && self.scheme != Scheme::Revival {
            term.remaining(lease.until);
        }
        term
    }

    fn begin(&self, state: &mut State<N, K>, attempt: usize) {
        state.attempts[attempt].phase = Phase::Voting;
        for node in &mut state.nodes {
            self.meet(node);
            node.mail[attempt].vote = Request::Unarrived(self.witness(node));
        }
    }

    /// Like `start::note`: the client that meets a process first notes its uptime.
    fn meet(&self, node: &mut Node<K>) {
        if let Some(age) = node.age.filter(|_| self.scheme != Scheme::NoNote) {
            let turns = (self.world.turns == Turns::Notified).then_some(age.into());
            let uptime = self.world.uptime(age, node.own.forward);
            node.own.known.get_or_insert(believed(Some(uptime), turns, None));
        }
    }

    fn witness(&self, node: &Node<K>) -> Witness {
        let is_young = node.age.is_some_and(|age| {
            let turns = (self.world.turns == Turns::Notified).then_some(age.into());
            let uptime = self.world.uptime(age, node.own.forward);
            self.world.is_quarantined(believed(Some(uptime), turns, node.own.known))
        });
        if is_young { Witness::Young } else { Witness::Old }
    }

    fn vote(&self, state: &mut State<N, K>, attempt: usize, node: usize, answer: Answer) {
        let there = &mut state.nodes[node];
        let (reply, _) = there.kept[0].ask(self.request(attempt));
        let counts = reply == Reply::Granted
            && answer == Answer::Heard
            && there.mail[attempt].vote == Request::Unarrived(Witness::Old)
            && state.attempts[attempt].phase == Phase::Voting;
        there.mail[attempt].vote = if counts { Request::Counted } else { Request::Spent };
        if counts && self.is_acquired(&state.nodes, attempt) {
            self.acquire(state, attempt);
        }
    }

    fn is_acquired(&self, nodes: &[Node<K>; N], attempt: usize) -> bool {
        let tally = self.tally(nodes, attempt, |mail| mail.vote == Request::Counted);
        let nearly = self.scheme == Scheme::SmallQuorum && tally.granted() + 1 >= self.quorum.needed();
        nearly || tally.verdict() == Some(Verdict::Won)
    }

    /// Like `keeper` and `Round::is_in_time`.
    fn acquire(&self, state: &mut State<N, K>, attempt: usize) {
        let asking = &mut state.attempts[attempt];
        let sent = if self.scheme == Scheme::LateStart { asking.clock } else { 0 };
        let until = self.deadline(sent);
        if self.world.moment(asking.clock) >= until {
            return end(asking);
        }
        asking.phase = Phase::Holding(Lease::new(until));
        for node in &mut state.nodes {
            node.mail[attempt].vote.settle();
        }
    }

    /// Like `Keeper::renew`.
    fn renew(&self, state: &mut State<N, K>, attempt: usize) {
        let asking = &mut state.attempts[attempt];
        let sent = asking.clock;
        let Phase::Holding(lease) = &mut asking.phase else { return };
        lease.renewals += 1;
        lease.renewal = Some(sent);
        asking.own.carried = None;
        for node in &mut state.nodes {
            let witness = self.witness(node);
            let mail = &mut node.mail[attempt];
            mail.put_off_renewal();
            mail.renewal = Request::Unarrived(witness);
        }
    }

    fn renewal(&self, state: &mut State<N, K>, attempt: usize, node: usize, answer: Answer) {
        let there = &mut state.nodes[node];
        let Request::Unarrived(witness) = there.mail[attempt].renewal else { return };
        let reply = self.prolong(there, attempt);
        let counts = answer == Answer::Heard && self.acknowledges(reply, witness);
        there.mail[attempt].renewal = if counts { Request::Counted } else { Request::Spent };
        let Attempt { clock, phase: Phase::Holding(lease), own, .. } = &mut state.attempts[attempt] else {
            return;
        };
        let is_open = lease.renewal.is_some() && own.carried.is_none();
        if counts && is_open && self.is_renewed(&state.nodes, attempt) {
            own.carried = Some(*clock);
            if self.world.pauses == Pauses::Never {
                self.count(state, attempt);
            }
        }
    }

    /// Returns the request for a vote.
    fn request(&self, attempt: usize) -> Ask {
        Ask::acquire(self.token(attempt), self.world.ttl)
    }

    pub(super) fn renewal_of(&self, attempt: usize) -> Ask {
        Ask::renew(self.token(attempt), self.world.ttl)
    }

    fn prolong(&self, node: &mut Node<K>, attempt: usize) -> Reply {
        let holder = self.token(attempt);
        let (reply, _) = node.kept[0].ask(self.renewal_of(attempt));
        if (self.scheme, reply) == (Scheme::Shrinking, Reply::Granted) {
            node.kept[0].apply(Ask::release(holder));
            node.kept[0].apply(Ask::acquire(holder, 1));
        }
        reply
    }

    fn release(&self, node: &mut Node<K>, attempt: usize) {
        let any = node.kept[0].holder().filter(|_| self.scheme == Scheme::BlindRelease);
        node.kept[0].apply(Ask::release(any.unwrap_or(self.token(attempt))));
    }

    /// Whether a reply counts as an acknowledgement. Like `Round::said`.
    fn acknowledges(&self, reply: Reply, witness: Witness) -> bool {
        let repairs_count = matches!(self.scheme, Scheme::RepairsCount | Scheme::LateRepairs);
        match (reply, witness) {
            (Reply::Granted, Witness::Old) => true,
            (Reply::Restored, _) if self.scheme == Scheme::YoungRepairs => true,
            (Reply::Restored, Witness::Old) => repairs_count,
            (Reply::Granted | Reply::Restored, Witness::Young) | (Reply::Free | Reply::Refused, _) => false,
        }
    }

    pub(super) fn is_renewed(&self, nodes: &[Node<K>; N], attempt: usize) -> bool {
        let tally = self.tally(nodes, attempt, |mail| mail.renewal == Request::Counted);
        let any = self.scheme == Scheme::MinorityRenews && tally.granted() > 0;
        any || tally.verdict() == Some(Verdict::Won)
    }

    /// Like `Keeper::count`.
    fn count(&self, state: &mut State<N, K>, attempt: usize) {
        let asking = &mut state.attempts[attempt];
        let Phase::Holding(lease) = &mut asking.phase else { return };
        let (Some(sent), Some(carried)) = (lease.renewal, asking.own.carried) else { return };
        let renewed = self.deadline(if self.scheme == Scheme::FromReply { carried } else { sent });
        let never_late = matches!(self.scheme, Scheme::LateAcks | Scheme::LateRepairs);
        let now = if never_late { Moment::ORIGIN } else { self.world.moment(carried) };
        let term = self.term(lease, asking.own);
        if !term.renew(renewed, now) {
            return end(asking);
        }
        lease.until = term.remaining(Moment::ORIGIN).unwrap_or(lease.until);
        (lease.renewal, asking.own.carried) = (None, None);
        for node in &mut state.nodes {
            node.mail[attempt].put_off_renewal();
        }
    }

    /// Counts the granted requests of the attempt, one for each node.
    pub(super) fn tally(
        &self,
        nodes: &[Node<K>; N],
        attempt: usize,
        grants: impl Fn(&Mail) -> bool,
    ) -> Tally {
        let mut tally = Tally::new(self.quorum);
        for (index, node) in nodes.iter().enumerate() {
            if grants(&node.mail[attempt]) {
                tally.grant();
                let has_twin = index == 0 && !self.reaches(attempt, 1);
                if has_twin && self.scheme == Scheme::TwinsCount {
                    tally.grant();
                }
            }
        }
        tally
    }

    /// Requests in flight are sent again to the new process, on a connection that reports it as
    /// young. Or they are lost with the old one, which is the same as not arriving.
    fn restart(&self, state: &mut State<N, K>, node: usize) {
        state.past.restarts += 1;
        let there = &mut state.nodes[node];
        if there.own.remembers {
            if self.scheme == Scheme::FalseMemory {
                there.kept = [Kept::nothing()];
            }
            // Its data survives: earlier requests may still arrive, and count.
            return;
        }
        (there.kept, there.age, there.own) = ([Kept::nothing()], Some(0), Process::default());
        if self.world.meeting == Meeting::AtOnce {
            self.meet(there);
        }
        for request in there.mail.iter_mut().flat_map(|mail| [&mut mail.vote, &mut mail.renewal]) {
            if matches!(request, Request::Unarrived(_)) && self.scheme != Scheme::SilentResend {
                *request = Request::Unarrived(Witness::Young);
            }
        }
    }
}

pub(super) fn end(asking: &mut Attempt) {
    let held = asking.lease().is_some();
    *asking = Attempt { phase: Phase::Over { held }, ..Attempt::default() };
}

impl Mail {
    /// The renewal is over: requests in flight may still arrive, but no longer count.
    fn put_off_renewal(&mut self) {
        if matches!(self.renewal, Request::Unarrived(_)) {
            self.late += 1;
        }
        self.renewal = Request::Spent;
    }
}

impl Request {
    /// It is no longer counted.
    fn settle(&mut self) {
        if *self == Request::Counted {
            *self = Request::Spent;
        }
    }
}
