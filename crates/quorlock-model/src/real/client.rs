//! What the engine does around its machines, as thinly as possible: the lease, renewals, and what is taken back when. It
//! stands in for the part of the engine that is no machine yet, and goes when that is one.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::machine::{
    Asked, Attempt, Deployment, Expect, Keep, KeyStates, Machine, NodeSet, Of, Question, Renewed, Replaced,
    Round, Terms, Undo, Wanted,
};
use quorlock_protocol::node::{NodeError, Request, Response, SharedRequest};
use quorlock_protocol::{Claim, FenceHint, FencingToken, KeyState, Moment, RenewalSchedule, Term, Verdict};

use super::node::{KEY, What, name, token, what};
use super::{BEHIND, GOES_ON, Real, Scheme, moment};
use retain::{Retaining, Slot};
use wait::Wait;

pub(super) mod retain;
pub(super) mod wait;

#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) index: u8,
    pub(super) phase: Phase,
    /// How often it still wants the lock.
    pub(super) goals: u8,
    /// The number of its claims so far.
    pub(super) drawn: u8,
    /// The number of its machines so far.
    began: u16,
    /// Rounds whose answers matter, in the order in which they began.
    pub(super) rounds: Vec<(u16, Round)>,
    /// Claims that were passed on, until all nodes have answered.
    pub(super) passed: Vec<Passed>,
    pub(super) undos: Vec<Undoing>,
    pub(super) ended: Vec<Ended>,
    /// For how long it left the lock taken.
    pub(super) slot: Option<Slot>,
    /// The number of its waits so far.
    pub(super) waits: u8,
    pub(super) wait: Option<Box<Wait>>,
    /// Whether it has had the lock.
    pub(super) served: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Phase {
    Idle,
    Asking(Box<Asking>),
    Holding(Holding),
    Retaining(Box<Retaining>),
    /// By its `wait`.
    Waiting,
    Crashed,
}

/// An attempt.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    pub(super) no: u16,
    pub(super) attempt: Attempt,
    /// The claim that it replaces, and where that is stored.
    pub(super) from: Option<(Arc<Claim>, Behind)>,
    /// Until when the lease that it replaces goes on: it has ended, unless that rule is broken.
    pub(super) before_until: Moment,
    /// Whether its caller still waits.
    pub(super) is_wanted: bool,
}

/// A lease.
#[derive(Clone, Debug)]
pub(super) struct Holding {
    pub(super) claim: Arc<Claim>,
    pub(super) keep: Keep,
    /// The latest round with a verdict, whose answers still count.
    pub(super) latest: Option<u16>,
    pub(super) renewing: Option<u16>,
    pub(super) deadline: Moment,
    /// Until when the lease before it goes on.
    pub(super) before_until: Moment,
    pub(super) number: FencingToken,
    pub(super) passed: bool,
    pub(super) renewed: bool,
    /// Whether another client has been granted the lock since.
    pub(super) interrupted: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Passed {
    pub(super) claim: Arc<Claim>,
    pub(super) before: Behind,
    pub(super) round: u16,
    /// Whether no lease has followed: the lock stays taken.
    pub(super) retained: bool,
}

/// What the rounds of a lease have left that has ended, like `Left`.
#[derive(Clone, Debug)]
pub(super) struct Behind {
    /// As it ended.
    pub(super) states: KeyStates,
    /// Without the last round, whose own answers may yet come.
    pub(super) without: KeyStates,
    pub(super) last: Option<u16>,
}

#[derive(Clone, Debug)]
pub(super) struct Undoing {
    pub(super) no: u16,
    pub(super) undo: Undo,
    pub(super) of: Of,
    pub(super) since: u16,
    /// Nodes that never had the key, or have confirmed.
    pub(super) gone: NodeSet,
    /// When a node failed that is to be asked again.
    pub(super) failed: Vec<(usize, u16)>,
}

/// A claim with nothing left to do.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) name: u8,
    pub(super) gone: NodeSet,
    /// When it began to be taken back.
    pub(super) since: u16,
}

/// Whose a request is: of which attempt, round or undo, and its index there.
pub(super) type To = (u16, usize);

/// One input of a client, and what comes of it.
pub(super) struct Cx<'a> {
    pub(super) model: &'a Real,
    pub(super) now: u16,
    /// The requests that leave, in order.
    pub(super) sent: Vec<(To, SharedRequest)>,
    pub(super) granted: Option<FencingToken>,
    pub(super) violated: Option<&'static str>,
    /// How many waits of all clients have begun.
    pub(super) waits: u8,
}

impl Cx<'_> {
    pub(super) fn moment(&self) -> Moment {
        moment(self.now)
    }

    /// Returns the verdict, or that where one vote less is enough.
    pub(super) fn verdict(&self, verdict: Verdict, round: &Round, passes: bool) -> Verdict {
        let few = matches!(self.model.scheme, Scheme::FewConfirm | Scheme::FewRetain) && passes;
        let granted = || round.tally(self.model, self.moment()).granted();
        let is_small = self.model.scheme == Scheme::SmallQuorum || few;
        if is_small && granted() + 1 >= self.model.quorum().needed() { Verdict::Won } else { verdict }
    }

    /// As if the keys had been stored now.
    fn late_deadline(&self) -> Moment {
        Real::drift().deadline(self.moment(), self.model.ttl())
    }

    fn keep(&self) -> Keep {
        let ttl = self.model.ttl();
        Keep::new(RenewalSchedule::new(None, ttl, self.moment()))
    }
}

/// What its callers do.
impl Client {
    pub(super) fn new(index: usize, goals: u8) -> Client {
        let index = u8::try_from(index).unwrap_or(u8::MAX);
        Client {
            index,
            phase: Phase::Idle,
            goals,
            drawn: 0,
            began: 0,
            rounds: Vec::new(),
            passed: Vec::new(),
            undos: Vec::new(),
            ended: Vec::new(),
            slot: None,
            waits: 0,
            wait: None,
            served: false,
        }
    }

    pub(super) fn acquire(&mut self, cx: &mut Cx<'_>) {
        self.goals -= 1;
        if cx.model.waits {
            return self.wait(cx);
        }
        self.ask(cx, (None, None), None, Moment::ORIGIN);
    }

    /// Like `Keeper::pass_on`.
    pub(super) fn pass_on(&mut self, cx: &mut Cx<'_>) {
        let Some(held) = self.take_lease() else { return };
        let before = self.settle(cx.model, &held);
        let goes_on = cx.model.scheme == Scheme::Overlapping;
        let before_until = if goes_on { held.deadline } else { Moment::ORIGIN };
        self.goals -= 1;
        self.ask(cx, (Some((held.claim, before)), None), Some(held.number), before_until);
    }

    pub(super) fn give_up(&mut self, cx: &mut Cx<'_>) {
        match &mut self.phase {
            // The lease is dropped when it is delivered.
            Phase::Asking(asking) if asking.from.is_some() => asking.is_wanted = false,
            Phase::Asking(asking) => {
                let (claim, states) = (asking.attempt.claim().clone(), asking.attempt.give_up());
                self.phase = Phase::Idle;
                let forgets = cx.model.scheme == Scheme::NoUndo;
                self.take_back(cx, &claim, if forgets { KeyStates::default() } else { states }, Of::Attempt);
            }
            Phase::Waiting => self.phase = Phase::Idle,
            Phase::Idle | Phase::Holding(_) | Phase::Retaining(_) | Phase::Crashed => {}
        }
        self.end_wait(cx, false);
    }

    /// Releases the lease, or cleans up after its loss.
    pub(super) fn release(&mut self, cx: &mut Cx<'_>) {
        let Some(held) = self.take_lease() else { return };
        self.release_lease(cx, &held);
    }

    pub(super) fn release_lease(&mut self, cx: &mut Cx<'_>, held: &Holding) {
        let states = self.settle(cx.model, held).states;
        self.take_back(cx, &held.claim, states, Of::Lease);
    }

    /// Like `Keeper::renew`.
    pub(super) fn renew(&mut self, cx: &mut Cx<'_>) {
        let Some(mut held) = self.take_lease() else { return };
        let mut latest = held.latest.map(|no| self.round(no).key_states());
        if cx.model.scheme == Scheme::Forgotten {
            (latest, held.keep) = (Some(self.settle(cx.model, &held).states), cx.keep());
        }
        held.keep.renew(latest, cx.moment());
        let (claim, ttl, fencing_token) = (held.claim.clone(), cx.model.ttl(), Some(held.number));
        let request = Request::Renew { claim, ttl, fencing_token };
        let round = self.begin(cx, request);
        (held.latest, held.renewing) = (None, Some(round));
        self.phase = Phase::Holding(held);
    }

    pub(super) fn take_lease(&mut self) -> Option<Holding> {
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        if let Phase::Holding(held) = phase {
            return Some(held);
        }
        self.phase = phase;
        None
    }
}

/// What happens to it.
impl Client {
    /// A node answers, or fails. The rest is up to [`advance`](Client::advance).
    pub(super) fn hear(&mut self, cx: &Cx<'_>, (no, node): To, result: Result<Response, NodeError>) {
        let now = cx.moment();
        if let Phase::Asking(asking) = &mut self.phase
            && asking.no == no
        {
            asking.attempt.handle_response(cx.model, node, result, now);
        } else if let Some((_, round)) = self.rounds.iter_mut().find(|(other, _)| *other == no) {
            // It ignores what comes to the write-back of an attempt that was decided.
            round.handle_response(cx.model, node, result, now);
        } else if let Some(undoing) = self.undos.iter_mut().find(|undoing| undoing.no == no) {
            match &result {
                Ok(_) => undoing.gone.insert(node),
                Err(_) => undoing.failed.push((node, cx.now)),
            }
            undoing.undo.handle_response(cx.model, node, result, now);
            while let Some(given_up) = undoing.undo.poll_event() {
                undoing.failed.retain(|(node, _)| *node != given_up.node);
            }
        }
    }

    /// Does all that can be done now.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_>) {
        while self.decide(cx)
            || self.decide_renewal(cx)
            || self.decide_retention(cx)
            || self.decide_wait(cx)
            || self.expire(cx)
            || self.clean_up_passed(cx)
        {}
        self.undo(cx);
        let mut rounds = std::mem::take(&mut self.rounds);
        let latest = if let Phase::Holding(held) = &self.phase { held.latest } else { None };
        let is_passed = |no| self.passed.iter().any(|passed| passed.round == no);
        let is_behind = |no| self.behind().any(|before| before.last == Some(no));
        rounds.retain(|(no, _)| self.awaits(*no) || latest == Some(*no) || is_passed(*no) || is_behind(*no));
        self.rounds = rounds;
        if self.is_due(cx.now) {
            cx.violated = Some(GOES_ON);
        }
    }

    /// What is left of leases that have ended, until that is taken back.
    fn behind(&self) -> impl Iterator<Item = &Behind> {
        let of_phase = match &self.phase {
            Phase::Asking(asking) => asking.from.as_ref().map(|(_, before)| before),
            Phase::Retaining(retaining) => Some(&retaining.before),
            Phase::Idle | Phase::Holding(_) | Phase::Waiting | Phase::Crashed => None,
        };
        of_phase.into_iter().chain(self.passed.iter().map(|passed| &passed.before))
    }

    /// Whether it waits for the verdict of this round.
    pub(super) fn awaits(&self, no: u16) -> bool {
        let round = match &self.phase {
            Phase::Holding(held) => held.renewing,
            Phase::Retaining(retaining) => retaining.round,
            Phase::Waiting => self.wait.as_ref().and_then(|wait| wait.round()),
            Phase::Idle | Phase::Asking(_) | Phase::Crashed => None,
        };
        round == Some(no)
    }

    /// Whether its timer has fired.
    pub(super) fn is_due(&self, tick: u16) -> bool {
        let now = moment(tick);
        let is_silent = |no| self.round(no).poll_timeout(now).is_none();
        let phase = match &self.phase {
            Phase::Asking(asking) => asking.attempt.poll_silence(now).is_none(),
            Phase::Holding(held) => held.deadline <= now || held.renewing.is_some_and(is_silent),
            Phase::Retaining(retaining) => retaining.round.map_or(retaining.again <= now, is_silent),
            Phase::Waiting => self.is_wait_due(tick),
            Phase::Idle | Phase::Crashed => false,
        };
        let undo = |undoing: &Undoing| undoing.undo.poll_timeout(now).is_none_or(|at| at <= now);
        phase || self.passed.iter().any(|passed| is_silent(passed.round)) || self.undos.iter().any(undo)
    }

    /// Whether it has nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Crashed) && self.passed.is_empty() && self.undos.is_empty()
    }

    /// Returns the lease, while it is valid.
    pub(super) fn lease(&self, now: u16) -> Option<&Holding> {
        let Phase::Holding(held) = &self.phase else { return None };
        (moment(now) < held.deadline).then_some(held)
    }

    /// Counts the leases that its callers rely on.
    pub(super) fn count_leases(&self, now: u16) -> usize {
        let before_until = match &self.phase {
            Phase::Asking(asking) => asking.before_until,
            Phase::Holding(held) => held.before_until,
            Phase::Idle | Phase::Waiting | Phase::Retaining(_) | Phase::Crashed => Moment::ORIGIN,
        };
        usize::from(self.lease(now).is_some()) + usize::from(moment(now) < before_until)
    }

    pub(super) fn crash(&mut self) {
        *self = Client { phase: Phase::Crashed, waits: self.waits, ..Client::new(self.index.into(), 0) };
    }

    pub(super) fn round(&self, no: u16) -> &Round {
        let found = self.rounds.iter().find(|(other, _)| *other == no);
        found.map_or_else(|| unreachable!("round {no} was forgotten"), |(_, round)| round)
    }
}

/// What the engine decides.
impl Client {
    /// Like `Attempt::start`, or the round of `Keeper::pass_on`.
    pub(super) fn ask(
        &mut self,
        cx: &mut Cx<'_>,
        (from, first): (Option<(Arc<Claim>, Behind)>, Option<usize>),
        seen: Option<FencingToken>,
        before_until: Moment,
    ) {
        let claim = Arc::new(Claim::new(KEY.into(), token(self.next_name())));
        let fence_hint = Some(FenceHint::at(cx.model.wall(cx.now), seen, Duration::MAX));
        let (wanted, now) = (Wanted { claim, ttl: cx.model.ttl(), fence_hint }, cx.moment());
        let attempt = match &from {
            None => Attempt::ask(cx.model, now, wanted, first),
            Some((from, _)) => Attempt::pass_on(cx.model, now, wanted, from.clone()),
        };
        let asking = Asking { no: self.next_no(), attempt, from, before_until, is_wanted: true };
        self.phase = Phase::Asking(Box::new(asking));
        self.send_due(cx);
    }

    pub(super) fn next_name(&mut self) -> u8 {
        // A wait has many attempts, of which few are in flight.
        self.drawn = if self.wait.is_some() { self.drawn % 4 + 1 } else { self.drawn + 1 };
        self.index * 16 + self.drawn
    }

    pub(super) fn next_no(&mut self) -> u16 {
        self.began += 1;
        self.began
    }

    /// Sends what the attempt wants sent. Returns whether there was anything.
    fn send_due(&mut self, cx: &mut Cx<'_>) -> bool {
        let mut is_any = false;
        while let Phase::Asking(asking) = &mut self.phase
            && let Some((index, request)) = asking.attempt.poll_request(cx.model, cx.moment())
        {
            let to = (asking.no, index);
            self.send(cx, to, request);
            is_any = true;
        }
        is_any
    }

    /// Like `Round::start`.
    pub(super) fn begin(&mut self, cx: &mut Cx<'_>, request: Request) -> u16 {
        let is_transfer = matches!(request, Request::Transfer { .. });
        let expect = if is_transfer { Expect::Hold } else { Expect::Kept };
        let question = Question::by(Some(&request), expect, cx.model.ttl());
        let (no, request) = (self.next_no(), SharedRequest::from(request));
        self.rounds.push((no, Round::new(cx.model, question, cx.moment(), |_| Asked::Now)));
        (0..cx.model.nodes).for_each(|node| self.send(cx, (no, node), request.clone()));
        no
    }

    pub(super) fn send(&self, cx: &mut Cx<'_>, to: To, request: SharedRequest) {
        let What { claim, stores, .. } = what(&request);
        let mut undone = self.undos.iter().map(|undoing| name(undoing.undo.claim()));
        if stores && (undone.any(|name| name == claim) || self.ended.iter().any(|ended| ended.name == claim))
        {
            cx.violated = Some(BEHIND);
        }
        cx.sent.push((to, request));
    }

    /// Like what follows a verdict in `Contender::contend` and `Keeper::pass_on`.
    fn decide(&mut self, cx: &mut Cx<'_>) -> bool {
        let Phase::Asking(asking) = &mut self.phase else { return false };
        let (model, now) = (cx.model, cx.moment());
        let decided = asking.attempt.decide(model, now);
        let skips = model.scheme == Scheme::NoWriteBack && asking.attempt.unwritten().is_some();
        let Some(verdict) = decided.or(skips.then_some(Verdict::Won)) else { return self.send_due(cx) };
        let Asking { no, mut attempt, from, before_until, is_wanted } = Asking::clone(asking);
        let verdict = cx.verdict(verdict, attempt.round(), from.is_some());
        let number = attempt.number().or_else(|| attempt.round().largest_number(model));
        let claim = attempt.claim().clone();
        let in_time = attempt.round().is_in_time(model, Real::drift(), model.max_ttl() / 2, now);
        let is_next = model.scheme == Scheme::PassedFromVotes && from.is_some();
        let late = model.scheme == Scheme::FromVotes || is_next;
        let deadline = if late { cx.late_deadline() } else { attempt.round().deadline(model, Real::drift()) };
        let (passed, of) = if from.is_some() { (true, Of::Lease) } else { (false, Of::Attempt) };
        self.phase = Phase::Idle;
        self.rounds.push((no, attempt.round().clone()));
        self.passed.extend(from.map(|(claim, before)| Passed { claim, before, round: no, retained: false }));
        if let (Verdict::Won, true, Some(number)) = (verdict, in_time, number) {
            self.phase = Phase::Holding(Holding {
                claim,
                keep: cx.keep(),
                latest: Some(no),
                renewing: None,
                deadline,
                before_until,
                number,
                passed,
                renewed: false,
                interrupted: false,
            });
            cx.granted = Some(number);
            self.served = true;
            self.end_wait(cx, true);
            if !is_wanted {
                self.release(cx);
            }
        } else {
            let states = attempt.give_up();
            self.take_back(cx, &claim, states, of);
            self.lose_attempt(cx, verdict, &attempt);
        }
        true
    }

    /// Like `Keeper::apply_verdict`.
    fn decide_renewal(&mut self, cx: &mut Cx<'_>) -> bool {
        let Phase::Holding(Holding { renewing: Some(no), .. }) = self.phase else { return false };
        let (now, found) = (cx.moment(), self.rounds.iter_mut().find(|(other, _)| *other == no));
        let decided = found.and_then(|(_, round)| Some((round.decide(cx.model, now)?, round.clone())));
        let Some((verdict, round)) = decided else { return false };
        let verdict = cx.verdict(verdict, &round, false);
        let Phase::Holding(held) = &mut self.phase else { return false };
        (held.latest, held.renewing) = (Some(no), None);
        let (term, never) = (Term::until(held.deadline), Moment::from_nanos(u64::MAX));
        match held.keep.count(cx.model, (&round, verdict), (&term, never, Real::drift()), now) {
            Renewed::Confirmed(deadline) => {
                let late = cx.model.scheme == Scheme::FromAnswers;
                let deadline = if late { cx.late_deadline() } else { deadline };
                (held.deadline, held.renewed) = (held.deadline.max(deadline), true);
            }
            Renewed::Unconfirmed => {}
            Renewed::Late | Renewed::QuorumLost => self.release(cx),
        }
        true
    }

    fn expire(&mut self, cx: &mut Cx<'_>) -> bool {
        let is_over = matches!(&self.phase, Phase::Holding(held) if held.deadline <= cx.moment());
        if is_over {
            self.release(cx);
        }
        is_over
    }

    /// A node without the new token may still have the old one.
    fn clean_up_passed(&mut self, cx: &mut Cx<'_>) -> bool {
        let is_settled = |passed: &Passed| self.round(passed.round).poll_timeout(cx.moment()).is_none();
        let Some(at) = self.passed.iter().position(is_settled) else { return false };
        let Passed { claim, before, round, retained } = self.passed.remove(at);
        let (states, mut replaced) = (self.round(round).key_states(), Replaced::new(before.states));
        if cx.model.scheme != Scheme::NotSettled {
            replaced = replaced.settled(self.left(cx.model, before.without, before.last));
        }
        if retained {
            self.stop_renewals(cx, &claim, replaced, states);
            return true;
        }
        let mut left = replaced.left_behind(states);
        if cx.model.scheme == Scheme::TransferSettles {
            let settled = |left, state| if state == KeyState::Holds { KeyState::Without } else { left };
            left = left.with(states, settled);
        }
        self.take_back(cx, &claim, left, Of::Lease);
        true
    }

    /// Like `Keeper::settle`.
    pub(super) fn settle(&self, model: &Real, held: &Holding) -> Behind {
        let (without, last) = (held.keep.left(None), held.latest.or(held.renewing));
        Behind { states: self.left(model, without, last), without, last }
    }

    /// What its rounds have left by now.
    fn left(&self, model: &Real, without: KeyStates, last: Option<u16>) -> KeyStates {
        let Some(last) = last.map(|no| self.round(no).key_states()) else { return without };
        let answered = |later| matches!(later, KeyState::Holds | KeyState::Without);
        let forgets = model.scheme == Scheme::Forgotten;
        without
            .with(last, |before, later| if forgets && answered(later) { later } else { before.then(later) })
    }

    pub(super) fn take_back(&mut self, cx: &mut Cx<'_>, claim: &Arc<Claim>, states: KeyStates, of: Of) {
        let gone = (0..cx.model.nodes).filter(|node| states.get(*node) == KeyState::Without).collect();
        self.take_back_from(cx, claim, (states, gone), of);
    }

    /// Where the key is `gone`, or never was, it must not come back.
    pub(super) fn take_back_from(
        &mut self,
        cx: &mut Cx<'_>,
        claim: &Arc<Claim>,
        (states, gone): (KeyStates, NodeSet),
        of: Of,
    ) {
        let (ttl, linger) = (cx.model.ttl(), cx.model.max_ttl());
        let terms = Terms { of, ttl, linger, drift: Real::drift(), is_wanted: false, offer: None };
        let (no, since) = (self.next_no(), cx.now);
        match Undo::start(cx.model, cx.moment(), claim, states, terms) {
            // A wait has any number of attempts.
            None if cx.model.waits => {}
            None => self.ended.push(Ended { name: name(claim), gone, since }),
            Some(undo) => self.undos.push(Undoing { no, undo, of, since, gone, failed: Vec::new() }),
        }
        // Before anything else is sent.
        self.undo(cx);
    }

    /// Drives the undos.
    fn undo(&mut self, cx: &mut Cx<'_>) {
        let now = cx.moment();
        let mut undos = std::mem::take(&mut self.undos);
        for undoing in &mut undos {
            while let Some((node, request)) = undoing.undo.poll_request(cx.model, now) {
                undoing.failed.retain(|(other, _)| *other != node);
                let request = match (&*request, cx.model.scheme) {
                    (Request::Cancel { claim, linger }, Scheme::OnlyReleased) if !linger.is_zero() => {
                        Request::Release { claim: claim.clone() }.into()
                    }
                    (Request::Release { claim }, Scheme::TurnOutlivesRelease) => {
                        Request::Cancel { claim: claim.clone(), linger: Duration::ZERO }.into()
                    }
                    _ => request,
                };
                self.send(cx, (undoing.no, node), request);
            }
        }
        undos.retain(|Undoing { undo, gone, since, .. }| {
            let is_over = undo.is_over(now);
            if is_over && !cx.model.waits {
                self.ended.push(Ended { name: name(undo.claim()), gone: *gone, since: *since });
            }
            !is_over
        });
        self.undos = undos;
    }
}

impl Holding {
    pub(super) fn name(&self) -> u8 {
        name(&self.claim)
    }
}
