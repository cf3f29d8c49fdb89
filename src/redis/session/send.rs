//! Takes requests from the queue, and sends them.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::super::admission::{PendingRequest, cleans_up, must_last};
use super::super::exchange::Step;
use super::super::node_lists::{AGAIN, EVERY};
use super::sent::{Expected, Sent};
use super::stall::stalled;
use super::{Pace, Session};
use crate::node::NodeError;
use quorlock_protocol::Moment;

/// The most requests taken in a row: replies are handled between two such batches.
const BATCH: usize = 128;
/// How long the clean-up may continue after the node's last handle was dropped.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

impl Session<'_> {
    /// Takes requests from the queue, and writes them after those that have to be sent again.
    pub(super) fn take(&mut self, context: &mut Context<'_>, queue: &mut UnboundedReceiver<PendingRequest>) {
        if !self.batch.is_empty() {
            self.write();
        }
        if self.shutdown.is_some() {
            return;
        }
        if !self.yielded && !queue.is_empty() {
            // Lets other ready tasks send their requests first, even to an idle server: one write for all is
            // cheaper for both sides than one for each, and a single caller is not delayed.
            self.yielded = true;
            context.waker().wake_by_ref();
            return;
        }
        while let Poll::Ready(count) = queue.poll_recv_many(context, &mut self.batch, BATCH) {
            self.yielded = false;
            if count == 0 {
                let until = self.clock.now() + SHUTDOWN_GRACE;
                self.shutdown = Some(self.clock.sleep_until(until));
                return;
            }
            self.write();
        }
    }

    /// Writes the batch to the connection.
    fn write(&mut self) {
        let at = self.clock.now();
        let allowed = self.watch.as_ref().map_or(Ok(()), |watch| watch.allows(at));
        let wall = self.supported.clock.filter(|_| self.pairs_from <= at).map(|clock| clock.at(at));
        // Taken one by one: if one panics, the others are still answered.
        self.batch.reverse();
        while let Some(pending) = self.batch.pop() {
            let step = match pending.step {
                // Sent even if the attempt has ended: its token may be stored, and the request that undoes it may follow.
                Some(step @ (Step::Draw | Step::NotifyNext)) => step,
                step => {
                    if let Err(why) = self.may_send(&pending, &allowed) {
                        pending.answer(Err(why));
                        continue;
                    }
                    step.unwrap_or_else(|| Step::first(&pending.request, self.supported, wall))
                }
            };
            debug_assert!(
                !matches!(step, Step::Plain | Step::Numbered) || self.supported.client.is_some(),
                "`SET` without a look for a tombstone, where earlier requests may arrive late (rule I-41)"
            );
            debug_assert!(
                self.history.is_none() || matches!(step, Step::Script),
                "a cluster member acts by scripts only, which compare its history (rule C-3)"
            );
            let history = self.history.as_deref();
            let awaited = step.write(&pending.request, history, &mut self.library, self.connection.outbox());
            let pending = PendingRequest { step: Some(step), ..pending };
            self.in_flight.push_back(Sent { expected: Expected::Response { pending, awaited }, at });
        }
        self.note_list(at);
        self.watch_for_stall(at);
    }

    /// Records our list of nodes, behind requests that are sent anyway.
    fn note_list(&mut self, at: Moment) {
        let Some(note) = self.lists.as_ref().filter(|_| at >= self.lists_from) else { return };
        self.lists_from = at + AGAIN;
        if note.ask(self.connection.outbox(), at) {
            self.lists_from = at + EVERY;
            self.in_flight.push_back(Sent { expected: Expected::NodeLists, at });
        }
    }

    /// Arms the timer for requests that were sent at this moment.
    pub(super) fn watch_for_stall(&mut self, at: Moment) {
        if self.timer.is_none() && !self.in_flight.is_empty() {
            self.timer = Some(self.clock.sleep_until(at + self.stall));
        }
    }

    /// Returns why the request is not sent over this connection, if so. `allowed` is what the Sentinels say of votes.
    fn may_send(&self, pending: &PendingRequest, allowed: &Result<(), NodeError>) -> Result<(), NodeError> {
        if self.pace == Pace::Stalled && !cleans_up(&pending.request) {
            return Err(stalled(self.stall));
        }
        if must_last(&pending.request) {
            allowed.clone()?;
        }
        if self.may_overtake(pending) {
            let reason = "the connection that it was meant for has ended".into();
            return Err(NodeError::Disconnected { reason });
        }
        if pending.request.may_create() && !pending.responder.wanted() {
            return Err(NodeError::NotAsked);
        }
        Ok(())
    }

    /// Returns whether the request would take back, without a tombstone, one that was sent over a connection
    /// that has ended: that may still arrive, if the server did not end the connection for us (rule I-5).
    fn may_overtake(&self, pending: &PendingRequest) -> bool {
        pending.request.relies_on_order()
            && self.supported.client.is_none()
            && pending.permit.outlived_a_connection()
    }
}
