//! Delivers the replies and pushes of the server.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::super::admission::{Ask, Stage};
use super::super::command::reply::{CommandOutcome, decode, decode_plain};
use super::super::command::transaction::{Deletion, decode_acquisition, decode_deletion, with_mark};
use super::super::command::{ByHash, encode};
use super::super::connection::{ConnectionError, Message, READS, yield_later};
use super::super::error::unexpected;
use super::super::max_ttl::max_ttl_in;
use super::super::push::may_change;
use super::super::replicas::{copies_in, must_last};
use super::super::scripts::Library;
use super::sent::{Expected, Sent, SentAs, Undo};
use super::{NoteStatus, Session};
use crate::node::{NodeError, ReceivedAt, Request, Response, Vote};

/// How long only scripts are used after the server has refused a transaction: it may be out of memory for a
/// while, or the user may lack a permission.
const SCRIPTS_FOR: Duration = Duration::from_secs(10);

/// The reply to a command within a transaction. None of our requests expects it: the replies within an
/// acquisition are skipped.
const QUEUED: &[u8] = b"+QUEUED\r\n";

impl Session<'_> {
    /// Reads and delivers replies and pushes.
    pub(super) fn receive(&mut self, context: &mut Context<'_>) -> Result<(), ConnectionError> {
        for _ in 0..READS {
            self.deliver()?;
            match self.connection.poll_read(context) {
                Poll::Ready(read) => read?,
                Poll::Pending => return Ok(()),
            }
        }
        yield_later(context);
        Ok(())
    }

    /// Delivers what was read, in the order in which the server sent it: a waiter that received a change
    /// before the earlier reply would wait for the next change.
    fn deliver(&mut self) -> Result<(), ConnectionError> {
        let mut received = false;
        loop {
            let usual =
                self.in_flight.front().and_then(Sent::usual).filter(|usual| self.connection.passes(usual));
            let message =
                usual.map_or_else(|| self.connection.message(), |usual| Ok(Some(Message::Answer(usual))));
            let Some(message) = message? else { break };
            match message {
                Message::Push(push) => {
                    if self.note == NoteStatus::Known
                        && self.max_ttl.as_ref().is_some_and(|note| may_change(push, note.key()))
                    {
                        self.note = NoteStatus::Outdated;
                    }
                    if let Some(listeners) = self.listeners
                        && !(self.pushes_own
                            && self.in_flight.front().is_some_and(|sent| sent.changes_own_place(push)))
                    {
                        listeners.pushed(push, &self.identity);
                    }
                }
                Message::Answer(answer) => {
                    // Without a request, later replies would be taken for those of other requests.
                    let Some(sent) = self.in_flight.front_mut() else { return Err(ConnectionError::Stray) };
                    if !received {
                        // The first of those that arrived together.
                        received = true;
                        self.last_reply = self.clock.now();
                    }
                    if sent.prelude > 0 {
                        // The usual reply includes the whole prelude.
                        sent.prelude = if usual.is_some() { 0 } else { sent.prelude - 1 };
                        if let Expected::Ask { ask, sent_as: SentAs::Deletion(said) } = &mut sent.expected
                            && let Some(claim) = ask.request.claim()
                        {
                            *said = Some(decode_deletion(answer, claim, self.connector.user()));
                        }
                        continue;
                    }
                    if answer == QUEUED {
                        return Err(ConnectionError::Queued);
                    }
                    let Some(sent) = self.in_flight.pop_front() else { return Err(ConnectionError::Stray) };
                    let (ask, sent_as) = match sent.expected {
                        Expected::Ask { ask, sent_as } => (ask, sent_as),
                        Expected::Undo(undo) => {
                            undo.ask.answer(Err(undo.error));
                            continue;
                        }
                        Expected::ReplicaAck => {
                            let copies = copies_in(answer);
                            self.copied(copies);
                            continue;
                        }
                        Expected::NodeLists => {
                            if let Some(note) = &self.lists {
                                note.hear(self.name, answer, self.last_reply);
                            }
                            continue;
                        }
                        Expected::MaxTtl => {
                            if let Some((note, theirs)) = self.max_ttl.as_ref().zip(max_ttl_in(answer)) {
                                note.hear(self.name, theirs);
                            }
                            self.note = NoteStatus::Known;
                            continue;
                        }
                    };
                    let (outcome, by_hash) = match sent_as {
                        SentAs::Transaction => (Ok(decode_acquisition(answer, &ask.request)), ByHash::No),
                        SentAs::Deletion(said) => {
                            (with_mark(said.unwrap_or(Deletion::NotOurs), answer), ByHash::No)
                        }
                        SentAs::Scripted(by_hash) => {
                            (decode(answer, &ask.request, self.connector.user()), by_hash)
                        }
                        SentAs::Plain => {
                            (decode_plain(answer, &ask.request, self.connector.user()), ByHash::No)
                        }
                    };
                    if let Ok(CommandOutcome::Demoted) = outcome {
                        ask.answer(Err(demoted()));
                        return Err(ConnectionError::Demoted);
                    }
                    self.handle(ask, by_hash, outcome);
                }
            }
        }
        if received {
            self.alive();
        }
        Ok(())
    }

    /// Delivers the outcome of a request.
    fn handle(&mut self, mut ask: Ask, by_hash: ByHash, outcome: Result<CommandOutcome, NodeError>) {
        let unnumbered = ask.stage == Stage::Unnumbered;
        match outcome {
            // It was not stored, or has gone since.
            Ok(CommandOutcome::Voted { vote: Vote::Free, .. }) if unnumbered => {
                ask.stage = Stage::Scripted;
                self.batch.push(ask);
            }
            // The command that has released it notifies no waiter.
            Ok(CommandOutcome::Voted { vote: Vote::ReleasedContended, .. })
                if self.supported.deleting.is_some() && ask.stage == Stage::Fresh =>
            {
                ask.stage = Stage::Released;
                self.batch.push(ask);
            }
            outcome if ask.stage == Stage::Released && !matches!(outcome, Ok(CommandOutcome::Forgotten)) => {
                let told = matches!(outcome, Ok(CommandOutcome::Voted { vote: Vote::Notified, .. }));
                let vote = if told { Vote::Notified } else { Vote::ReleasedContended };
                ask.answer(Ok(Response::new(vote, Arc::clone(&self.identity))));
            }
            Ok(CommandOutcome::Voted { vote, fence }) => {
                let unconfirmed =
                    self.replica_ack.is_some() && vote == Vote::Granted && must_last(&ask.request);
                let answer = Response::new(vote, Arc::clone(&self.identity)).with_fencing_token(fence);
                if unconfirmed {
                    self.unconfirmed.push((ask, answer));
                } else {
                    ask.answer_with(answer, ReceivedAt { at: self.last_reply, clock: self.clock });
                }
            }
            // The script was not run, and no later request undoes it: an attempt that was given up since then
            // is not sent again.
            Ok(CommandOutcome::Forgotten) if by_hash == ByHash::Yes => {
                self.library.forget();
                self.batch.push(ask);
            }
            Ok(CommandOutcome::Forgotten) if unnumbered => self.undo(ask, no_script()),
            Ok(CommandOutcome::Forgotten) => ask.answer(Err(no_script())),
            Ok(CommandOutcome::Refused) => {
                ask.stage = Stage::Scripted;
                self.batch.push(ask);
            }
            Ok(CommandOutcome::Unnumbered) => {
                ask.stage = Stage::Unnumbered;
                self.batch.push(ask);
            }
            Ok(CommandOutcome::Unclear) => {
                // The server may not support it, or the user may lack a permission: scripts report more about
                // the cause.
                self.transactions_from = self.clock.now() + SCRIPTS_FOR;
                ask.stage = Stage::Unnumbered;
                self.batch.push(ask);
            }
            Ok(CommandOutcome::Demoted) => ask.answer(Err(demoted())),
            Err(error) if unnumbered => self.undo(ask, error),
            Err(error) => ask.answer(Err(error)),
        }
    }

    /// Releases what the request may have stored, and then reports the error, which says that nothing was
    /// done.
    fn undo(&mut self, ask: Ask, error: NodeError) {
        let Some(claim) = ask.request.claim() else { return ask.answer(Err(error)) };
        let release = Request::Release { claim: Arc::new(claim.clone()) };
        // In full: this must not fail for a lost script, whatever else has failed.
        encode(&release, None, &mut Library::default(), self.connection.outbox());
        self.in_flight.push_back(Sent {
            expected: Expected::Undo(Box::new(Undo { ask, error })),
            at: self.clock.now(),
            prelude: 0,
        });
    }

    /// Records that `copies` replicas have the granted votes.
    fn copied(&mut self, copies: u64) {
        let needed = self.replica_ack.map_or(0, |copies| u64::from(copies.needed));
        for (ask, answer) in self.unconfirmed.drain(..) {
            let enough = copies >= needed;
            ask.answer(if enough { Ok(answer) } else { Err(NodeError::Unconfirmed { copies, needed }) });
        }
    }
}

/// The error of a server that does not know a script that was sent in full.
fn no_script() -> NodeError {
    unexpected("it does not know a script that was sent in full")
}

/// It was a master at the handshake. The next handshake shows whether the problem is permanent.
fn demoted() -> NodeError {
    NodeError::Unreachable { reason: "it is a replica now, or was one since the handshake".into() }
}
