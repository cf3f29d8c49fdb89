//! Takes requests from the queue, and sends them.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::super::admission::{Ask, Stage, cleans_up};
use super::super::command::transaction::{
    PRELUDE, acquisition, encode_acquisition, encode_deletion, release,
};
use super::super::command::{
    Form, encode_draw, encode_notify_next, encode_once, encode_plain, plain_acquisition, write_once,
};
use super::super::node_lists::EVERY;
use super::super::replicas::must_last;
use super::sent::{Expected, Sent, SentAs};
use super::stall::stalled;
use super::{NoteStatus, Pace, Session};
use crate::node::{NodeError, Request};
use quorlock_protocol::Moment;

/// The most requests taken in a row: replies are handled between two such batches.
const BATCH: usize = 128;
/// How long the clean-up may continue after the node's last handle was dropped.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

impl Session<'_> {
    /// Takes requests from the queue, and writes them after those that have to be sent again.
    pub(super) fn take(&mut self, context: &mut Context<'_>, queue: &mut UnboundedReceiver<Ask>) {
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
        let mut votes = false;
        let allowed = self.watch.as_ref().map_or(Ok(()), |watch| watch.allows(at));
        let wall = self.supported.clock.filter(|_| self.transactions_from <= at).map(|clock| clock.at(at));
        // Taken one by one: if one panics, the others are still answered.
        self.batch.reverse();
        while let Some(ask) = self.batch.pop() {
            let (prelude, sent_as) = if ask.stage == Stage::Unnumbered {
                // Sent even if the attempt has ended: its token is stored, and the request that undoes it may
                // follow.
                let Request::Acquire { claim, fence_hint: Some(fence_hint), .. } = &*ask.request else {
                    continue;
                };
                let by_hash = encode_draw(claim, *fence_hint, &mut self.library, self.connection.outbox());
                (0, SentAs::Scripted(by_hash))
            } else if ask.stage == Stage::Released {
                let by_hash =
                    encode_notify_next(ask.request.key(), &mut self.library, self.connection.outbox());
                (0, SentAs::Scripted(by_hash))
            } else if self.pace == Pace::Stalled && !cleans_up(&ask.request) {
                ask.answer(Err(stalled(self.stall)));
                continue;
            } else if let (Err(doubt), true) = (&allowed, must_last(&ask.request)) {
                ask.answer(Err(doubt.clone()));
                continue;
            } else if self.may_overtake(&ask) {
                let reason = "the connection that it was meant for has ended".into();
                ask.answer(Err(NodeError::Disconnected { reason }));
                continue;
            } else if ask.request.may_create() && !ask.responder.wanted() {
                ask.answer(Err(NodeError::NotAsked));
                continue;
            } else if let Some((claim, ttl, fence_hint)) = acquisition(&ask, wall) {
                write_once(&ask.request, Form::Transaction, self.connection.outbox(), |buffer| {
                    encode_acquisition(claim, ttl, fence_hint, buffer);
                });
                (PRELUDE, SentAs::Transaction)
            } else if let (Some((claim, ttl)), Some(_)) = (plain_acquisition(&ask), self.supported.client) {
                write_once(&ask.request, Form::Plain, self.connection.outbox(), |buffer| {
                    encode_plain(claim, ttl, buffer);
                });
                (0, SentAs::Plain)
            } else if let Some((claim, deleting)) = release(&ask.request, self.supported.deleting) {
                write_once(&ask.request, deleting.form(), self.connection.outbox(), |buffer| {
                    encode_deletion(claim, deleting, buffer);
                });
                (1, SentAs::Deletion(None))
            } else {
                let history = self.history.as_deref();
                let by_hash = encode_once(&ask.request, history, &mut self.library, self.connection.outbox());
                (0, SentAs::Scripted(by_hash))
            };
            votes |= must_last(&ask.request);
            self.in_flight.push_back(Sent { expected: Expected::Ask { ask, sent_as }, at, prelude });
        }
        if let (Some(copies), true) = (self.replica_ack, votes) {
            // Once for all of them: nothing after it is answered before.
            copies.ask(self.connection.outbox());
            self.in_flight.push_back(Sent { expected: Expected::ReplicaAck, at, prelude: 0 });
        }
        self.note_list(at);
        self.watch_for_stall(at);
    }

    /// Records our list of nodes, behind requests that are sent anyway.
    fn note_list(&mut self, at: Moment) {
        let Some(note) = self.lists.as_ref().filter(|note| at >= self.lists_from && note.all.is_complete())
        else {
            return;
        };
        if note.ask(self.connection.outbox()) {
            self.lists_from = at + EVERY;
            self.in_flight.push_back(Sent { expected: Expected::NodeLists, at, prelude: 0 });
        }
    }

    /// Reads the note of the largest `max_ttl` again, if it has changed. At most one such request is in flight:
    /// a change before its reply is in the reply, such as our own, which Redis 6.0 pushes to us.
    pub(super) fn ask_for_max_ttl(&mut self) {
        if self.note != NoteStatus::Outdated || self.shutdown.is_some() {
            return;
        }
        let Some(note) = &self.max_ttl else { return };
        note.ask(self.connection.outbox());
        let at = self.clock.now();
        self.in_flight.push_back(Sent { expected: Expected::MaxTtl, at, prelude: 0 });
        self.note = NoteStatus::Asked;
        self.watch_for_stall(at);
    }

    /// Arms the timer for requests that were sent at this moment.
    fn watch_for_stall(&mut self, at: Moment) {
        if self.timer.is_none() && !self.in_flight.is_empty() {
            self.timer = Some(self.clock.sleep_until(at + self.stall));
        }
    }

    /// Returns whether the request is a release of a request that was sent over a connection that has ended:
    /// that may still arrive, if the server did not end the connection for us. A release leaves no tombstone;
    /// the clean-up after an unknown outcome does (rule I-5).
    fn may_overtake(&self, ask: &Ask) -> bool {
        let releases = matches!(*ask.request, Request::Release { .. } | Request::Offer { .. });
        releases && self.supported.client.is_none() && ask.permit.outlived_a_connection()
    }
}
