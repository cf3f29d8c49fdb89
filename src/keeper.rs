//! The one task that owns a lease's whole life: it acquires, renews and releases, and passes the
//! lock on to whoever waits for it next in this process.
//!
//! Because one task does all of that, a renewal and a release cannot race, dropping a lease is
//! only a message, and whoever waits for a lock may stop waiting at any point: the task goes on
//! and cleans up.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::oneshot;
use tracing::{Instrument as _, debug, warn};

use crate::attempt::{Attempt, aim, clean_up, new_claim};
use crate::ballot::Holder;
use crate::coordinator::Shared;
use crate::draw;
use crate::error::{LossReason, Lost, RenewError};
use crate::lease::{Lease, LeaseState, Mail};
use crate::lock::{Fencing, Plan, Renewal, Turn};
use crate::meter::{At, Held, Passed, Renewed};
use crate::node::Question;
use crate::protocol::{Backoff, Claim, FencingToken, Keys, Mode, Moment, Verdict};
use crate::round::{Aim, Round, Standing};
use crate::sweep::Sweep;
use crate::wait::contest::{COURTESY, Contest, Outcome};
use crate::wait::line::{Waiter, Whose};

/// Serves the line for `key`: everybody who waits for it in this process, one after the other.
/// Ends when nobody waits any more.
pub(crate) async fn keep(shared: Arc<Shared>, keys: Keys) {
    let key = keys.line().clone();
    let service = Service::of(&shared, Mode::Exclusive, &key);
    Box::pin(shared.introduced()).await;
    let mut contest = Contest::new(&shared, &keys, Mode::Exclusive);
    let mut unfinished: Option<Sweep> = None;
    while let Some(mut waiter) = shared.lines.next_or_end(&key) {
        if let Some(sweep) = unfinished.take() {
            shared.spawn(sweep.finish());
        }
        if shared.lines.owes_courtesy(&key, shared.now()) {
            Box::pin(contest.give_way()).await;
        }
        // Boxed, so that a lease held for hours does not carry the room for acquiring it.
        let span = waiter.span.clone();
        let mut keeper = match Box::pin(contest.win(&mut waiter).instrument(span)).await {
            Outcome::Won(attempt) => Keeper::new(&shared, &waiter.plan, attempt),
            Outcome::Failed(error) => {
                drop(waiter.door.send(Err(error)));
                continue;
            }
            Outcome::Gone => {
                leave_line(&shared, &waiter.plan);
                continue;
            }
        };
        let mut series = Series::new(shared.now());
        keeper.deliver(waiter, contest.rounds);
        loop {
            let reply = match keeper.hold().await {
                Ended::Lost(reason) => {
                    keeper.lose(reason);
                    break;
                }
                // Whoever waits here waits for readers now, of whom this is one.
                Ended::Downgraded => {
                    shared.spawn(keeper.stay());
                    break;
                }
                Ended::Released(reply) => reply,
            };
            let next =
                if series.goes_on(&keeper.plan, shared.now()) { shared.lines.next(&key) } else { None };
            let Some(next) = next else {
                unfinished = Box::pin(keeper.release(reply)).await;
                break;
            };
            let reply = match keeper.hand_over(&next, reply) {
                Ok(()) => {
                    keeper.deliver(next, 0);
                    continue;
                }
                Err(reply) => reply,
            };
            let Some((passed, rounds)) = Box::pin(keeper.pass_on(&next, reply)).await else {
                // It came first, and stays first.
                shared.lines.put_back(&key, next);
                break;
            };
            keeper = passed;
            keeper.deliver(next, rounds);
        }
    }
    // The line is gone; a new one for the same key may be there already.
    service.end();
    // Nobody waits, so what is left to do needs no task of its own.
    if let Some(sweep) = unfinished {
        Box::pin(sweep.finish()).await;
    }
}

/// The service of a line. Should it end before the line does, because its task panicked or its
/// runtime is shut down, then the line ends with it, and nobody waits in it for ever.
pub(crate) struct Service<'a> {
    shared: &'a Arc<Shared>,
    mode: Mode,
    key: &'a Arc<str>,
    over: bool,
}

impl<'a> Service<'a> {
    pub(crate) fn of(shared: &'a Arc<Shared>, mode: Mode, key: &'a Arc<str>) -> Service<'a> {
        Service { shared, mode, key, over: false }
    }

    /// The line has ended before.
    pub(crate) fn end(mut self) {
        self.over = true;
    }
}

impl Drop for Service<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.shared.lines_of(self.mode).end(self.key);
        }
    }
}

/// Leases passed on from one waiter of this process to the next, without a chance for others.
struct Series {
    began: Moment,
    passed: u32,
}

impl Series {
    fn new(now: Moment) -> Series {
        Series { began: now, passed: 0 }
    }

    /// Whether one more may follow.
    fn goes_on(&mut self, plan: &Plan, now: Moment) -> bool {
        let span = plan.hand_over.span.unwrap_or(plan.ttl);
        let goes_on = self.passed < plan.hand_over.times && now.since(self.began) < span;
        self.passed += 1;
        goes_on
    }
}

/// Whoever waited in fair order and does so no longer is not to hold up the others.
fn leave_line(shared: &Arc<Shared>, plan: &Plan) {
    if let Turn::Fair(ticket) = plan.turn {
        let question = |_| Some(Question::LeaveLine { key: plan.keys.first().clone(), ticket });
        drop(Round::start(&shared.nodes, Aim::Hear, plan.ttl, question));
    }
}

/// Keeps one lease.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    plan: Arc<Plan>,
    state: Arc<LeaseState>,
    claim: Arc<Claim>,
    /// What the rounds before the latest one have left at each node.
    standings: Vec<Standing>,
    latest: Arc<Round>,
    /// Who asked for the renewal whose verdict is still open, if there is one.
    renewing: Option<Vec<RenewReply>>,
    /// When to renew next; never for a lease that is renewed by hand.
    due: Option<Moment>,
    retry: Backoff,
    /// Whether the latest renewal was not confirmed.
    failing: bool,
    held: Held,
}

type RenewReply = oneshot::Sender<Result<(), RenewError>>;
type ReleaseReply = oneshot::Sender<Result<(), Lost>>;

/// What wakes the keeper.
enum Event {
    /// The verdict on a renewal is there.
    Verdict(Verdict),
    /// The holder wants something.
    Mail(Mail),
    /// The coordinator is being closed.
    Closing,
    /// A renewal is due, or the end has come.
    Time,
}

/// How holding ended.
enum Ended {
    /// The holder gives the lock back, and perhaps waits to hear that it is done.
    Released(Option<ReleaseReply>),
    /// Against the holder's will.
    Lost(LossReason),
    /// It goes on, but shared.
    Downgraded,
}

impl Keeper {
    pub(crate) fn new(shared: &Arc<Shared>, plan: &Arc<Plan>, attempt: Attempt) -> Keeper {
        let deadline = attempt.deadline();
        let (claim, round, fence) = attempt.keep();
        Keeper::of(shared, plan, claim, round, fence, deadline)
    }

    fn of(
        shared: &Arc<Shared>,
        plan: &Arc<Plan>,
        claim: Arc<Claim>,
        round: Arc<Round>,
        fence: Option<FencingToken>,
        deadline: Moment,
    ) -> Keeper {
        let hold_until = plan.max_hold.map(|longest| round.sent + longest);
        let state = LeaseState::new(&plan.resource, &claim, fence, deadline, hold_until, shared);
        round.retire();
        Keeper {
            state,
            claim,
            standings: vec![Standing::Without; shared.nodes.quorum.nodes()],
            due: plan.renewal.due(round.sent, plan.ttl),
            held: plan.meter.held(round.sent),
            latest: round,
            renewing: None,
            retry: plan.retry_backoff(),
            failing: false,
            shared: shared.clone(),
            plan: plan.clone(),
        }
    }

    /// Keeps a lease that stands in nobody's way here, until it ends.
    pub(crate) async fn stay(mut self) {
        loop {
            match self.hold().await {
                Ended::Downgraded => {}
                Ended::Lost(reason) => return self.lose(reason),
                Ended::Released(reply) => {
                    if let Some(sweep) = Box::pin(self.release(reply)).await {
                        Box::pin(sweep.finish()).await;
                    }
                    return;
                }
            }
        }
    }

    /// Hands the lease out, which took so many rounds, and tells the others who has it now.
    pub(crate) fn deliver(&self, waiter: Waiter, rounds: usize) {
        let now = self.shared.now();
        let (resource, span) = (&self.plan.resource, &waiter.span);
        if !span.is_disabled() {
            span.record("rounds", rounds).record("token", self.state.token.short());
        }
        let token = || self.state.token.short();
        let fence = || self.state.fence.map(FencingToken::get);
        debug!(parent: span, %resource, token = %token(), fence = fence(), "acquired");
        self.plan.meter.rounds(rounds);
        self.plan.meter.remaining(At::Acquire, self.state.left(now), self.plan.ttl);
        if self.claim.mode() == Mode::Exclusive {
            self.tell(now);
        }
        // A lease that nobody takes in is dropped with the failed message, and so given back.
        drop(waiter.door.send(Ok(Lease::new(self.state.clone()))));
    }

    /// Tells those who wait here who has the lock.
    fn tell(&self, now: Moment) {
        let holder = Holder {
            token: self.claim.token().clone(),
            fence: self.state.fence,
            nodes: self.shared.nodes.quorum.needed(),
            remaining: self.state.left(now),
            readers: Vec::new(),
            key: None,
        };
        self.set_held(true);
        self.shared.lines.tell(self.plan.line(), None, Some(&holder), now);
    }

    async fn hold(&mut self) -> Ended {
        loop {
            let event = self.next_event().await;
            let now = self.shared.now();
            let running = self.state.term.remaining(now).is_some();
            let outcome = match event {
                Event::Mail(mail) if mail.ends() && running => return Ended::Released(mail.release),
                Event::Mail(mail) if mail.ends() => {
                    let lost = self.state.end(self.state.lapsed(now));
                    if let Some(reply) = mail.release {
                        drop(reply.send(Err(lost.clone())));
                    }
                    Err(lost.reason)
                }
                _ if !running => Err(self.state.lapsed(now)),
                Event::Mail(Mail { downgrade: Some(reply), mut renewals, .. }) => {
                    renewals.push(reply);
                    self.downgrade(renewals);
                    return Ended::Downgraded;
                }
                Event::Mail(mail) => {
                    self.renew(mail.renewals);
                    Ok(())
                }
                Event::Verdict(verdict) => self.count(verdict, now),
                Event::Closing => Err(LossReason::Closed),
                Event::Time => {
                    if self.renewing.is_none() && self.due.is_some_and(|due| now >= due) {
                        self.renew(Vec::new());
                    }
                    Ok(())
                }
            };
            if let Err(reason) = outcome {
                return Ended::Lost(reason);
            }
        }
    }

    async fn next_event(&self) -> Event {
        let now = self.shared.now();
        let end = self.state.term.remaining(now).unwrap_or(now);
        let wake = match self.due {
            Some(due) if self.renewing.is_none() => due.min(end),
            _ => end,
        };
        let verdict = async {
            match self.renewing {
                // Boxed: nearly always there is nothing to wait for.
                Some(_) => Box::pin(self.latest.verdict()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            verdict = verdict => Event::Verdict(verdict),
            mail = self.state.mail() => Event::Mail(mail),
            () = self.shared.closing.cancelled() => Event::Closing,
            () = self.shared.sleep_until(wake) => Event::Time,
        }
    }

    /// Asks every node for a full TTL from now on, and to store the key anew where it was lost:
    /// so a lease that is held for long survives the restart of one node after the other.
    fn renew(&mut self, asked_by: Vec<RenewReply>) {
        if let Some(renewing) = &mut self.renewing {
            renewing.extend(asked_by);
            return;
        }
        self.standings = self.standings();
        // What it has not sent yet must not come after a release: this round takes its place.
        self.latest.abandon();
        let question = || {
            let (claim, ttl, fence) = (self.claim.clone(), self.plan.ttl, self.state.fence);
            Question::Renew { claim, ttl, fence }
        };
        self.latest = Round::start(&self.shared.nodes, Aim::Hold, self.plan.ttl, |_| Some(question()));
        self.renewing = Some(asked_by);
    }

    /// The lease is shared from now on. The nodes learn it by the first renewal of the share, and where
    /// that is lost by the next: until then a node keeps out more than it has to (rule S-6).
    fn downgrade(&mut self, mut asked_by: Vec<RenewReply>) {
        self.set_held(false);
        self.claim = Arc::new(Claim::clone(&self.claim).shared());
        // Nothing is learnt from the verdict on a renewal that asked for more.
        asked_by.extend(self.renewing.take().unwrap_or_default());
        debug!(resource = %self.plan.resource, token = %self.state.token.short(), "shared from now on");
        self.renew(asked_by);
    }

    /// Tells those who wait here whether the lock is held here: alone.
    fn set_held(&self, held: bool) {
        if self.claim.mode() == Mode::Exclusive {
            self.shared.lines.set_held(self.plan.line(), held);
        }
    }

    /// Draws the consequences of a renewal.
    ///
    /// A quorum of all nodes must have confirmed (rule I-8), the new deadline counts from before
    /// the renewal was sent (I-7), and only if the old one has not passed by now (I-9). Anything
    /// less changes nothing, and is tried again until the deadline (I-11). But if so many nodes
    /// are known not to have held the key that others may have a quorum, the lease is over at once.
    fn count(&mut self, verdict: Verdict, now: Moment) -> Result<(), LossReason> {
        let replies = self.renewing.take().unwrap_or_default();
        let without = self.latest.tally(now).denied();
        let (meter, left) = (&self.plan.meter, self.state.left(now));
        let outcome = if without >= self.shared.nodes.quorum.blocking() {
            meter.renewed(Renewed::Refuted);
            Err(LossReason::Refuted)
        } else if verdict == Verdict::Carried {
            let deadline = self.shared.drift.deadline(self.latest.sent, self.plan.ttl);
            if self.state.renew(deadline, now) {
                meter.renewed(Renewed::Confirmed);
                meter.remaining(At::Renewal, left, self.plan.ttl);
                Ok(true)
            } else {
                meter.renewed(Renewed::Late);
                Err(self.state.lapsed(now))
            }
        } else {
            meter.renewed(Renewed::Unconfirmed);
            Ok(false)
        };
        let reply = match outcome {
            Ok(true) => {
                debug!(resource = %self.plan.resource, token = %self.state.token.short(), ?left, "renewed");
                self.failing = false;
                self.latest.retire();
                self.due = self.plan.renewal.due(self.latest.sent, self.plan.ttl);
                self.retry = self.plan.retry_backoff();
                Ok(())
            }
            Ok(false) => {
                let ballot = self.latest.ballot();
                let resource = &self.plan.resource;
                // The first of a series may be worth a look; the others say the same.
                if self.failing {
                    debug!(%resource, %ballot, ?left, "renewal still not confirmed, trying again");
                } else {
                    warn!(%resource, %ballot, ?left, "renewal not confirmed, trying again");
                }
                self.failing = true;
                if self.due.is_some() {
                    self.due = Some(now + self.retry.next(self.shared.entropy.half()));
                }
                let resource = self.plan.resource.clone();
                Err(RenewError::Unconfirmed { resource, ballot: Box::new(ballot) })
            }
            Err(reason) => Err(RenewError::Lost(self.state.end(reason))),
        };
        for waiting in replies {
            // Whoever asked may have stopped waiting.
            drop(waiting.send(reply.clone()));
        }
        outcome.map(|_| ())
    }

    /// Gives the lock back, and tells the holder when a quorum has confirmed. What is left to do then
    /// is returned.
    async fn release(mut self, reply: Option<ReleaseReply>) -> Option<Sweep> {
        self.end();
        // Before the holder is told: it may ask for the lock again at once.
        self.set_held(false);
        let sweep = Sweep::start(&self.shared, &self.claim, self.plan.ttl, &self.settle())?;
        self.tell_others();
        let verdict = sweep.confirmed().await;
        self.plan.meter.released(verdict);
        if sweep.is_wanted() {
            self.shared.lines.owe_courtesy(self.plan.line(), self.shared.now() + COURTESY);
        }
        if let Some(reply) = reply {
            drop(reply.send(Ok(())));
        }
        (!sweep.is_done()).then_some(sweep)
    }

    /// Hands the lock to the next who waits for it in this process without asking anybody: the key
    /// stands at the nodes as it did, and the new lease ends when the old one would have (rule I-21).
    /// Refused, with the reply that is still to be sent, where that would not do.
    ///
    /// Only without fencing, since the two leases share all that the nodes know of them; only with
    /// as much validity left as a renewal leaves in the worst case, and to somebody who asks for the
    /// same TTL and has it renewed; and not while a renewal is on its way, which belongs to the old
    /// lease.
    fn hand_over(&mut self, next: &Waiter, reply: Option<ReleaseReply>) -> Result<(), Option<ReleaseReply>> {
        let now = self.shared.now();
        let plain = |plan: &Plan| plan.fencing == Fencing::Off && plan.renewal != Renewal::Manual;
        let end = self.state.term.remaining(now).unwrap_or(now);
        let lasts = self.due.is_some_and(|due| now < due) && end.since(now) >= self.plan.ttl / 2;
        let alike = plain(&self.plan) && plain(&next.plan) && next.plan.ttl == self.plan.ttl;
        if !(alike && lasts && self.renewing.is_none()) {
            return Err(reply);
        }
        // First the old lease is over, then there is a new one.
        self.end();
        self.state.close_mail();
        let hold_until = next.plan.max_hold.map(|longest| now + longest);
        self.plan = next.plan.clone();
        self.held = self.plan.meter.held(now);
        self.plan.meter.passed(Passed::Locally);
        // A renewal that failed is tried again as soon as it would have been.
        self.due = self.due.into_iter().chain(self.plan.renewal.due(self.latest.sent, self.plan.ttl)).min();
        self.state = LeaseState::new(&self.plan.resource, &self.claim, None, end, hold_until, &self.shared);
        debug!(resource = %self.plan.resource, token = %self.state.token.short(), "handed over");
        if let Some(reply) = reply {
            drop(reply.send(Ok(())));
        }
        Ok(())
    }

    /// Passes the lock on to the next who waits for it in this process, by one round that replaces
    /// the token: a new lease with a full TTL, and no moment in which the lock is free.
    ///
    /// The old lease has ended before anything is sent, so that the two never overlap; and every
    /// node that grants holds the new token from then on, as if it had been free. `None` if no
    /// quorum did so in time: then both claims are taken back.
    async fn pass_on(mut self, next: &Waiter, reply: Option<ReleaseReply>) -> Option<(Keeper, usize)> {
        self.end();
        let (from, to) = (self.claim.clone(), new_claim(&self.shared, &next.plan));
        let before = self.settle();
        let ttl = next.plan.ttl;
        let draw = self.shared.draw(&next.plan, self.state.fence);
        let question = || Question::Transfer { from: from.clone(), to: to.clone(), ttl, draw };
        let round = Round::start(&self.shared.nodes, aim(draw), ttl, |_| Some(question()));
        let decision = draw::decide(&self.shared, &to, &round).await;
        let now = self.shared.now();
        let deadline = self.shared.drift.deadline(round.sent, ttl);
        if let Some(reply) = reply {
            drop(reply.send(Ok(())));
        }
        // Wherever the new token has not come, the old one may still stand.
        let rest = {
            let (shared, plan, round) = (self.shared.clone(), self.plan.clone(), round.clone());
            async move {
                round.settled().await;
                clean_up(&shared, &from, &plan, &left_behind(&before, &round.standings()));
            }
        };
        self.shared.spawn(rest);
        if decision.verdict == Verdict::Carried && draw::in_time(&self.shared, &round, deadline, now) {
            next.plan.meter.passed(Passed::ByRound);
            let rounds = decision.rounds(&round);
            debug!(resource = %next.plan.resource, token = %to.token().short(), "passed on");
            return Some((Keeper::of(&self.shared, &next.plan, to, round, decision.fence, deadline), rounds));
        }
        next.plan.meter.passed(Passed::Failed);
        debug!(resource = %self.plan.resource, ballot = %decision.round.ballot(), "not passed on");
        round.abandon();
        clean_up(&self.shared, &to, &next.plan, &round.standings());
        self.shared.lines.set_held(self.plan.line(), false);
        None
    }

    /// The holder gives the lock back.
    fn end(&mut self) {
        self.held.released(self.plan.ttl, || {
            let now = self.shared.now();
            (now, self.state.left(now))
        });
        self.state.end(LossReason::Released);
        debug!(resource = %self.plan.resource, token = %self.state.token.short(), "released");
    }

    /// The lease ended against the holder's will. Its keys are of no use to anybody.
    fn lose(mut self, reason: LossReason) {
        self.set_held(false);
        let reason = self.state.end(reason).reason;
        self.held.lost(reason, || self.shared.now());
        let (resource, token) = (&self.plan.resource, || self.state.token.short());
        if reason == LossReason::Closed {
            // The program itself has closed the coordinator.
            debug!(%resource, token = %token(), %reason, "lease ended");
        } else {
            warn!(%resource, token = %token(), %reason, "lease lost");
        }
        clean_up(&self.shared, &self.claim, &self.plan, &self.settle());
        self.tell_others();
    }

    /// Whoever waits for one of the keys in another line of this process may ask now.
    fn tell_others(&self) {
        for mode in [Mode::Exclusive, Mode::Shared] {
            let whose = if mode == self.claim.mode() { Whose::Own } else { Whose::Other };
            self.shared.lines_of(mode).given_back(self.claim.keys(), whose);
        }
    }

    /// Renewals are over (rule I-15): one that was not sent yet is not sent any more, and one that
    /// is on its way is overtaken by nothing, since what follows queues up behind it.
    fn settle(&self) -> Vec<Standing> {
        self.latest.abandon();
        self.standings()
    }

    /// How each node stands after all rounds so far.
    fn standings(&self) -> Vec<Standing> {
        self.standings.iter().zip(self.latest.standings()).map(|(known, later)| known.then(later)).collect()
    }
}

/// Whether it ends as it should, panics, or is dropped with its runtime: nobody is to wait for it.
impl Drop for Keeper {
    fn drop(&mut self) {
        self.state.close_mail();
    }
}

/// Where the old token may still stand after it was to be replaced.
fn left_behind(before: &[Standing], replaced: &[Standing]) -> Vec<Standing> {
    let left = |(before, replaced): (&Standing, &Standing)| match replaced {
        Standing::Holds => Standing::Without,
        Standing::Without => *before,
        Standing::OnItsWay | Standing::Unknown if *before == Standing::Without => Standing::Without,
        Standing::OnItsWay | Standing::Unknown => Standing::Unknown,
    };
    before.iter().zip(replaced).map(left).collect()
}
