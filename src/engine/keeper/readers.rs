//! Lets the readers of this process follow each other.
//!
//! Readers do not exclude each other: one of them contends for all while a writer is in the way (`dispatcher`);
//! once it has the lock, the others follow immediately, many in parallel, each lease with its own
//! keeper.

use std::sync::Arc;

use futures::future::join_all;

use super::Keeper;
use crate::engine::attempt::Attempt;
use crate::engine::context::EngineContext;
use crate::engine::queue::Waiter;
use quorlock_protocol::machine::wait::AskOrder;
use quorlock_protocol::{Mode, Verdict};

/// Acquires the lock for the other readers, until one is refused.
pub(super) async fn follow(engine: &Arc<EngineContext>, key: &Arc<str>) {
    let queues = engine.queues_of(Mode::Shared);
    loop {
        let batch = queues.followers(key);
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
    let mut attempt = Attempt::start(engine, &waiter.acquisition, AskOrder::AllAtOnce, (None, false), None);
    let verdict = tokio::select! {
        biased;
        verdict = attempt.verdict() => verdict,
        () = waiter.sender.closed() => return None,
    };
    if verdict == Verdict::Won && attempt.in_time(engine.now()) {
        let rounds = attempt.rounds();
        Keeper::new(engine, &waiter.acquisition, attempt).deliver_to(waiter, rounds);
        None
    } else {
        Some(waiter)
    }
}
