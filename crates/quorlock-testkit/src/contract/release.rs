//! Clauses about releasing and inspecting.

use quorlock::node::Vote;
use quorlock::protocol::WaiterId;

use super::bench::{Bench, Finding, LONG, ensure, is};
use super::queue::in_place_of;

pub(super) async fn a_release_frees_the_own_key(bench: &Bench<'_>) -> Finding {
    let [first, second] = bench.holder().await?;
    let key = first.key();
    is(&bench.release(&first).await?, &Vote::Granted)?;
    bench.free(key).await?;
    is(&bench.acquire(&second, LONG).await?, &Vote::Granted)
}

pub(super) async fn a_release_leaves_a_foreign_key(bench: &Bench<'_>) -> Finding {
    let [holder, other] = bench.holder().await?;
    is(&bench.release(&other).await?, &Vote::Free)?;
    bench.held(&holder, LONG).await.map(drop)
}

pub(super) async fn a_release_of_a_missing_key_says_that_it_is_free(bench: &Bench<'_>) -> Finding {
    let claim = bench.claim(&bench.key());
    is(&bench.release(&claim).await?, &Vote::Free)?;
    bench.acquire(&claim, LONG).await?;
    bench.release(&claim).await?;
    is(&bench.release(&claim).await?, &Vote::Free)
}

pub(super) async fn a_release_reports_waiting_clients_once(bench: &Bench<'_>) -> Finding {
    let (key, waiter) = (bench.key(), WaiterId::new(1));
    let (holder, next) = (bench.claim(&key), in_place_of(bench, &key, waiter));
    bench.acquire(&holder, LONG).await?;
    bench.enqueue(&key, waiter, LONG, LONG).await?;
    is(&bench.release(&holder).await?, &Vote::Notified)?;
    is(&bench.release(&holder).await?, &Vote::Free)?;
    bench.acquire(&next, LONG).await?;
    // There may have been more waiters than the notified one.
    let vote = bench.release(&next).await?;
    ensure(
        matches!(vote, Vote::Granted | Vote::ReleasedContended),
        format!("there is no waiter, but it reports {vote:?}"),
    )?;
    bench.acquire(&next, LONG).await?;
    is(&bench.release(&next).await?, &Vote::Granted)
}

pub(super) async fn an_inspection_changes_nothing(bench: &Bench<'_>) -> Finding {
    let claim = bench.claim(&bench.key());
    bench.free(claim.key()).await?;
    bench.free(claim.key()).await?;
    bench.acquire(&claim, LONG).await?;
    let before = bench.held(&claim, LONG).await?;
    bench.held(&claim, before).await.map(drop)
}
