//! Clauses about concurrent requests, and about the identity in the answers.

use std::sync::Arc;

use futures::future::maybe_done;
use quorlock::node::{Request, Vote, ask};
use quorlock::protocol::FencingToken;

use super::bench::{Bench, Finding, LONG, acquisition, ensure, is};

pub(super) async fn five_hundred_concurrent_requests_are_executed_in_order(bench: &Bench<'_>) -> Finding {
    const PAIRS: usize = 250;
    let key = bench.key();
    let mut asked = Vec::new();
    for claim in (0..PAIRS).map(|_| bench.claim(&key)) {
        for request in [acquisition(&claim, LONG, bench.fence_hint()), Request::Release { claim }] {
            let mut answer = Box::pin(maybe_done(ask(bench.node, request)));
            // The first poll sends the request; no caller waits for it yet.
            let _ = futures::poll!(answer.as_mut());
            asked.push(answer);
        }
    }
    for (place, answer) in asked.iter_mut().enumerate() {
        answer.as_mut().await;
        let answer = answer.as_mut().take_output().ok_or("a request was not answered")?;
        let vote = answer.map_err(|error| format!("request {place}: {error}"))?.vote;
        is(&vote, &Vote::Granted).map_err(|finding| format!("request {place}: {finding}"))?;
    }
    bench.free(&key).await
}

pub(super) async fn a_request_is_executed_after_its_caller_is_gone(bench: &Bench<'_>) -> Finding {
    let claim = bench.claim(&bench.key());
    {
        let mut gone = Box::pin(ask(bench.node, acquisition(&claim, LONG, bench.fence_hint())));
        drop(futures::poll!(gone.as_mut()));
    }
    // Ordered after it.
    bench.held(&claim, LONG).await.map(drop)
}

pub(super) async fn every_answer_names_the_same_history(bench: &Bench<'_>) -> Finding {
    let claim = bench.claim(&bench.key());
    let linger = LONG;
    let requests = [
        acquisition(&claim, LONG, bench.fence_hint()),
        Request::Acquire { claim: Arc::clone(&claim), ttl: LONG, fence_hint: None },
        Request::WriteBack { claim: Arc::clone(&claim), fencing_token: FencingToken::ZERO },
        Request::Renew { claim: Arc::clone(&claim), ttl: LONG, fencing_token: None },
        Request::inspect(claim.key()),
        Request::Release { claim: Arc::clone(&claim) },
        Request::Cancel { claim, linger },
    ];
    let mut ids = Vec::new();
    for request in requests {
        ids.push(bench.ask(request).await.map_err(|error| error.to_string())?.identity.id.clone());
    }
    ensure(ids.iter().all(|id| !id.is_empty()), "a history has no name")?;
    ids.dedup();
    ensure(ids.len() == 1, format!("one history has several names: {ids:?}"))
}
