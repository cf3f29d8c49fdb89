//! Serves callers of this process that want to share a lock.
//!
//! Readers do not exclude each other: one of them contends for all while a writer is in the way;
//! once it has the lock, the others follow immediately, many in parallel, each lease with its own
//! keeper.

use std::iter;
use std::sync::Arc;

use futures::future::join_all;
use tracing::Instrument as _;

use super::attempt::Attempt;
use super::contender::Contender;
use super::context::EngineContext;
use super::dispatcher::{Dispatcher, ServedBy};
use super::keeper::Keeper;
use super::queue::Waiter;
use quorlock_protocol::machine::wait::AskOrder;
use quorlock_protocol::{Mode, Verdict};

/// How many follow in parallel. Limits the requests queued for a node, which accepts 512 votes.
const BATCH: usize = 64;

/// Serves a queue of readers, beginning with `first`. Returns when the queue is empty.
pub(crate) async fn serve(engine: Arc<EngineContext>, first: Waiter) {
    let keys = first.acquisition.keys.clone();
    let key = keys.queue_key();
    let mut dispatcher = Dispatcher::begin(engine.clone(), &first.acquisition, ServedBy::Task);
    engine.introduced().await;
    let mut contender = Contender::new(&engine, &keys, Mode::Shared);
    let mut next = Some(first).filter(|first| !first.sender.is_closed()).or_else(|| dispatcher.next());
    while let Some(waiter) = next {
        if Box::pin(contend(&engine, &mut contender, waiter)).await {
            Box::pin(follow(&engine, key)).await;
        }
        next = dispatcher.next();
    }
}

/// Asks once, for a caller that does not wait.
pub(crate) async fn ask_once(engine: Arc<EngineContext>, waiter: Waiter) {
    engine.introduced().await;
    let mut contender = Contender::new(&engine, &waiter.acquisition.keys, Mode::Shared);
    Box::pin(contend(&engine, &mut contender, waiter)).await;
}

/// Contends for the waiter. Returns whether it got the lock.
async fn contend(engine: &Arc<EngineContext>, contender: &mut Contender, mut waiter: Waiter) -> bool {
    let won = tokio::select! {
        biased;
        () = waiter.sender.closed() => return false,
        won = contender.win(&waiter.acquisition).instrument(waiter.acquisition.span.get()) => won,
    };
    match won {
        Ok(attempt) => {
            enter(engine, waiter, attempt, contender.rounds);
            true
        }
        Err(error) => {
            drop(waiter.sender.send(Err(error.into())));
            false
        }
    }
}

/// Acquires the lock for the other readers, until one is refused.
async fn follow(engine: &Arc<EngineContext>, key: &Arc<str>) {
    let queues = engine.queues_of(Mode::Shared);
    loop {
        let batch: Vec<Waiter> = iter::from_fn(|| queues.next(key)).take(BATCH).collect();
        if batch.is_empty() {
            return;
        }
        let refused = join_all(batch.into_iter().map(|waiter| try_to_enter(engine, waiter))).await;
        let mut refused = refused.into_iter().flatten().peekable();
        let is_shut = refused.peek().is_some();
        refused.for_each(|waiter| queues.put_back(key, waiter));
        if is_shut {
            return;
        }
    }
}

/// Makes one attempt. Returns the waiter if it must keep waiting.
async fn try_to_enter(engine: &Arc<EngineContext>, mut waiter: Waiter) -> Option<Waiter> {
    let mut attempt = Attempt::start(engine, &waiter.acquisition, AskOrder::AllAtOnce, (None, None));
    let verdict = tokio::select! {
        biased;
        verdict = attempt.verdict() => verdict,
        () = waiter.sender.closed() => return None,
    };
    if verdict == Verdict::Won && attempt.in_time(engine.now()) {
        let rounds = attempt.rounds();
        enter(engine, waiter, attempt, rounds);
        None
    } else {
        Some(waiter)
    }
}

/// Delivers the lease, which took `rounds` rounds.
fn enter(engine: &Arc<EngineContext>, waiter: Waiter, attempt: Attempt, rounds: usize) {
    Keeper::new(engine, &waiter.acquisition, attempt).deliver_to(waiter, rounds);
}
