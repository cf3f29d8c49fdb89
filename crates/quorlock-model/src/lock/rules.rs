//! The possible steps and their effects.

use quorlock_protocol::{Moment, Tally, Term, Verdict, believed};

use super::state::{Attempt, Lease, Mail, Node, Phase, Renewal, Request, State, Witness};
use super::{Addresses, JumpsAt, Lock, Meeting, Pauses, Scheme, Step, Turns};
use crate::common::{Answer, Past};
use crate::record::{Ask, Kept, Reply};

/// The possible steps.
impl<const N: usize, const K: usize> Lock<N, K> {
    pub(super) fn possible(&self, state: &State<N, K>, steps: &mut Vec<Step>) {
        if state.attempts.iter().all(Attempt::is_over) {
            return;
        }
        let literal = self.world.is_literal();
        steps.push(Step::Tick { missed_by: None });
        for (node, there) in state.nodes.iter().enumerate() {
            let has_clock = !there.kept.is_free() || there.age.is_some();
            if there.ahead < self.world.nodes_ahead && has_clock {
                steps.push(Step::RunAhead { node });
            }
            // Without a key there is nothing to lose.
            if state.restarts < self.world.restarts && (!there.kept.is_free() || literal) {
                steps.push(Step::Restart { node });
            }
            if state.puts_forward < self.world.puts_forward && there.age.is_some() && !there.forward {
                steps.push(Step::PutForward { node });
            }
            if state.jumps < self.world.jumps && self.may_jump(state, there) {
                steps.push(Step::Jump { node });
            }
        }
        for (attempt, asking) in state.attempts.iter().enumerate() {
            if asking.is_running() && asking.behind < self.world.attempts_behind {
                steps.push(Step::Tick { missed_by: Some(attempt) });
            }
            if literal && asking.phase == Phase::Idle && self.may_begin(state, attempt) {
                steps.push(Step::Begin { attempt });
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
        if lease.renewal.is_some_and(|renewal| renewal.carried.is_some()) {
            steps.push(Step::Count { attempt });
        }
        if self.world.pauses == Pauses::Possible && !asserts && !lease.seen_to_end {
            steps.push(Step::SeeEnd { attempt });
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
        if literal || self.is_renewed_at(there, attempt) {
            if matches!(mail.renewal, Request::Unarrived(_)) {
                steps.push(Step::Renewal { attempt, node, answer: Answer::Heard });
                if literal {
                    steps.push(Step::Renewal { attempt, node, answer: Answer::Unheard });
                }
            }
            if mail.late > 0 {
                steps.push(Step::LateRenewal { attempt, node });
            }
            let may_renew = |lease: &Lease| lease.renewals < self.world.renewals && self.asserts(asking);
            if !literal && asking.lease().is_some_and(may_renew) {
                steps.push(Step::NewRenewal { attempt, node });
            }
        }
        if self.world.jumps > 0 && there.kept.is_free() && self.asserts(asking) {
            steps.push(Step::AskAgain { attempt, node });
        }
        if asking.is_over() && self.releases(there, attempt) {
            steps.push(Step::Release { attempt, node });
        }
    }

    /// Whether a node would store the attempt's key for a vote.
    fn is_granted(&self, node: &Node<K>, attempt: usize) -> bool {
        let is_ours = node.kept.is_of(self.token(attempt));
        !is_ours && node.kept.would(self.request(attempt)) == Reply::Granted
    }

    /// Whether a node would do anything with a renewal.
    fn is_renewed_at(&self, node: &Node<K>, attempt: usize) -> bool {
        let renewal = Ask::renew(self.token(attempt), self.world.ttl);
        matches!(node.kept.would(renewal), Reply::Granted | Reply::Restored)
    }

    /// Whether a node's clock may jump past the expiry of its key.
    fn may_jump(&self, state: &State<N, K>, node: &Node<K>) -> bool {
        let Some(holder) = node.kept.holder() else { return false };
        let has = |node: &&Node<K>| node.kept.is_of(holder);
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
        node.kept.holder().is_some_and(deletes)
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
            Step::Tick { missed_by } => self.tick(&mut state, missed_by),
            Step::RunAhead { node } => {
                state.nodes[node].ahead += 1;
                state.nodes[node].tick();
            }
            Step::Restart { node } => self.restart(&mut state, node),
            Step::PutForward { node } => {
                state.puts_forward += 1;
                state.nodes[node].forward = true;
            }
            Step::Jump { node } => {
                state.jumps += 1;
                state.nodes[node].kept = Kept::nothing();
            }
            // A key stored by this confirms nothing.
            Step::AskAgain { attempt, node } => {
                self.prolong(&mut state.nodes[node], attempt);
            }
            Step::Begin { attempt } => self.begin(&mut state, attempt),
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
            Step::LateRenewal { attempt, node } => {
                state.nodes[node].mail[attempt].late -= 1;
                self.prolong(&mut state.nodes[node], attempt);
            }
            Step::Count { attempt } => self.count(&mut state, attempt),
            Step::SeeEnd { attempt } => {
                if let Phase::Holding(lease) = &mut state.attempts[attempt].phase {
                    lease.seen_to_end = true;
                }
            }
            Step::End { attempt } => state.attempts[attempt].end(),
            Step::Release { attempt, node } => self.release(&mut state.nodes[node], attempt),
        }
        self.note_interruptions(&mut state);
        self.tidy(&mut state);
        state
    }

    /// Whether the attempt may act as the holder, decided by [`Term`] as in the library.
    pub(super) fn asserts(&self, attempt: &Attempt) -> bool {
        let now = self.world.moment(attempt.clock);
        attempt.lease().is_some_and(|lease| self.term(lease).remaining(now).is_some())
    }

    /// Returns the term, after the check that observed its end.
    fn term(&self, lease: &Lease) -> Term {
        let term = Term::until(lease.until);
        if lease.seen_to_end && self.scheme != Scheme::Revival {
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
            let turns = (self.world.turns == Turns::Told).then_some(age.into());
            let uptime = self.world.uptime(age, node.forward);
            node.known.get_or_insert(believed(uptime, turns, None));
        }
    }

    fn witness(&self, node: &Node<K>) -> Witness {
        let is_young = node.age.is_some_and(|age| {
            let turns = (self.world.turns == Turns::Told).then_some(age.into());
            let uptime = self.world.uptime(age, node.forward);
            self.world.is_quarantined_at(believed(uptime, turns, node.known))
        });
        if is_young { Witness::Young } else { Witness::Old }
    }

    fn vote(&self, state: &mut State<N, K>, attempt: usize, node: usize, answer: Answer) {
        let there = &mut state.nodes[node];
        let (reply, _) = there.kept.ask(self.request(attempt));
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

    /// Like `keeper` and `draw::in_time`.
    fn acquire(&self, state: &mut State<N, K>, attempt: usize) {
        let asking = &mut state.attempts[attempt];
        let sent = if self.scheme == Scheme::LateStart { asking.clock } else { 0 };
        let until = self.world.deadline(sent);
        if self.world.moment(asking.clock) >= until {
            return asking.end();
        }
        let (seen_to_end, interrupted) = (false, false);
        asking.phase = Phase::Holding(Lease { until, renewals: 0, renewal: None, seen_to_end, interrupted });
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
        lease.renewal = Some(Renewal { sent, carried: None });
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
        let clock = state.attempts[attempt].clock;
        let Phase::Holding(lease) = &mut state.attempts[attempt].phase else { return };
        let Some(renewal) = &mut lease.renewal else { return };
        if counts && renewal.carried.is_none() && self.is_renewed(&state.nodes, attempt) {
            renewal.carried = Some(clock);
            if self.world.pauses == Pauses::Never {
                self.count(state, attempt);
            }
        }
    }

    /// Returns the request for a vote.
    fn request(&self, attempt: usize) -> Ask {
        Ask::acquire(self.token(attempt), self.world.ttl)
    }

    pub(super) fn prolong(&self, node: &mut Node<K>, attempt: usize) -> Reply {
        let holder = self.token(attempt);
        let (reply, _) = node.kept.ask(Ask::renew(holder, self.world.ttl));
        if (self.scheme, reply) == (Scheme::Shrinking, Reply::Granted) {
            node.kept.ask(Ask::release(holder));
            node.kept.ask(Ask::acquire(holder, 1));
        }
        reply
    }

    fn release(&self, node: &mut Node<K>, attempt: usize) {
        let any = node.kept.holder().filter(|_| self.scheme == Scheme::BlindRelease);
        node.kept.ask(Ask::release(any.unwrap_or(self.token(attempt))));
    }

    /// Whether a reply counts as an acknowledgement. Like `Round::said`.
    fn acknowledges(&self, reply: Reply, witness: Witness) -> bool {
        let repairs_count = matches!(self.scheme, Scheme::RepairsCount | Scheme::LateRepairs);
        match (reply, witness) {
            (Reply::Granted, Witness::Old) => true,
            (Reply::Restored, _) if self.scheme == Scheme::YoungRepairs => true,
            (Reply::Restored, Witness::Old) => repairs_count,
            (Reply::Granted | Reply::Restored, Witness::Young)
            | (Reply::Notified | Reply::Free | Reply::Refused, _) => false,
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
        let Some(Renewal { sent, carried: Some(carried) }) = lease.renewal else { return };
        let renewed = self.world.deadline(if self.scheme == Scheme::FromReply { carried } else { sent });
        let never_late = matches!(self.scheme, Scheme::LateAcks | Scheme::LateRepairs);
        let now = if never_late { Moment::ORIGIN } else { self.world.moment(carried) };
        let term = self.term(lease);
        if !term.renew(renewed, now) {
            return asking.end();
        }
        lease.until = term.remaining(Moment::ORIGIN).unwrap_or(lease.until);
        lease.renewal = None;
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
        state.restarts += 1;
        let there = &mut state.nodes[node];
        if there.remembers {
            if self.scheme == Scheme::FalseMemory {
                there.kept = Kept::nothing();
            }
            // Its data survives: earlier requests may still arrive, and count.
            return;
        }
        (there.kept, there.age) = (Kept::nothing(), Some(0));
        (there.forward, there.known) = (false, None);
        if self.world.meeting == Meeting::AtOnce {
            self.meet(there);
        }
        for request in there.mail.iter_mut().flat_map(|mail| [&mut mail.vote, &mut mail.renewal]) {
            if matches!(request, Request::Unarrived(_)) && self.scheme != Scheme::SilentResend {
                *request = Request::Unarrived(Witness::Young);
            }
        }
    }

    fn tick(&self, state: &mut State<N, K>, missed_by: Option<usize>) {
        let tick = self.world.wall(1);
        for node in &mut state.nodes {
            node.tick();
            // Measured by the clocks of the clients.
            node.known = node.known.map(|known| known + tick);
        }
        for (index, attempt) in state.attempts.iter_mut().enumerate() {
            match attempt.phase {
                Phase::Voting | Phase::Holding(_) if missed_by == Some(index) => attempt.behind += 1,
                Phase::Voting | Phase::Holding(_) => attempt.clock += 1,
                Phase::Idle | Phase::Over { .. } => {}
            }
        }
    }

    fn note_interruptions(&self, state: &mut State<N, K>) {
        let asserts = state.attempts.map(|attempt| self.asserts(&attempt));
        for (index, attempt) in state.attempts.iter_mut().enumerate() {
            let by_another = asserts.iter().enumerate().any(|(other, &asserts)| asserts && other != index);
            if let Phase::Holding(lease) = &mut attempt.phase {
                lease.interrupted |= by_another;
            }
        }
    }
}

impl<const K: usize> Node<K> {
    fn tick(&mut self) {
        self.kept = self.kept.ticked();
        self.age = self.age.map(|age| age.saturating_add(1));
    }
}

impl Attempt {
    pub(super) fn end(&mut self) {
        let past = if self.lease().is_some() { Past::Held } else { Past::Failed };
        *self = Attempt { clock: 0, behind: 0, phase: Phase::Over { past } };
    }
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
