//! Serves those of this process who want to share a lock.
//!
//! Readers do not exclude each other, so they need not wait for each other either: one of them
//! contends for all, as long as a writer is in the way; once it has got through, the others follow
//! at once, many at a time, and each lease has a keeper of its own.

use std::iter;
use std::sync::Arc;

use futures::future::join_all;
use tracing::Instrument as _;

use super::attempt::{AskOrder, Attempt};
use super::contender::Contest;
use super::context::EngineContext;
use super::dispatcher::{ServedBy, Service};
use super::keeper::Keeper;
use super::queue::Waiter;
use quorlock_protocol::{Mode, Verdict};

/// How many follow at once. It bounds the requests that wait for a node, which takes in 512 votes.
const CROWD: usize = 64;

/// Serves a line of readers in this process, of whom there is a `first` one. Ends when nobody waits any
/// more.
pub(crate) async fn serve(shared: Arc<EngineContext>, first: Waiter) {
    let keys = first.plan.keys.clone();
    let key = keys.line();
    let mut service = Service::begin(shared.clone(), &first.plan, ServedBy::Task);
    shared.introduced().await;
    let mut contest = Contest::new(&shared, &keys, Mode::Shared);
    let mut next = Some(first).filter(|first| !first.door.is_closed()).or_else(|| service.next());
    while let Some(waiter) = next {
        if Box::pin(contend(&shared, &mut contest, waiter)).await {
            Box::pin(follow(&shared, key)).await;
        }
        next = service.next();
    }
}

/// Asks once, for somebody who waits for nobody.
pub(crate) async fn ask_once(shared: Arc<EngineContext>, waiter: Waiter) {
    shared.introduced().await;
    let mut contest = Contest::new(&shared, &waiter.plan.keys, Mode::Shared);
    Box::pin(contend(&shared, &mut contest, waiter)).await;
}

/// Contends until the waiter has got through, and says whether it has.
async fn contend(shared: &Arc<EngineContext>, contest: &mut Contest, mut waiter: Waiter) -> bool {
    let won = tokio::select! {
        biased;
        () = waiter.door.closed() => return false,
        won = contest.win(&waiter.plan).instrument(waiter.plan.span.get()) => won,
    };
    match won {
        Ok(attempt) => {
            enter(shared, waiter, attempt, contest.rounds);
            true
        }
        Err(error) => {
            drop(waiter.door.send(Err(error.into())));
            false
        }
    }
}

/// Somebody has got through: the others follow, until one is refused again.
async fn follow(shared: &Arc<EngineContext>, key: &Arc<str>) {
    let lines = shared.lines_of(Mode::Shared);
    loop {
        let crowd: Vec<Waiter> = iter::from_fn(|| lines.next(key)).take(CROWD).collect();
        if crowd.is_empty() {
            return;
        }
        let refused = join_all(crowd.into_iter().map(|waiter| try_to_enter(shared, waiter))).await;
        let mut refused = refused.into_iter().flatten().peekable();
        let is_shut = refused.peek().is_some();
        refused.for_each(|waiter| lines.put_back(key, waiter));
        if is_shut {
            return;
        }
    }
}

/// One attempt. Returns who has to go on waiting.
async fn try_to_enter(shared: &Arc<EngineContext>, mut waiter: Waiter) -> Option<Waiter> {
    let mut attempt = Attempt::start(shared, &waiter.plan, AskOrder::AllAtOnce, None);
    let verdict = tokio::select! {
        biased;
        verdict = attempt.verdict() => verdict,
        () = waiter.door.closed() => return None,
    };
    if verdict == Verdict::Won && attempt.in_time(shared.now()) {
        let rounds = attempt.rounds();
        enter(shared, waiter, attempt, rounds);
        None
    } else {
        Some(waiter)
    }
}

/// Hands the lease out, which took so many rounds.
fn enter(shared: &Arc<EngineContext>, waiter: Waiter, attempt: Attempt, rounds: usize) {
    Keeper::new(shared, &waiter.plan, attempt).deliver_to(waiter, rounds);
}
