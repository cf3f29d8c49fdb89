//! Clauses about offers, for nodes that send messages to inboxes.

use std::sync::Arc;
use std::time::Duration;

use quorlock::protocol::{Claim, FenceHint, InboxId, NextWaiter, OfferTerms, WaiterId};
use quorlock::{
    lock::QueuedWaiter,
    node::{Request, Vote},
};

use super::bench::{Bench, Finding, LONG, acquisition, ensure, is};

/// How long an offer is stored.
const LIFE: Duration = Duration::from_secs(30);

const WAITERS: [WaiterId; 3] = [WaiterId::new(9), WaiterId::new(8), WaiterId::new(7)];

/// Returns the terms on which a waiter with this claim accepts an offer.
fn terms(claim: &Claim, inbox: InboxId) -> OfferTerms {
    OfferTerms { inbox, prefix_len: 0, life: LIFE, fenced: true, token: claim.token().clone() }
}

fn offer(bench: &Bench<'_>, from: &Arc<Claim>, next: (WaiterId, OfferTerms), queued: bool) -> Request {
    let fence_hint = next.1.fenced.then(|| bench.fence_hint());
    let next = Arc::new(NextWaiter { waiter: next.0, terms: next.1 });
    Request::Offer { claim: Arc::clone(from), next, queued, fence_hint }
}

/// Returns the random part of the claim's token, as messages name it.
fn name(claim: &Claim) -> String {
    String::from_utf8_lossy(claim.token().random_part()).into_owned()
}

pub(super) async fn an_offer_replaces_the_own_token_and_is_sent_with_its_number(
    bench: &Bench<'_>,
) -> Finding {
    let Some(inbox) = bench.ear.inbox_once_open() else { return Ok(()) };
    let key = bench.key();
    let (holder, next) = (bench.claim(&key), bench.claim(&key));
    let drawn = bench.drawn(acquisition(&holder, LONG, bench.fence_hint())).await?;
    // The calendar of its waiter, or the number of its releaser, is ahead of the node (rule O-10).
    let hint = FenceHint::at(bench.clock.wall() + Duration::from_secs(1), None, LONG);
    let waiter = Arc::new(NextWaiter { waiter: WAITERS[0], terms: terms(&next, inbox) });
    let offer = Request::Offer { claim: holder, next: waiter, queued: false, fence_hint: Some(hint) };
    is(&bench.vote(offer).await?, &Vote::Notified)?;
    bench.held(&next, LIFE).await?;
    let number = bench.counter(&key).await?.ok_or("no number was drawn")?;
    ensure(number > drawn, format!("{number} was drawn after {drawn}"))?;
    ensure(number >= hint.usual(), format!("{number} was drawn for a hint of {}", hint.usual()))?;
    bench.until_received(&format!("offered {} {number} {}", name(&next), LIFE.as_millis())).await
}

pub(super) async fn an_offer_without_fencing_draws_nothing(bench: &Bench<'_>) -> Finding {
    let Some(inbox) = bench.ear.inbox_once_open() else { return Ok(()) };
    let key = bench.key();
    let (holder, next) = (bench.claim(&key), bench.claim(&key));
    is(&bench.acquire_plainly(&holder).await?, &Vote::Granted)?;
    let terms = OfferTerms { fenced: false, ..terms(&next, inbox) };
    is(&bench.vote(offer(bench, &holder, (WAITERS[0], terms), false)).await?, &Vote::Notified)?;
    bench.held(&next, LIFE).await?;
    bench.until_received(&format!("offered {} 0 {}", name(&next), LIFE.as_millis())).await?;
    bench.has_no_counter(&key).await
}

pub(super) async fn an_offer_to_an_inbox_without_a_listener_is_a_release(bench: &Bench<'_>) -> Finding {
    let [holder, next] = bench.holder().await?;
    let key = holder.key();
    let next = (WAITERS[0], terms(&next, InboxId::new(u64::MAX)));
    is(&bench.vote(offer(bench, &holder, next, false)).await?, &Vote::Granted)?;
    bench.free(key).await
}

pub(super) async fn an_offer_of_what_is_not_held_changes_nothing(bench: &Bench<'_>) -> Finding {
    let inbox = bench.ear.inbox_once_open().unwrap_or(InboxId::new(u64::MAX));
    let key = bench.key();
    let [stranger, holder, next] = [(); 3].map(|()| bench.claim(&key));
    let from_stranger = || offer(bench, &stranger, (WAITERS[0], terms(&next, inbox)), false);
    is(&bench.vote(from_stranger()).await?, &Vote::Free)?;
    bench.free(&key).await?;
    bench.acquire(&holder, LONG).await?;
    is(&bench.vote(from_stranger()).await?, &Vote::Free)?;
    bench.held(&holder, LONG).await.map(drop)
}

pub(super) async fn a_holder_learns_the_first_waiter_in_the_queue(bench: &Bench<'_>) -> Finding {
    let Some(inbox) = bench.ear.inbox_once_open() else { return Ok(()) };
    let key = bench.key();
    let (holder, next) = (bench.claim_of(inbox, &key), bench.claim(&key));
    bench.acquire(&holder, LONG).await?;
    for (waiter, seconds) in [(WAITERS[0], 20), (WAITERS[1], 10)] {
        bench.enqueue_on(&key, waiter, Duration::from_secs(seconds), terms(&next, inbox)).await?;
    }
    bench.until_received(&format!("next {key} to {}: {}", name(&holder), WAITERS[0])).await?;
    let second = format!("next {key} to {}: {}", name(&holder), WAITERS[1]);
    ensure(!bench.ear.received(&second), "it was notified of the second, too")
}

pub(super) async fn a_dead_waiter_is_skipped_if_its_inbox_has_no_listener(bench: &Bench<'_>) -> Finding {
    let Some(inbox) = bench.ear.inbox_once_open() else { return Ok(()) };
    let key = bench.key();
    let holder = bench.hold(&key).await?;
    let dead = InboxId::new(u64::MAX);
    for (waiter, seconds, inbox) in [(WAITERS[0], 30, dead), (WAITERS[1], 20, dead), (WAITERS[2], 10, inbox)]
    {
        let terms = terms(&bench.claim(&key), inbox);
        bench.enqueue_on(&key, waiter, Duration::from_secs(seconds), terms).await?;
    }
    is(&bench.release(&holder).await?, &Vote::Notified)?;
    ensure(bench.listed(&key).await?.is_empty(), "it is the third's turn, and there is no other waiter")?;
    let vote = bench.leave_queue(&key, WAITERS[2]).await?;
    ensure(vote == Vote::Free, format!("the third was not notified: {vote:?}"))
}

pub(super) async fn waiters_that_accept_offers_are_listed_with_their_contexts(bench: &Bench<'_>) -> Finding {
    let Some(inbox) = bench.ear.inbox_once_open() else { return Ok(()) };
    let [holder, next] = bench.holder().await?;
    let key = holder.key();
    bench.enqueue_on(key, WAITERS[0], Duration::from_secs(20), terms(&next, inbox)).await?;
    let listed = bench.listed(key).await?;
    let context = next.token().context();
    let is_next = |waiter: &QueuedWaiter| Some(&waiter.context) == context.as_ref();
    ensure(listed.len() == 1 && listed.iter().all(is_next), format!("{listed:?}"))
}

/// Any waiter counts: here the second has seen it.
pub(super) async fn a_holder_learns_that_a_waiter_has_seen_another_program(bench: &Bench<'_>) -> Finding {
    let Some(inbox) = bench.ear.inbox_once_open() else { return Ok(()) };
    let key = bench.key();
    let (holder, next) = (bench.claim_of(inbox, &key), bench.claim(&key));
    bench.acquire(&holder, LONG).await?;
    for (waiter, seconds, seen) in [(WAITERS[0], 20, false), (WAITERS[1], 10, true), (WAITERS[0], 20, false)]
    {
        let beside = (terms(&next, inbox), seen);
        bench.enqueue_beside(&key, waiter, Duration::from_secs(seconds), beside).await?;
    }
    bench.until_received(&format!("next {key} to {}: {}", name(&holder), WAITERS[0])).await?;
    bench.until_received(&format!("next {key} to {}: {}, others seen", name(&holder), WAITERS[0])).await
}

pub(super) async fn a_waiter_with_an_offer_learns_the_next_waiter(bench: &Bench<'_>) -> Finding {
    let Some(inbox) = bench.ear.inbox_once_open() else { return Ok(()) };
    let key = bench.key();
    let holder = bench.hold(&key).await?;
    let waiting = WAITERS.map(|waiter| (waiter, bench.claim(&key)));
    for ((waiter, claim), seconds) in waiting.iter().zip([30, 20, 10]) {
        bench.enqueue_on(&key, *waiter, Duration::from_secs(seconds), terms(claim, inbox)).await?;
    }
    let [(first, offered), (second, _), (_, third)] = &waiting;
    is(&bench.vote(offer(bench, &holder, (*first, terms(offered, inbox)), true)).await?, &Vote::Notified)?;
    bench.until_received(&format!("next {key} to {}: {second}", name(offered))).await?;
    // Messages to one inbox arrive in order.
    let warned = bench.ear.received(&format!("soon {}", name(third)));
    ensure(!warned, "the second was asked to ask again, though it has just asked")?;
    let vote = bench.leave_queue(&key, *first).await?;
    ensure(vote != Vote::Granted, "it is still in the queue")
}

pub(super) async fn the_second_is_asked_to_ask_again_when_its_last_request_is_old(
    bench: &Bench<'_>,
) -> Finding {
    let Some(inbox) = bench.ear.inbox_once_open() else { return Ok(()) };
    let key = bench.key();
    let holder = bench.hold(&key).await?;
    let waiting = WAITERS.map(|waiter| (waiter, bench.claim(&key)));
    for ((waiter, claim), seconds) in waiting.iter().zip([30, 20, 10]) {
        // An offer with a lifetime of zero expires immediately.
        let terms = OfferTerms { life: Duration::ZERO, ..terms(claim, inbox) };
        bench.enqueue_on(&key, *waiter, Duration::from_secs(seconds), terms).await?;
    }
    let [(first, offered), _, (_, third)] = &waiting;
    is(&bench.vote(offer(bench, &holder, (*first, terms(offered, inbox)), true)).await?, &Vote::Notified)?;
    bench.until_received(&format!("soon {}", name(third))).await
}

pub(super) async fn a_waiter_with_the_turn_learns_the_next_waiter(bench: &Bench<'_>) -> Finding {
    let Some(inbox) = bench.ear.inbox_once_open() else { return Ok(()) };
    let key = bench.key();
    let holder = bench.hold(&key).await?;
    for (waiter, seconds) in [(WAITERS[0], 20), (WAITERS[1], 10)] {
        bench
            .enqueue_on(&key, waiter, Duration::from_secs(seconds), terms(&bench.claim(&key), inbox))
            .await?;
    }
    is(&bench.release(&holder).await?, &Vote::Notified)?;
    bench.until_received(&format!("next {key} to {}: {}", WAITERS[0], WAITERS[1])).await
}
