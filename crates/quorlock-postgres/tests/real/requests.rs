//! Requests to nodes, and coordinators of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorlock::protocol::{Claim, FenceHint, Token};
use quorlock::{
    Coordinator, RestartGuard,
    node::{Node, NodeError, Request, Response, Vote, ask},
    runtime::{Clock as _, SystemClock},
};
use quorlock_postgres::PostgresKind;

pub(crate) const TTL: Duration = Duration::from_secs(60);

pub(crate) fn claim(key: &str) -> Arc<Claim> {
    static MADE: AtomicU64 = AtomicU64::new(1);
    Arc::new(Claim::new(key.into(), Token::new(MADE.fetch_add(1, Ordering::Relaxed).into(), "test")))
}

pub(crate) fn acquisition(claim: &Arc<Claim>, ttl: Duration) -> Request {
    let fence_hint = Some(FenceHint::at(SystemClock::default().wall(), None, TTL));
    Request::Acquire { claim: Arc::clone(claim), ttl, fence_hint }
}

pub(crate) async fn acquire(node: &dyn Node, claim: &Arc<Claim>) -> Result<Response, NodeError> {
    ask(node, acquisition(claim, TTL)).await
}

pub(crate) async fn inspect(node: &dyn Node, key: &str) -> Result<Response, NodeError> {
    ask(node, Request::inspect(key)).await
}

pub(crate) fn is_held_by(response: &Response, claim: &Claim) -> bool {
    matches!(&response.vote, Vote::Held(holding) if holding.token == *claim.token())
}

/// A coordinator of these nodes, which were created just now and have forgotten nothing.
pub(crate) fn coordinator(nodes: impl IntoIterator<Item = String>) -> Coordinator {
    Coordinator::builder()
        .kind(PostgresKind::new())
        .nodes(nodes)
        .restart_guard(RestartGuard::Off)
        .build()
        .unwrap()
}
