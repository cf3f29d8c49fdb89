//! Clauses about renewing.

use quorlock::node::{Expiry, Vote};

use super::bench::{Bench, Finding, LONG, held_by, is};
use crate::value::Value;

pub(super) async fn a_renewal_prolongs_the_own_key(bench: &Bench<'_>) -> Finding {
    let claim = bench.claim(&bench.key());
    bench.acquire(&claim, LONG / 10).await?;
    is(&bench.renew(&claim, LONG).await?, &Vote::Granted)?;
    bench.is_held_whole(&claim).await
}

pub(super) async fn a_renewal_never_shortens(bench: &Bench<'_>) -> Finding {
    let [claim] = bench.holder().await?;
    is(&bench.renew(&claim, bench.short).await?, &Vote::Granted)?;
    bench.is_held_whole(&claim).await
}

pub(super) async fn a_renewal_restores_a_missing_key_and_says_so(bench: &Bench<'_>) -> Finding {
    let claim = bench.claim(&bench.key());
    is(&bench.renew(&claim, LONG).await?, &Vote::Restored)?;
    bench.held(&claim, LONG).await?;
    is(&bench.renew(&claim, LONG).await?, &Vote::Granted)
}

pub(super) async fn a_renewal_of_a_foreign_key_is_refused_and_changes_nothing(bench: &Bench<'_>) -> Finding {
    let [holder, other] = bench.holder().await?;
    let left = held_by(&bench.renew(&other, LONG * 10).await?, holder.token(), LONG)?;
    bench.is_whole(left)?;
    bench.held(&holder, LONG).await.map(drop)
}

pub(super) async fn a_renewal_gives_an_expiry_to_a_key_without_one(bench: &Bench<'_>) -> Finding {
    let claim = bench.claim(&bench.key());
    let token = Value::Text(claim.token().as_bytes().to_vec());
    bench.plant(claim.key(), token, Expiry::Never).await?;
    is(&bench.renew(&claim, LONG).await?, &Vote::Granted)?;
    bench.held(&claim, LONG).await.map(drop)
}
