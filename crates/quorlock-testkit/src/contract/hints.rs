//! Clauses about hints, for a node that gives them.

use std::sync::Arc;
use std::time::Duration;

use quorlock::Vote;
use quorlock::protocol::{Claim, Ticket};

use super::bench::{Bench, Finding, LONG, SHORT, ensure, is};

pub(super) async fn a_removal_by_another_client_is_told_to_who_was_refused(bench: &Bench<'_>) -> Finding {
    let Some(holder) = held(bench, LONG).await? else { return Ok(()) };
    refused(&bench.acquire(&bench.claim(holder.key()), LONG).await?)?;
    bench.remove(holder.key()).await?;
    bench.until_told(holder.key()).await
}

pub(super) async fn a_removal_is_told_to_who_was_refused_in_turn(bench: &Bench<'_>) -> Finding {
    let Some(holder) = held(bench, LONG).await? else { return Ok(()) };
    let waiter = bench.claim(holder.key());
    refused(&bench.acquire_in_turn(&waiter, Ticket::new(1, 1), LONG).await?)?;
    bench.remove(holder.key()).await?;
    bench.until_told(holder.key()).await
}

pub(super) async fn the_end_of_a_key_is_told_to_who_was_refused(bench: &Bench<'_>) -> Finding {
    // On a machine that is busy enough the key ends before it is asked for.
    for ttl in [SHORT, SHORT * 4, SHORT * 16] {
        let Some(holder) = held(bench, ttl).await? else { return Ok(()) };
        if refused(&bench.acquire(&bench.claim(holder.key()), LONG).await?).is_ok() {
            return bench.until_told(holder.key()).await;
        }
    }
    Err("no key lived long enough to be asked for".to_owned())
}

/// Who holds a key, of which hints are counted, or nobody if the node gives none.
async fn held(bench: &Bench<'_>, ttl: Duration) -> Result<Option<Arc<Claim>>, String> {
    let holder = bench.claim(&bench.key());
    bench.ear.expect(holder.key());
    // The answer comes over the connection that would tell changes.
    is(&bench.acquire(&holder, ttl).await?, &Vote::Granted)?;
    Ok(bench.ear.hears().then_some(holder))
}

fn refused(vote: &Vote) -> Finding {
    ensure(matches!(vote, Vote::Held(_)), format!("expected it to be held, found {vote:?}"))
}
