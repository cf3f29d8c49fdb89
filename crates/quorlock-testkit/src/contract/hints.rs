//! Clauses about hints, for nodes that give them.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::Vote;
use quorlock::protocol::{Claim, WaiterId, turn_key};

use super::bench::{Bench, Finding, LONG, ensure, is};

pub(super) async fn a_removal_by_another_client_notifies_refused_clients(bench: &Bench<'_>) -> Finding {
    let Some(holder) = held(bench, LONG).await? else { return Ok(()) };
    refused(&bench.acquire(&bench.claim(holder.key()), LONG).await?)?;
    bench.remove(holder.key()).await?;
    bench.until_notified(holder.key()).await
}

pub(super) async fn a_removal_notifies_the_first_in_the_queue(bench: &Bench<'_>) -> Finding {
    let Some(holder) = held(bench, LONG).await? else { return Ok(()) };
    bench.enqueue(holder.key(), WaiterId::new(1), LONG, LONG).await?;
    bench.remove(holder.key()).await?;
    bench.until_notified(holder.key()).await
}

pub(super) async fn a_removal_by_another_client_notifies_a_holder_that_has_renewed(
    bench: &Bench<'_>,
) -> Finding {
    let Some(holder) = held(bench, LONG).await? else { return Ok(()) };
    // A second one may need no request, and does not notify of itself.
    for _ in 0..2 {
        is(&bench.renew(&holder, LONG).await?, &Vote::Granted)?;
    }
    let hints = bench.ear.hints(holder.key());
    ensure(hints == 0, format!("{hints} hints about a key that only its holder has changed"))?;
    // Also after a renewal that has restored it.
    for _ in 0..2 {
        bench.ear.expect(holder.key());
        bench.remove(holder.key()).await?;
        bench.until_notified(holder.key()).await?;
        is(&bench.renew(&holder, LONG).await?, &Vote::Restored)?;
    }
    Ok(())
}

/// The change is by another client: a server need not notify a client of its own.
pub(super) async fn a_turn_is_notified_by_the_change_of_a_key(bench: &Bench<'_>) -> Finding {
    let Some(holder) = held(bench, LONG).await? else { return Ok(()) };
    for number in 1..=3 {
        let waiter = WaiterId::new(number);
        let turn_key = turn_key(holder.key(), waiter);
        bench.ear.expect(&turn_key);
        // Also after an earlier request.
        for _ in 0..2 {
            bench.enqueue(holder.key(), waiter, Duration::ZERO, LONG).await?;
        }
        bench.remove(&turn_key).await?;
        bench.until_notified(&turn_key).await?;
    }
    Ok(())
}

pub(super) async fn an_expiry_notifies_refused_clients(bench: &Bench<'_>) -> Finding {
    // On a busy machine the key may expire before the request.
    for ttl in [bench.short, bench.short * 4, bench.short * 16] {
        let Some(holder) = held(bench, ttl).await? else { return Ok(()) };
        if refused(&bench.acquire(&bench.claim(holder.key()), LONG).await?).is_ok() {
            return bench.until_notified(holder.key()).await;
        }
    }
    Err("no key lived long enough to be asked for".to_owned())
}

/// Returns the holder of a key of which hints are counted; `None` if the node gives no hints.
async fn held(bench: &Bench<'_>, ttl: Duration) -> Result<Option<Arc<Claim>>, String> {
    let holder = bench.claim(&bench.key());
    bench.ear.expect(holder.key());
    // The answer arrives over the connection that also carries the hints.
    is(&bench.acquire(&holder, ttl).await?, &Vote::Granted)?;
    Ok(bench.ear.hears().then_some(holder))
}

fn refused(vote: &Vote) -> Finding {
    ensure(matches!(vote, Vote::Held(_)), format!("expected it to be held, found {vote:?}"))
}
