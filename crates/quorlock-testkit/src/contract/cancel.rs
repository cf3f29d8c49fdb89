//! Clauses about cancelling: a late request of a cancelled attempt does nothing.
//!
//! A node with other means against late requests may execute an uncontended acquisition in a way that ignores
//! tombstones.

use quorlock::node::Vote;

use super::bench::{Bench, Finding, LONG, acquisition, is};

pub(super) async fn a_cancellation_frees_the_own_key(bench: &Bench<'_>) -> Finding {
    let [claim] = bench.holder().await?;
    is(&bench.cancel(&claim, LONG).await?, &Vote::Granted)?;
    bench.free(claim.key()).await
}

pub(super) async fn a_late_acquisition_of_a_cancelled_attempt_does_nothing(bench: &Bench<'_>) -> Finding {
    let claim = bench.claim(&bench.key());
    is(&bench.cancel(&claim, LONG).await?, &Vote::Free)?;
    is(&bench.contend(&claim).await?, &Vote::Free)?;
    bench.free(claim.key()).await
}

pub(super) async fn a_late_renewal_of_a_cancelled_attempt_does_nothing(bench: &Bench<'_>) -> Finding {
    let [claim] = bench.holder().await?;
    bench.cancel(&claim, LONG).await?;
    is(&bench.renew(&claim, LONG).await?, &Vote::Free)?;
    bench.free(claim.key()).await
}

pub(super) async fn a_late_transfer_to_a_cancelled_attempt_does_nothing(bench: &Bench<'_>) -> Finding {
    let [holder, next] = bench.holder().await?;
    is(&bench.cancel(&next, LONG).await?, &Vote::Free)?;
    is(&bench.transfer(&holder, &next, LONG).await?, &Vote::Free)?;
    bench.held(&holder, LONG).await.map(drop)
}

pub(super) async fn a_cancellation_leaves_a_foreign_key_and_still_stops_its_own_attempt(
    bench: &Bench<'_>,
) -> Finding {
    let [holder, cancelled] = bench.holder().await?;
    is(&bench.cancel(&cancelled, LONG).await?, &Vote::Free)?;
    bench.held(&holder, LONG).await?;
    bench.release(&holder).await?;
    is(&bench.contend(&cancelled).await?, &Vote::Free)
}

pub(super) async fn a_cancellation_stops_no_other_attempt(bench: &Bench<'_>) -> Finding {
    let [cancelled, other] = bench.claims();
    bench.cancel(&cancelled, LONG).await?;
    is(&bench.acquire(&other, LONG).await?, &Vote::Granted)?;
    is(&bench.renew(&other, LONG).await?, &Vote::Granted)
}

pub(super) async fn a_tombstone_expires(bench: &Bench<'_>) -> Finding {
    let (claim, lasting) = (bench.claim(&bench.key()), bench.claim(&bench.key()));
    bench.cancel(&lasting, LONG).await?;
    let begun = bench.clock.now();
    bench.cancel(&claim, bench.short).await?;
    let vote = bench.contend(&claim).await?;
    // On a busy machine it may have expired before.
    if bench.clock.now().since(begun) < bench.short {
        is(&vote, &Vote::Free)?;
    }
    bench.until_granted(&acquisition(&claim, LONG, bench.contended_draw())).await?;
    bench.has_lived("a tombstone", begun)?;
    is(&bench.contend(&lasting).await?, &Vote::Free)
}
