//! Votes that count only when replicas have them: `?wait=` in an address.
//!
//! Redis copies to replicas after it has answered. `WAIT` behind a vote, on its connection, tells how
//! many replicas have it. Until then the vote is held back; too few, and it is an error that says that
//! the node may have acted, so that whoever asked takes it back. See docs/topologies.md for what that
//! is worth.

use std::time::Duration;

use redis::{Pipeline, Value};

use super::connection::{Connection, value};
use super::error::{Asked, Whom, refused, unconnected, unexpected};
use super::resp::encode::Request;
use super::settings::Settings;
use crate::address::Address;
use crate::node::{NodeError, Question};

/// How many replicas must confirm, and how long they have.
#[derive(Clone, Copy)]
pub(crate) struct ReplicaAck {
    pub(crate) needed: u32,
    limit: Duration,
}

impl ReplicaAck {
    /// What the address asks for, if it asks for any.
    pub(crate) fn wanted(address: &Address, settings: &Settings) -> Option<ReplicaAck> {
        let limit = settings.copy_limit.max(Duration::from_millis(1));
        (address.wait() > 0).then(|| ReplicaAck { needed: address.wait(), limit })
    }

    /// Asks how many have all that was asked so far, which waits until enough have.
    pub(super) fn ask(self, outbox: &mut Vec<u8>) {
        let mut request = Request::begin(outbox);
        let millis = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
        request.word("WAIT").number(u64::from(self.needed)).number(millis);
        request.end();
    }

    /// Sees whether the user may wait, before the first vote depends on it.
    pub(super) async fn try_out(self, line: &mut Connection, user: &str) -> Result<(), NodeError> {
        let mut request = Pipeline::with_capacity(1);
        request.cmd("WAIT").arg(0).arg(1);
        let answers = line.exchange(&request).await.map_err(unconnected)?;
        match answers.first() {
            Some(Value::Int(_)) => Ok(()),
            Some(Value::ServerError(error)) => {
                Err(refused(error, Asked { command: "WAIT", key: "", user, whom: Whom::Server }))
            }
            Some(_) | None => Err(unexpected("unexpected answer to WAIT")),
        }
    }
}

/// How many replicas an answer counts: none where it counts nothing.
pub(super) fn copies_in(answer: &[u8]) -> u64 {
    match value(answer) {
        Ok(Value::Int(copies)) => u64::try_from(copies).unwrap_or(0),
        Ok(_) | Err(_) => 0,
    }
}

/// Whether what the question does must outlast a failover to count: votes, renewals, and the fencing
/// numbers that are written back.
pub(super) fn must_last(question: &Question) -> bool {
    question.may_create() || matches!(question, Question::WriteBack { .. })
}
