//! Carries out requests: what is the same for every store.

use std::fmt::Display;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{FenceHint, FencingToken, NoNumber};

use super::cluster::{Answer, Cluster, Failure as _, Voter};
use crate::node::{NodeError, NodeErrorKind, Request, Response};

/// Begins the names of keys of ours that are no places. A lock of such a name, or whose places are there, is refused.
pub const RESERVED: &str = "quorlock/";

fn is_reserved(key: &str) -> bool {
    key.starts_with(RESERVED) || RESERVED.strip_suffix('/') == Some(key)
}

/// Carries out a request.
pub(super) async fn execute<V: Voter>(voter: &Arc<V>, request: &Request) -> Result<Response, NodeError> {
    V::Cluster::capabilities().check(request)?;
    if let Some(key) = request.keys().find(|key| is_reserved(key)) {
        let words = format!(
            "`quorlock` and names that begin with `{RESERVED}` are this library's own, and `{key}` is one"
        );
        return Err(failed(NodeErrorKind::Unsupported, words));
    }
    if let Some(ended) = voter.connection().ended() {
        return Err(NodeError::Unreachable { reason: format!("{ended:#}").into() });
    }
    let mut outcome = voter.apply(request).await;
    if outcome.as_ref().is_err_and(V::Failure::is_stale) {
        outcome = voter.apply(request).await;
    }
    let Answer { vote, number, from, revision } =
        outcome.map_err(|failure| voter.connection().note(failure))?;
    let revision = u64::try_from(revision).ok().and_then(NonZeroU64::new);
    let response = Response::new(vote, voter.identity()).with_fencing_token(number);
    Ok(from.into_iter().fold(response.with_store_revision(revision), Response::counting_from))
}

/// Makes an error of what was not carried out.
#[must_use]
pub fn failed(kind: NodeErrorKind, words: impl Into<String>) -> NodeError {
    NodeError::Failed { kind, reason: words.into().into() }
}

/// Returns the error for a request that such a node does not know.
#[must_use]
pub fn unknown() -> NodeError {
    failed(NodeErrorKind::Unsupported, "nodes of this kind do not know this request")
}

/// Returns the error for a request that was decided again and again.
#[must_use]
pub fn contended() -> NodeError {
    failed(NodeErrorKind::Busy, "other clients keep changing what the request depends on")
}

/// Encodes a fencing counter, as it is stored.
#[must_use]
pub fn encode_counter(number: FencingToken) -> [u8; 8] {
    number.get().to_be_bytes()
}

/// Decodes the fencing counter that is stored under this name.
///
/// # Errors
///
/// If it is something else.
pub fn decode_counter(name: impl Display, stored: &[u8]) -> Result<FencingToken, NodeError> {
    let number = stored.try_into().ok().and_then(|bytes| FencingToken::new(u64::from_be_bytes(bytes)));
    number.ok_or_else(|| {
        let words = format!(
            "the counter of fencing tokens `{name}` is something else: another program has written to it; delete it"
        );
        failed(NodeErrorKind::WrongData, words)
    })
}

/// Returns where a counter stands, if it can still be raised: at its end it draws nothing.
///
/// # Errors
///
/// If it cannot.
pub fn usable(stands: FencingToken) -> Result<FencingToken, NodeError> {
    if stands < FencingToken::MAX {
        return Ok(stands);
    }
    Err(failed(NodeErrorKind::WrongData, NoNumber::AtEnd.to_string()))
}

/// Returns the number that is drawn where the counter stands here.
///
/// # Errors
///
/// If there is none.
pub fn drawn(
    hint: Option<FenceHint>,
    stands: FencingToken,
    wall: Duration,
) -> Result<Option<FencingToken>, NodeError> {
    let drawn = hint.map(|hint| hint.from(stands, wall)).transpose();
    drawn.map_err(|error| failed(NodeErrorKind::WrongData, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_no_place_among_our_own_keys() {
        assert!(["quorlock", "quorlock/", "quorlock/a"].into_iter().all(is_reserved));
        assert!(!["quorlock2", "a/quorlock", "quorloc"].into_iter().any(is_reserved));
    }

    #[test]
    fn a_counter_is_read_as_it_was_written() {
        let number = FencingToken::new(7).unwrap();
        assert_eq!(decode_counter("a", &encode_counter(number)).unwrap(), number);
        assert!(decode_counter("a", b"42").unwrap_err().to_string().contains("delete it"));
    }
}
