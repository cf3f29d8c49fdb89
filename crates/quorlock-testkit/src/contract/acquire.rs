//! Clauses about acquiring.

use std::time::Duration;

use quorlock::node::{Expiry, Request, Vote};
use quorlock::protocol::{FencingToken, WaiterId};

use super::bench::{Bench, Finding, LONG, acquisition, ensure, held_by, held_forever, is};
use crate::value::Value;

pub(super) async fn a_free_key_is_granted(bench: &Bench<'_>) -> Finding {
    let claim = bench.claim(&bench.key());
    is(&bench.acquire(&claim, LONG).await?, &Vote::Granted)?;
    bench.is_held_whole(&claim).await
}

pub(super) async fn a_held_key_is_refused_with_its_holder_and_its_remaining_time(
    bench: &Bench<'_>,
) -> Finding {
    let [first, second] = bench.holder().await?;
    let left = held_by(&bench.acquire(&second, LONG * 10).await?, first.token(), LONG)?;
    bench.is_whole(left)?;
    bench.held(&first, LONG).await.map(drop)
}

pub(super) async fn the_own_token_is_granted_again_and_not_prolonged(bench: &Bench<'_>) -> Finding {
    let [claim] = bench.holder().await?;
    is(&bench.acquire(&claim, LONG * 10).await?, &Vote::Granted)?;
    bench.held(&claim, LONG).await.map(drop)
}

pub(super) async fn of_two_concurrent_requests_one_is_granted(bench: &Bench<'_>) -> Finding {
    let [first, second] = bench.claims();
    let (one, other) = futures::join!(bench.acquire(&first, LONG), bench.acquire(&second, LONG));
    let (one, other) = (one?, other?);
    match (&one, &other) {
        (Vote::Granted, Vote::Held(_)) => held_by(&other, first.token(), LONG).map(drop),
        (Vote::Held(_), Vote::Granted) => held_by(&one, second.token(), LONG).map(drop),
        _ => Err(format!("expected one grant, found {one:?} and {other:?}")),
    }
}

pub(super) async fn a_key_expires_and_not_before_its_time(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    let (first, second) = (bench.claim(&key), bench.claim(&key));
    let sent = bench.clock.now();
    bench.acquire(&first, bench.short).await?;
    bench.until_granted(&acquisition(&second, LONG, bench.fence_hint())).await?;
    bench.has_lived("a key", sent)
}

pub(super) async fn data_without_expiry_is_held_forever(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    bench.plant(&key, "foreign data", Expiry::Never).await?;
    let data = held_forever(b"foreign data");
    is(&bench.acquire(&bench.claim(&key), LONG).await?, &data)?;
    is(&bench.inspect(&key).await?, &data)
}

pub(super) async fn a_key_of_the_wrong_type_fails_until_it_is_deleted(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    bench.plant(&key, Value::List(vec![b"item".to_vec()]), Expiry::In(LONG)).await?;
    let (claim, from) = (bench.claim(&key), bench.claim(&key));
    let (ttl, linger, fence_hint) = (LONG, Duration::from_secs(1), Some(bench.contended_draw()));
    let (waiter, elapsed, patience, turn) = (WaiterId::new(1), Duration::ZERO, linger, linger);
    for request in [
        Request::Acquire { claim: claim.clone(), ttl, fence_hint },
        Request::Acquire { claim: claim.clone(), ttl, fence_hint: None },
        Request::enqueue(key.as_str().into(), waiter, elapsed, patience, turn),
        Request::Transfer { from, to: claim.clone(), ttl, fence_hint },
        Request::Renew { claim: claim.clone(), ttl, fencing_token: None },
        Request::WriteBack { claim: claim.clone(), fencing_token: FencingToken::ZERO },
        Request::Release { claim: claim.clone() },
        Request::Cancel { claim, linger },
        Request::inspect(key.as_str()),
    ]
    .into_iter()
    .filter(|request| bench.can(request))
    {
        let answer = bench.ask(request.clone()).await;
        let lasting = answer.as_ref().is_err_and(|error| error.is_permanent() && !error.may_have_acted());
        ensure(lasting, format!("{request:?} found {answer:?} instead of a permanent failure"))?;
    }
    bench.has_no_counter(&key).await
}
