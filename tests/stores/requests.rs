//! Requests that the tests of databases have in common: those of each crate include this file.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{Node, NodeError, Request, Response, Vote, ask};
use quorlock::protocol::{Claim, FenceHint, Token};
use quorlock::runtime::{Clock as _, Entropy as _, SystemClock, SystemEntropy};

pub(crate) const TTL: Duration = Duration::from_secs(60);

/// A new attempt.
pub(crate) fn claim(key: &str) -> Arc<Claim> {
    Arc::new(Claim::new(key.into(), Token::new(SystemEntropy::default().next_u128(), "test")))
}

/// For a client whose clock is right.
pub(crate) fn acquisition(claim: &Arc<Claim>) -> Request {
    let fence_hint = Some(FenceHint::at(SystemClock::default().wall(), None, TTL));
    Request::Acquire { claim: Arc::clone(claim), ttl: TTL, fence_hint }
}

pub(crate) async fn acquire(node: &dyn Node, claim: &Arc<Claim>) -> Result<Response, NodeError> {
    ask(node, acquisition(claim)).await
}

pub(crate) async fn inspect(node: &dyn Node, key: &str) -> Result<Response, NodeError> {
    ask(node, Request::inspect(key)).await
}

pub(crate) async fn cancel(node: &dyn Node, claim: &Arc<Claim>) -> Result<Response, NodeError> {
    ask(node, Request::Cancel { claim: Arc::clone(claim), linger: TTL }).await
}

pub(crate) async fn release(node: &dyn Node, claim: &Arc<Claim>) -> Vote {
    ask(node, Request::Release { claim: Arc::clone(claim) }).await.unwrap().vote
}

pub(crate) fn is_held_by(response: &Response, claim: &Claim) -> bool {
    matches!(&response.vote, Vote::Held(holding) if holding.token == *claim.token())
}
