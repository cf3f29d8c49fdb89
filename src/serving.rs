//! Serves everybody who waits for a lock in this process: wins it for the first, and passes it on.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tracing::Instrument as _;

use crate::coordinator::Shared;
use crate::keeper::{Ended, Keeper};
use crate::lock::{Plan, Turn};
use crate::node::Question;
use crate::protocol::{Mode, Moment};
use crate::round::{Aim, Round};
use crate::sweep::Sweep;
use crate::wait::contest::{Contest, Outcome};
use crate::wait::line::Waiter;

/// Serves a line: everybody who waits in it in this process, one after the other, of whom there is a
/// `first` one. Ends when nobody waits any more.
pub(crate) fn serve(shared: Arc<Shared>, first: Waiter) -> impl Future<Output = ()> + Send {
    let winning = Box::new(Serving::new(shared, first.plan.line().clone())).win(first);
    async move {
        let mut serving = winning.await;
        loop {
            // The only thing that may take hours, so this task has room for little else.
            while let Some(keeper) = &mut serving.keeper {
                let ended = keeper.hold().await;
                serving = serving.go_on(ended).await;
            }
            let Some(waiter) = serving.service.next() else { break };
            serving = serving.win(waiter).await;
        }
        let Serving { service, unfinished, .. } = *serving;
        // The line is gone; a new one for the same key may be there already.
        service.end();
        // Nobody waits, so what is left to do needs no task of its own.
        if let Some(sweep) = unfinished {
            Box::pin(sweep.finish()).await;
        }
    }
}

/// A line that is served. What takes long but for holding moves it into a future of its own, and gives
/// it back.
struct Serving {
    service: Service,
    /// What is known of the struggle with others, if there has been one.
    contest: Option<Box<Contest>>,
    /// A clean-up that not all nodes have confirmed.
    unfinished: Option<Box<Sweep>>,
    series: Series,
    /// Of the lease, while there is one.
    keeper: Option<Keeper>,
}

type Later = BoxFuture<'static, Box<Serving>>;

impl Serving {
    fn new(shared: Arc<Shared>, key: Arc<str>) -> Serving {
        let series = Series::new(shared.now());
        let service = Service::of(shared, Mode::Exclusive, key);
        Serving { service, contest: None, unfinished: None, series, keeper: None }
    }

    /// Contends for the waiter.
    fn win(mut self: Box<Self>, mut waiter: Waiter) -> Later {
        Box::pin(async move {
            let (shared, key) = (self.service.shared.clone(), self.service.key.clone());
            if let Some(sweep) = self.unfinished.take() {
                shared.spawn(sweep.finish());
            }
            shared.introduced().await;
            if waiter.door.is_closed() {
                return self;
            }
            let contest = self.contest.take().map(|contest| *contest);
            let mut contest =
                contest.unwrap_or_else(|| Contest::new(&shared, &waiter.plan.keys, Mode::Exclusive));
            if shared.lines.owes_courtesy(&key, shared.now()) {
                contest.give_way().await;
            }
            let span = waiter.span.clone();
            match contest.win(&mut waiter).instrument(span).await {
                Outcome::Won(attempt) => {
                    let keeper = Keeper::new(&shared, &waiter.plan, attempt);
                    self.series = Series::new(shared.now());
                    keeper.deliver(waiter, contest.rounds);
                    self.keeper = Some(keeper);
                }
                Outcome::Failed(error) => drop(waiter.door.send(Err(error))),
                Outcome::Gone => leave_line(&shared, &waiter.plan),
            }
            if contest.met_others() {
                self.contest = Some(Box::new(contest));
            }
            self
        })
    }

    /// After a lease has ended: passes the lock on to whoever waits for it here, or gives it back.
    fn go_on(mut self: Box<Self>, ended: Ended) -> Later {
        let Some(mut keeper) = self.keeper.take() else { return Box::pin(ready(self)) };
        let reply = match ended {
            Ended::Lost(reason) => {
                keeper.lose(reason);
                return Box::pin(ready(self));
            }
            // Whoever waits here waits for readers now, of whom this is one.
            Ended::Downgraded => {
                self.service.shared.spawn(keeper.stay());
                return Box::pin(ready(self));
            }
            Ended::Released(reply) => reply,
        };
        let (shared, key) = (&self.service.shared, &self.service.key);
        let next =
            if self.series.goes_on(keeper.series(), shared.now()) { shared.lines.next(key) } else { None };
        let Some(next) = next else {
            return Box::pin(async move {
                self.unfinished = keeper.release(reply).await.map(Box::new);
                self
            });
        };
        match keeper.hand_over(&next, reply) {
            Ok(()) => {
                keeper.deliver(next, 0);
                self.keeper = Some(keeper);
                Box::pin(ready(self))
            }
            Err(reply) => Box::pin(async move {
                match keeper.pass_on(&next, reply).await {
                    Some((passed, rounds)) => {
                        passed.deliver(next, rounds);
                        self.keeper = Some(passed);
                    }
                    // It came first, and stays first.
                    None => self.service.shared.lines.put_back(&self.service.key, next),
                }
                self
            }),
        }
    }
}

/// The service of a line. Should it end before the line does, because its task panicked or its
/// runtime is shut down, then the line ends with it, and nobody waits in it for ever.
pub(crate) struct Service {
    pub(crate) shared: Arc<Shared>,
    pub(crate) key: Arc<str>,
    mode: Mode,
    over: bool,
}

impl Service {
    pub(crate) fn of(shared: Arc<Shared>, mode: Mode, key: Arc<str>) -> Service {
        Service { shared, key, mode, over: false }
    }

    /// Who is next in the line. When nobody is, the line has ended.
    pub(crate) fn next(&self) -> Option<Waiter> {
        self.shared.lines_of(self.mode).next_or_end(&self.key)
    }

    /// The line has ended before.
    pub(crate) fn end(mut self) {
        self.over = true;
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if !self.over {
            self.shared.lines_of(self.mode).end(&self.key);
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

    /// Whether one more may follow, where so many may within this time.
    fn goes_on(&mut self, (times, span): (u32, Duration), now: Moment) -> bool {
        let goes_on = self.passed < times && now.since(self.began) < span;
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
