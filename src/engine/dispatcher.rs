//! Serves everybody who waits for a lock in this process: wins it for the first, and passes it on.

use std::mem;
use std::sync::Arc;

use futures::future::BoxFuture;
use tracing::Instrument as _;

use super::attempt::Attempt;
use super::contender::Contest;
use super::context::EngineContext;
use super::hold::Hold;
use super::keeper::{Keeper, Succession};
use super::options::AcquireRequest;
use super::queue::Waiter;
use crate::error::AcquireError;
use quorlock_protocol::Mode;

/// Serves those who wait, one after the other, until one of them has the lock or nobody waits.
async fn serve(mut service: Service, mut waiter: Waiter) {
    loop {
        let won = tokio::select! {
            biased;
            () = waiter.door.closed() => None,
            won = service.win(&waiter.plan) => Some(won),
        };
        match won {
            Some(Ok((attempt, rounds))) => {
                service.by = ServedBy::Holder;
                let shared = service.shared.clone();
                let keeper = Keeper::new(&shared, &waiter.plan, attempt).succeeded_by(service.rest());
                return keeper.deliver_to(waiter, rounds);
            }
            Some(Err(error)) => drop(waiter.door.send(Err(error.into()))),
            None => {}
        }
        match service.next() {
            Some(next) => waiter = next,
            None => return,
        }
    }
}

/// The service of a line. Whoever has it serves those who wait there; dropped, it goes to a task that
/// does, or the line ends with it where nobody waits.
pub(crate) struct Service {
    shared: Arc<EngineContext>,
    key: Arc<str>,
    mode: Mode,
    by: ServedBy,
    /// What is known of the struggle with others, if there has been one.
    contest: Option<Box<Contest>>,
}

/// By whom a line is served.
pub(crate) enum ServedBy {
    /// By whoever is first in it or has the lock. After that, by a task.
    Holder,
    /// By a task of which that is the purpose. Should it end before the line does, because it panicked
    /// or its runtime is shut down, then the line ends with it, and nobody waits in it for ever.
    Task,
    /// The line has ended before: there may be a new one for the same key.
    Nobody,
}

impl Service {
    /// Of the line in which whoever has this plan is first.
    pub(crate) fn begin(shared: Arc<EngineContext>, plan: &AcquireRequest, by: ServedBy) -> Service {
        Service { shared, key: plan.line().clone(), mode: plan.mode, by, contest: None }
    }

    /// The lock is held: whoever has it has the line served after that.
    fn rest(mut self) -> Box<dyn Succession> {
        self.by = ServedBy::Nobody;
        match self.contest.take() {
            Some(contest) => contest,
            // Without a size, so that it takes no room.
            None => Box::new(Uncontended),
        }
    }

    /// Serves the line of `key` after a lease. Readers do not rest: they serve their line by a task.
    fn resumed(
        shared: Arc<EngineContext>,
        key: Arc<str>,
        contest: Option<Box<Contest>>,
        first: Waiter,
    ) -> BoxFuture<'static, ()> {
        // From here on the line ends with it, should it be dropped before it is polled.
        let service = Service { shared, key, mode: Mode::Exclusive, by: ServedBy::Task, contest };
        Box::pin(serve(service, first))
    }

    /// Contends for whoever is first in the line, in its own future.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the attempt is taken back, and those who have come behind are served by a task.
    pub(crate) async fn lead(mut self, plan: Arc<AcquireRequest>) -> Result<Hold, AcquireError> {
        // Whoever closes the coordinator waits for this as for a task.
        let _open = self.shared.tasks.tracker.token();
        let (attempt, rounds) = self.win(&plan).await?;
        let shared = self.shared.clone();
        Ok(Keeper::new(&shared, &plan, attempt).succeeded_by(self.rest()).deliver(&plan, rounds))
    }

    /// Contends for whoever has this plan, and says how many rounds it took.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the attempt is taken back.
    async fn win(&mut self, plan: &Arc<AcquireRequest>) -> Result<(Attempt, usize), AcquireError> {
        let shared = &self.shared;
        shared.introduced().await;
        let new = || Box::new(Contest::new(shared, &plan.keys, self.mode));
        let contest = self.contest.get_or_insert_with(new);
        if shared.lines.owes_courtesy(&self.key, || shared.now()) {
            contest.give_way().await;
        }
        let won = contest.win(plan).instrument(plan.span.get()).await;
        let rounds = contest.rounds;
        if !contest.met_others() {
            self.contest = None;
        }
        Ok((won?, rounds))
    }

    /// Who is next in the line. When nobody is, the line has ended.
    pub(crate) fn next(&mut self) -> Option<Waiter> {
        let next = self.shared.lines_of(self.mode).next_or_end(&self.key);
        if next.is_none() {
            self.by = ServedBy::Nobody;
        }
        next
    }
}

/// A contest goes on after the lease that it has won, with what it has learnt.
impl Succession for Contest {
    fn serve(
        self: Box<Self>,
        shared: Arc<EngineContext>,
        key: Arc<str>,
        first: Waiter,
    ) -> BoxFuture<'static, ()> {
        Service::resumed(shared, key, Some(self), first)
    }
}

/// A key for which there was no struggle with others.
struct Uncontended;

impl Succession for Uncontended {
    fn serve(
        self: Box<Self>,
        shared: Arc<EngineContext>,
        key: Arc<str>,
        first: Waiter,
    ) -> BoxFuture<'static, ()> {
        Service::resumed(shared, key, None, first)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        match mem::replace(&mut self.by, ServedBy::Nobody) {
            ServedBy::Holder => {
                if let Some(waiter) = self.next() {
                    // Whoever waits has a runtime that is driven, as far as anybody knows.
                    let runtime = waiter.runtime.clone();
                    let (shared, key) = (self.shared.clone(), self.key.clone());
                    let (mode, contest) = (self.mode, self.contest.take());
                    let service = Service { shared, key, mode, by: ServedBy::Task, contest };
                    self.shared.tasks.spawn(serve(service, waiter), &runtime);
                }
            }
            ServedBy::Task => self.shared.lines_of(self.mode).end(&self.key),
            ServedBy::Nobody => {}
        }
    }
}
