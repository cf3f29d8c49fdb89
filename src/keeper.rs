//! The one task that owns a lease's whole life: it acquires, renews and releases.
//!
//! Because one task does all three, a renewal and a release cannot race, dropping a lease is
//! only a message, and whoever waits for a lock may stop waiting at any point: the task goes on
//! and cleans up.

use std::future::pending;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::{debug, info, warn};

use crate::coordinator::Shared;
use crate::error::{AcquireError, LossReason, Lost, RenewError};
use crate::lease::{Lease, LeaseState, Mail};
use crate::lock::Plan;
use crate::node::Question;
use crate::protocol::{Backoff, Claim, Moment, Token, Verdict};
use crate::round::{Aim, Round, Standing};
use crate::sweep::Sweep;
use crate::wait::Patience;

/// Where the lease is delivered, or the reason why there is none.
pub(crate) type Door = oneshot::Sender<Result<Lease, AcquireError>>;

/// Acquires the lock for whoever waits at the `door`, then keeps it until it is over.
pub(crate) async fn keep(shared: Arc<Shared>, plan: Arc<Plan>, mut door: Door) {
    // Boxed, so that a lease held for hours does not carry the room for acquiring it.
    let acquired = tokio::select! {
        biased;
        acquired = Box::pin(acquire(&shared, &plan)) => acquired,
        // Nobody waits any more. The attempt in progress cleans up as it is dropped.
        () = door.closed() => return,
    };
    let attempt = match acquired {
        Ok(attempt) => attempt,
        Err(error) => return drop(door.send(Err(error))),
    };
    let keeper = Keeper::new(attempt);
    // A lease that nobody takes in is dropped with the failed message, and so given back.
    drop(door.send(Ok(Lease::new(keeper.state.clone()))));
    keeper.hold().await;
}

/// Tries until a quorum grants, the caller's patience ends, or nothing but mending would help.
async fn acquire(shared: &Arc<Shared>, plan: &Arc<Plan>) -> Result<Attempt, AcquireError> {
    shared.introduced().await;
    let started = shared.now();
    let mut patience = Patience::new(plan.wait, started);
    loop {
        let attempt = Attempt::start(shared, plan);
        let verdict = attempt.round.verdict().await;
        let now = shared.now();
        if verdict == Verdict::Carried && now < attempt.deadline() {
            return Ok(attempt);
        }
        let ballot = Box::new(attempt.round.ballot());
        drop(attempt);
        debug!(resource = %plan.resource, %verdict, %ballot, "not acquired");
        let resource = plan.resource.clone();
        let waited = now.since(started);
        if ballot.needs_mending() {
            return Err(AcquireError::NeedsMending { resource, ballot });
        }
        let Some(pause) = patience.pause(now, shared.entropy.half()) else {
            return Err(match verdict {
                Verdict::Contended => AcquireError::Contended { resource, ballot, waited },
                // Carried, but when nothing was left of the validity: the nodes are too slow.
                Verdict::Unavailable | Verdict::Carried => {
                    AcquireError::Unavailable { resource, ballot, waited }
                }
            });
        };
        tokio::select! {
            biased;
            () = shared.closing.cancelled() => return Err(AcquireError::Closed),
            () = shared.sleep_until(now + pause) => {}
        }
    }
}

/// One round of asking for the lock, with a token of its own (rule I-4).
///
/// Dropped before it has become a lease, it is taken back at every node that it may have reached
/// (rules I-5 and I-20).
struct Attempt {
    shared: Arc<Shared>,
    plan: Arc<Plan>,
    claim: Arc<Claim>,
    round: Arc<Round>,
    kept: bool,
}

impl Attempt {
    fn start(shared: &Arc<Shared>, plan: &Arc<Plan>) -> Attempt {
        let token = Token::new(shared.entropy.bits(), &plan.context);
        let claim = Arc::new(Claim::new(plan.key.clone(), token));
        let question = || Question::Acquire { claim: claim.clone(), ttl: plan.ttl };
        let round = Round::start(&shared.nodes, Aim::Hold, plan.ttl, |_| Some(question()));
        Attempt { shared: shared.clone(), plan: plan.clone(), claim, round, kept: false }
    }

    fn deadline(&self) -> Moment {
        self.shared.drift.deadline(self.round.sent, self.plan.ttl)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.kept {
            self.round.abandon();
            let standings = self.round.standings();
            if let Some(sweep) = Sweep::start(&self.shared, &self.claim, self.plan.ttl, &standings) {
                // Without a runtime, as while one is being shut down, only the TTL ends it.
                if let Ok(runtime) = Handle::try_current() {
                    self.shared.tasks.spawn_on(sweep.finish(), &runtime);
                }
            }
        }
    }
}

/// Keeps one lease.
struct Keeper {
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
}

type RenewReply = oneshot::Sender<Result<(), RenewError>>;

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

impl Keeper {
    fn new(mut attempt: Attempt) -> Keeper {
        attempt.kept = true;
        let (shared, plan) = (attempt.shared.clone(), attempt.plan.clone());
        let hold_until = plan.max_hold.map(|longest| attempt.round.sent + longest);
        let state = LeaseState::new(&plan.resource, &attempt.claim, attempt.deadline(), hold_until, &shared);
        info!(resource = %plan.resource, token = %state.token.short(), "acquired");
        Keeper {
            state,
            claim: attempt.claim.clone(),
            standings: vec![Standing::Without; shared.nodes.quorum.nodes()],
            latest: attempt.round.clone(),
            renewing: None,
            due: plan.renewal.due(attempt.round.sent, plan.ttl),
            retry: plan.retry_backoff(),
            shared,
            plan,
        }
    }

    async fn hold(mut self) {
        loop {
            let event = self.next_event().await;
            let now = self.shared.now();
            let ended = match event {
                Event::Mail(mail) if mail.ends() => {
                    return Box::pin(self.release(mail)).await;
                }
                _ if self.state.term.remaining(now).is_none() => Err(self.state.lapsed(now)),
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
            if let Err(reason) = ended {
                return Box::pin(self.lose(reason)).await;
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
                Some(_) => self.latest.verdict().await,
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
        self.fold();
        let question = || Question::Renew { claim: self.claim.clone(), ttl: self.plan.ttl };
        self.latest = Round::start(&self.shared.nodes, Aim::Hold, self.plan.ttl, |_| Some(question()));
        self.renewing = Some(asked_by);
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
        let outcome = if without >= self.shared.nodes.quorum.blocking() {
            Err(LossReason::Refuted)
        } else if verdict == Verdict::Carried {
            let deadline = self.shared.drift.deadline(self.latest.sent, self.plan.ttl);
            if self.state.renew(deadline, now) { Ok(true) } else { Err(self.state.lapsed(now)) }
        } else {
            Ok(false)
        };
        let reply = match outcome {
            Ok(true) => {
                debug!(resource = %self.plan.resource, "renewed");
                self.due = self.plan.renewal.due(self.latest.sent, self.plan.ttl);
                self.retry = self.plan.retry_backoff();
                Ok(())
            }
            Ok(false) => {
                let ballot = self.latest.ballot();
                let left = self.state.term.remaining(now).unwrap_or(now).since(now);
                warn!(resource = %self.plan.resource, %ballot, ?left, "renewal not confirmed, trying again");
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

    /// The holder gives the lock back.
    async fn release(self, mail: Mail) {
        let now = self.shared.now();
        let held = match self.state.term.remaining(now) {
            Some(_) => {
                self.state.end(LossReason::Released);
                info!(resource = %self.plan.resource, token = %self.state.token.short(), "released");
                Ok(())
            }
            None => Err(self.tell_loss(self.state.lapsed(now))),
        };
        let sweep = self.sweep();
        if let Some(reply) = mail.release {
            if let (Ok(()), Some(sweep)) = (&held, &sweep) {
                sweep.confirmed().await;
            }
            drop(reply.send(held));
        }
        if let Some(sweep) = sweep {
            sweep.finish().await;
        }
    }

    /// The lease ends against the holder's will. Its keys are of no use to anybody.
    async fn lose(self, reason: LossReason) {
        self.tell_loss(reason);
        if let Some(sweep) = self.sweep() {
            sweep.finish().await;
        }
    }

    fn tell_loss(&self, reason: LossReason) -> Lost {
        let lost = self.state.end(reason);
        warn!(resource = %self.plan.resource, token = %self.state.token.short(), %reason, "lease lost");
        lost
    }

    /// Renewals are over (rule I-15): one that was not sent yet is not sent any more, and one that
    /// is on its way is overtaken by nothing, since releases queue up behind it.
    fn sweep(mut self) -> Option<Sweep> {
        self.latest.abandon();
        self.fold();
        Sweep::start(&self.shared, &self.claim, self.plan.ttl, &self.standings)
    }

    fn fold(&mut self) {
        for (known, later) in self.standings.iter_mut().zip(self.latest.standings()) {
            *known = known.then(later);
        }
    }
}
