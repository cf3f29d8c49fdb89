//! Serves the wait queue of a lock in this process: acquires the lock for the first waiter and
//! passes it on.

use std::sync::Arc;

use futures::future::BoxFuture;
use tracing::Instrument as _;

use super::{Keeper, readers};
use crate::engine::attempt::Attempt;
use crate::engine::contender::Contender;
use crate::engine::context::EngineContext;
use crate::engine::hold::Hold;
use crate::engine::options::AcquireRequest;
use crate::engine::queue::Waiter;
use crate::error::AcquireError;
use quorlock_protocol::Mode;

/// Serves one waiter after the other, until one of them has the lock for itself or the queue is empty.
pub(crate) async fn serve(mut dispatcher: Dispatcher, mut waiter: Waiter) {
    loop {
        match dispatcher.win_for(&mut waiter).await {
            Some(Ok((attempt, rounds))) => {
                let engine = dispatcher.engine.clone();
                let keeper = Keeper::new(&engine, &waiter.acquisition, attempt);
                if dispatcher.mode == Mode::Exclusive {
                    return keeper.succeeded_by(dispatcher).deliver_to(waiter, rounds);
                }
                keeper.deliver_to(waiter, rounds);
                if dispatcher.by != ServedBy::None {
                    Box::pin(readers::follow(&engine, &dispatcher.key)).await;
                }
            }
            Some(Err(error)) => drop(waiter.sender.send(Err(error.into()))),
            None => {}
        }
        match dispatcher.next() {
            Some(next) => waiter = next,
            None => return,
        }
    }
}

/// Serves one wait queue. Dropped, it continues in a task, or closes the queue if that is empty.
pub(crate) struct Dispatcher {
    engine: Arc<EngineContext>,
    key: Arc<str>,
    mode: Mode,
    by: ServedBy,
    /// What is known of contention with other clients, if there was any.
    contender: Option<Contender>,
}

/// What a dispatcher that rests knows of contention with other clients, if there was any.
pub(super) struct Succession(Option<Box<Contender>>);

/// What serves a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServedBy {
    /// The first caller or the holder; a task afterwards.
    Holder,
    /// A task. If it ends before the queue does, because it panicked or its runtime shut down, it
    /// closes the queue so that no caller waits forever.
    Task,
    /// Nothing: the queue was closed (there may be a new one for the same key), or the lock is held. Or the caller is in
    /// no queue.
    None,
}

impl Dispatcher {
    /// Starts to serve the queue in which this `acquisition` is first.
    pub(crate) fn begin(
        engine: Arc<EngineContext>,
        acquisition: &AcquireRequest,
        by: ServedBy,
    ) -> Dispatcher {
        Dispatcher {
            engine,
            key: acquisition.queue_key().clone(),
            mode: acquisition.mode,
            by,
            contender: None,
        }
    }

    /// Stops serving while the lock is held.
    pub(super) fn rest(mut self) -> Succession {
        self.by = ServedBy::None;
        Succession(self.contender.take().map(Box::new))
    }

    /// Serves the queue of `key` after an exclusive lease. Those of readers go on being served.
    pub(super) fn resumed(
        engine: &Arc<EngineContext>,
        key: &Arc<str>,
        Succession(contender): Succession,
    ) -> Dispatcher {
        let (engine, key, contender) = (engine.clone(), key.clone(), contender.map(|contender| *contender));
        Dispatcher { engine, key, mode: Mode::Exclusive, by: ServedBy::Holder, contender }
    }

    /// Contends for the first caller in the queue, in that caller's future.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the attempt is withdrawn, and a task serves the waiters behind it.
    pub(crate) fn lead(
        mut self,
        acquisition: Arc<AcquireRequest>,
    ) -> BoxFuture<'static, Result<Hold, AcquireError>> {
        // An `async fn` would have the contender twice.
        Box::pin(async move {
            // Closing the coordinator waits for this as for a task.
            let _open = self.engine.tasks.tracker.token();
            let (attempt, rounds) = self.win(&acquisition).await?;
            let engine = self.engine.clone();
            Ok(Keeper::new(&engine, &acquisition, attempt).succeeded_by(self).deliver(&acquisition, rounds))
        })
    }

    /// Acquires the lock for a waiter; `None` if it stops to wait.
    async fn win_for(&mut self, waiter: &mut Waiter) -> Option<Result<(Attempt, usize), AcquireError>> {
        tokio::select! {
            biased;
            () = waiter.sender.closed() => None,
            won = self.win(&waiter.acquisition) => Some(won),
        }
    }

    /// Acquires the lock. Also returns the number of rounds.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the attempt is withdrawn.
    async fn win(&mut self, acquisition: &Arc<AcquireRequest>) -> Result<(Attempt, usize), AcquireError> {
        let engine = &self.engine;
        engine.introduced_for(acquisition.wait).await;
        let new = || Contender::new(engine, &acquisition.keys, self.mode);
        let contender = self.contender.get_or_insert_with(new);
        if self.mode == Mode::Exclusive && engine.queues.take_cooldown(&self.key, || engine.now()) {
            contender.back_off().await;
        }
        let won = contender.win(acquisition).instrument(acquisition.span.get()).await;
        let rounds = contender.rounds;
        if !contender.is_contended() {
            self.contender = None;
        }
        Ok((won?, rounds))
    }

    /// Returns the next waiter, or closes the queue if there is none.
    fn next(&mut self) -> Option<Waiter> {
        if self.by == ServedBy::None {
            return None;
        }
        let next = self.engine.queues_of(self.mode).next_or_end(&self.key);
        if next.is_none() {
            self.by = ServedBy::None;
        }
        next
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        match self.by {
            ServedBy::Holder => {
                if let Some(waiter) = self.next() {
                    // As far as is known, the waiter's runtime is driven.
                    let runtime = waiter.runtime.clone();
                    let (engine, key) = (self.engine.clone(), self.key.clone());
                    let (mode, contender) = (self.mode, self.contender.take());
                    let dispatcher = Dispatcher { engine, key, mode, by: ServedBy::Task, contender };
                    self.engine.tasks.spawn(serve(dispatcher, waiter), &runtime);
                }
            }
            ServedBy::Task => self.engine.queues_of(self.mode).end(&self.key),
            ServedBy::None => {}
        }
    }
}
