//! Clauses about transferring a key.

use quorlock::node::Vote;

use super::bench::{Bench, Finding, LONG, held_by, is};

pub(super) async fn a_transfer_passes_the_key_on_from_its_holder(bench: &Bench<'_>) -> Finding {
    let [holder, next] = bench.holder().await?;
    is(&bench.transfer(&holder, &next, LONG).await?, &Vote::Granted)?;
    bench.held(&next, LONG).await?;
    held_by(&bench.renew(&holder, LONG).await?, next.token(), LONG)?;
    is(&bench.release(&holder).await?, &Vote::Free)?;
    is(&bench.release(&next).await?, &Vote::Granted)
}

pub(super) async fn a_transfer_from_a_stranger_is_refused_and_changes_nothing(bench: &Bench<'_>) -> Finding {
    let [holder, stranger, next] = bench.holder().await?;
    held_by(&bench.transfer(&stranger, &next, LONG * 10).await?, holder.token(), LONG)?;
    bench.held(&holder, LONG).await.map(drop)
}

pub(super) async fn a_transfer_takes_a_free_key(bench: &Bench<'_>) -> Finding {
    let [gone, next] = bench.claims();
    let vote = bench.transfer(&gone, &next, LONG).await?;
    // A node that cannot tell says `Granted`.
    if vote != Vote::Granted {
        is(&vote, &Vote::Restored)?;
    }
    bench.held(&next, LONG).await?;
    is(&bench.transfer(&gone, &next, LONG).await?, &Vote::Granted)
}

pub(super) async fn a_transfer_asked_twice_is_granted_twice(bench: &Bench<'_>) -> Finding {
    let [holder, next] = bench.holder().await?;
    is(&bench.transfer(&holder, &next, LONG).await?, &Vote::Granted)?;
    is(&bench.transfer(&holder, &next, bench.short).await?, &Vote::Granted)?;
    bench.is_held_whole(&next).await
}

pub(super) async fn a_transfer_restarts_the_ttl(bench: &Bench<'_>) -> Finding {
    let [first, second, third] = bench.claims();
    bench.acquire(&first, LONG / 10).await?;
    bench.transfer(&first, &second, LONG).await?;
    bench.is_held_whole(&second).await?;
    bench.transfer(&second, &third, LONG / 10).await?;
    bench.held(&third, LONG / 10).await.map(drop)
}
