//! Carries out batches of requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use quorlock::node::record::{Outcome, Records};
use quorlock::node::shedlock::Table;
use quorlock::node::{NodeError, NodeErrorKind, Reason, Responder, Response, SharedRequest};

use super::{ATTEMPTS, Session, Worker, capabilities};
use crate::error::Failure;
use crate::handshake::{node_limit, timeout};
use crate::shedlock;
use crate::table::{read, swap, too_long};

impl Worker {
    /// Returns a request that is to be carried out; answers the others.
    pub(super) fn admit(
        &self,
        request: SharedRequest,
        responder: Responder,
    ) -> Option<(SharedRequest, Responder)> {
        let refused = if request.may_create() && !responder.wanted() {
            Some(NodeError::NotAsked)
        } else {
            let long = || request.keys().find_map(|key| too_long(key));
            // A table of ShedLock has its own limit.
            let refused = || capabilities().check(&request).err().or_else(long);
            if self.database.shedlock().is_some() { None } else { refused() }
        };
        match refused {
            None => Some((request, responder)),
            Some(error) => {
                self.answer(responder, Err(error));
                None
            }
        }
    }

    /// Sets the server's timeout for the client that waits shortest for this batch, if another one is set. What has no TTL
    /// leaves it as it is: a statement for each release would cost a round trip.
    pub(super) async fn set_timeout(
        &self,
        link: &mut Session,
        batch: &[(SharedRequest, Responder)],
    ) -> Result<(), Failure> {
        let limit = node_limit(&self.seams);
        let with_ttl = batch.iter().filter(|(request, _)| request.may_create());
        let awaited = with_ttl.map(|(request, _)| request.waits_for(limit)).min();
        if let (Some(awaited), Some(set)) = (awaited, &mut link.awaited)
            && awaited != *set
        {
            link.connection.run(timeout(awaited)).await?;
            *set = awaited;
        }
        Ok(())
    }

    /// Carries out requests on `ShedLock`'s table, one after the other. Returns why the connection was lost,
    /// if it was.
    pub(super) async fn execute_at(
        &mut self,
        table: &Table,
        link: &mut Session,
        batch: Vec<(SharedRequest, Responder)>,
    ) -> Option<NodeError> {
        let mut gone: Option<NodeError> = None;
        for (request, responder) in batch {
            if let Some(error) = &gone {
                self.answer(responder, Err(error.clone()));
                continue;
            }
            let now = self.seams.clock().now();
            let connection = &mut link.connection;
            let answer = match shedlock::execute(table, connection, &request, &mut self.tombstones, now).await
            {
                Ok(vote) => Ok(Response::new(vote, Arc::clone(&link.identity))),
                Err(error) => {
                    if let NodeError::Disconnected { reason } = &error {
                        gone = Some(NodeError::Unreachable { reason: reason.clone() });
                    } else if matches!(error.kind(), NodeErrorKind::ReadOnly | NodeErrorKind::Misconfigured) {
                        // Reconnect to learn the server's new role.
                        gone = Some(error.clone());
                    }
                    Err(error)
                }
            };
            self.answer(responder, answer);
        }
        gone
    }

    /// Carries out requests together, in the order asked. Returns whether any row was written, or why the
    /// connection was lost.
    pub(super) async fn execute(
        &mut self,
        link: &mut Session,
        batch: Vec<(SharedRequest, Responder)>,
    ) -> Result<bool, NodeError> {
        let needed = batch.iter().flat_map(|(request, _)| Records::needed_for(request));
        let names: Vec<Arc<str>> = needed.collect::<BTreeSet<_>>().into_iter().collect();
        let clock = Arc::clone(self.seams.clock());
        let mut remembered = self.memory.rows(&names, clock.now());
        for _ in 0..ATTEMPTS {
            let (is_read, asked) = (remembered.is_none(), clock.now());
            let mut rows = match remembered.take() {
                Some(rows) => rows,
                None => match read(&mut link.connection, &names, &link.known).await {
                    Ok(rows) => rows,
                    Err(failure) => return self.failed(batch, failure, Failure::before_anything_changed),
                },
            };
            if is_read {
                self.memory.read(&rows, asked);
            }
            let decided: Vec<Result<Outcome, NodeError>> =
                batch.iter().map(|(request, _)| rows.apply(request)).collect();
            let changes = rows.changes();
            // Cached rows are confirmed only by a write; a counter that is not raised is none that decides.
            let written = |key: &Arc<str>| changes.iter().any(|change| *change.key == **key);
            if !is_read && !batch.iter().flat_map(|(request, _)| request.keys()).all(written) {
                continue;
            }
            let nonce = self.seams.entropy().next_u64().max(1);
            let wrote = !changes.is_empty();
            let known = (!is_read).then_some(&link.known);
            let swapped =
                if wrote { swap(&mut link.connection, &changes, nonce, known).await } else { Ok(true) };
            match swapped {
                Ok(true) => {
                    if let Some(change) = changes.last() {
                        // The next sweep continues after it, or restarts at the first rows.
                        self.swept =
                            if nonce.is_multiple_of(2) { change.key.to_owned() } else { String::new() };
                    }
                    for ((request, responder), decision) in batch.into_iter().zip(decided) {
                        if let (Ok((vote, _)), false) = (&decision, self.listeners.is_empty()) {
                            self.watches.note(&request, vote, &rows, self.seams.clock().now());
                        }
                        let identity = Arc::clone(&link.identity);
                        let response =
                            |(vote, number)| Response::new(vote, identity).with_fencing_token(number);
                        self.answer(responder, decision.map(response));
                    }
                    self.memory.written(&rows, nonce, clock.now());
                    self.pass_on(&rows);
                    return Ok(wrote);
                }
                Ok(false) => self.memory.forget(&names),
                Err(failure) => {
                    self.memory.forget(&names);
                    return self.failed(batch, failure, Failure::into_node_error);
                }
            }
        }
        let reason =
            Reason::new(format!("other clients have changed the rows {ATTEMPTS} times in the meantime"));
        let error = NodeError::Failed { kind: NodeErrorKind::Busy, reason };
        for (_, responder) in batch {
            self.answer(responder, Err(error.clone()));
        }
        Ok(false)
    }

    /// Answers all with the error. The connection remains in use unless it is lost.
    pub(super) fn failed(
        &self,
        batch: Vec<(SharedRequest, Responder)>,
        failure: Failure,
        meaning: impl FnOnce(Failure) -> NodeError,
    ) -> Result<bool, NodeError> {
        let lost = match &failure {
            Failure::Lost(reason) => Some(NodeError::Unreachable { reason: reason.clone() }),
            Failure::Refused(_) => None,
        };
        let error = meaning(failure);
        for (_, responder) in batch {
            self.answer(responder, Err(error.clone()));
        }
        // Reconnect if the server became a replica or its tables are gone.
        let unfit = error.is_permanent().then(|| error.clone());
        lost.or(unfit).map_or(Ok(false), Err)
    }
}
