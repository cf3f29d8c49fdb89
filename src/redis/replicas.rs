//! Votes that count only after replicas have confirmed them: `?wait=` in an address.
//!
//! Redis replicates after it has replied. `WAIT` after a vote, on the same connection, returns how many
//! replicas have it. Until then the vote is held back. Too few replicas are reported as an error that says
//! that the node may have acted, so that the caller undoes the request. See docs/topologies.md for what that
//! is worth.

use std::time::Duration;

use redis::{Pipeline, Value};

use super::connection::{Connection, value};
use super::error::{Peer, SentCommand, refused, unconnected, unexpected};
use super::resp::encode::CommandWriter;
use super::settings::Settings;
use crate::address::Address;
use crate::node::{NodeError, Request};

/// How many replicas must confirm, and within what time.
#[derive(Clone, Copy)]
pub(crate) struct ReplicaAck {
    pub(crate) needed: u32,
    limit: Duration,
}

impl ReplicaAck {
    /// Returns the requirement of the address, if it has one.
    pub(crate) fn wanted(address: &Address, settings: &Settings) -> Option<ReplicaAck> {
        let limit = settings.copy_limit.max(Duration::from_millis(1));
        (address.wait() > 0).then(|| ReplicaAck { needed: address.wait(), limit })
    }

    /// Appends the request for how many replicas have all requests so far; the server waits until there are
    /// enough.
    pub(super) fn ask(self, outbox: &mut Vec<u8>) {
        let mut command = CommandWriter::begin(outbox);
        let millis = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
        command.word("WAIT").number(u64::from(self.needed)).number(millis);
        command.end();
    }

    /// Checks whether the user may wait, before the first vote depends on it.
    pub(super) async fn try_out(self, connection: &mut Connection, user: &str) -> Result<(), NodeError> {
        let mut command = Pipeline::with_capacity(1);
        command.cmd("WAIT").arg(0).arg(1);
        let answers = connection.exchange(&command).await.map_err(unconnected)?;
        match answers.first() {
            Some(Value::Int(_)) => Ok(()),
            Some(Value::ServerError(error)) => {
                Err(refused(error, SentCommand { command: "WAIT", key: "", user, peer: Peer::Server }))
            }
            Some(_) | None => Err(unexpected("unexpected answer to WAIT")),
        }
    }
}

/// Returns the number of replicas in a reply; 0 for an invalid one.
pub(super) fn copies_in(answer: &[u8]) -> u64 {
    match value(answer) {
        Ok(Value::Int(copies)) => u64::try_from(copies).unwrap_or(0),
        Ok(_) | Err(_) => 0,
    }
}

/// Returns whether the effect of the request must survive a failover to count: votes, renewals, and fencing
/// numbers that are written back.
pub(super) fn must_last(request: &Request) -> bool {
    request.may_create() || matches!(request, Request::WriteBack { .. })
}
