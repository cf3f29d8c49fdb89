//! Delivers the replies and pushes of the server.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::super::admission::{Ask, Stage};
use super::super::command::reply::{CommandOutcome, decode, decode_plain};
use super::super::command::transaction::{Deletion, decode_acquisition, decode_deletion, with_mark};
use super::super::command::{ByHash, encode};
use super::super::connection::{ConnectionError, Message, READS, go_on_later};
use super::super::error::unexpected;
use super::super::replicas::{copies_in, must_last};
use super::super::scripts::Library;
use super::Session;
use super::sent::{Sent, Undo, Way, What};
use crate::node::{NodeError, ReceivedAt, Request, Response, Vote};

/// How long only scripts are used after the server has refused a transaction: it may be out of memory for a
/// while, or the user may lack a permission.
const SCRIPTS_FOR: Duration = Duration::from_secs(10);

/// The reply to a command within a transaction. None of our requests expects it: the replies within an
/// acquisition are skipped.
const QUEUED: &[u8] = b"+QUEUED\r\n";

impl Session<'_> {
    /// Reads and delivers replies and pushes.
    pub(super) fn hear(&mut self, context: &mut Context<'_>) -> Result<(), ConnectionError> {
        for _ in 0..READS {
            self.hand_out()?;
            match self.line.poll_read(context) {
                Poll::Ready(read) => read?,
                Poll::Pending => return Ok(()),
            }
        }
        go_on_later(context);
        Ok(())
    }

    /// Delivers what was read, in the order in which the server sent it: a waiter that received a change
    /// before the earlier reply would wait for the next change.
    fn hand_out(&mut self) -> Result<(), ConnectionError> {
        let mut heard = false;
        loop {
            let usual = self.in_flight.front().and_then(Sent::usual).filter(|usual| self.line.passes(usual));
            let message = usual.map_or_else(|| self.line.message(), |usual| Ok(Some(Message::Answer(usual))));
            let Some(message) = message? else { break };
            match message {
                Message::Push(push) => {
                    if let Some(listeners) = self.listeners
                        && !(self.tells_own
                            && self.in_flight.front().is_some_and(|sent| sent.changes_own_place(push)))
                    {
                        listeners.pushed(push, &self.identity);
                    }
                }
                Message::Answer(answer) => {
                    // Without a request, later replies would be taken for those of other requests.
                    let Some(sent) = self.in_flight.front_mut() else { return Err(ConnectionError::Stray) };
                    if !heard {
                        // The first of those that arrived together.
                        heard = true;
                        self.heard = self.clock.now();
                    }
                    if sent.prelude > 0 {
                        // The usual reply includes the whole prelude.
                        sent.prelude = if usual.is_some() { 0 } else { sent.prelude - 1 };
                        if let What::Ask { ask, way: Way::Deletion(said) } = &mut sent.what
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
                    let (ask, way) = match sent.what {
                        What::Ask { ask, way } => (ask, way),
                        What::Undo(undo) => {
                            undo.ask.answer(Err(undo.error));
                            continue;
                        }
                        What::ReplicaAck => {
                            let copies = copies_in(answer);
                            self.copied(copies);
                            continue;
                        }
                    };
                    let (reading, by_hash) = match way {
                        Way::Transaction => (Ok(decode_acquisition(answer, &ask.request)), ByHash::No),
                        Way::Deletion(said) => {
                            (with_mark(said.unwrap_or(Deletion::NotOurs), answer), ByHash::No)
                        }
                        Way::Scripted(by_hash) => {
                            (decode(answer, &ask.request, self.connector.user()), by_hash)
                        }
                        Way::Plain => (decode_plain(answer, &ask.request, self.connector.user()), ByHash::No),
                    };
                    if let Ok(CommandOutcome::Demoted) = reading {
                        ask.answer(Err(demoted()));
                        return Err(ConnectionError::Demoted);
                    }
                    self.answered(ask, by_hash, reading);
                }
            }
        }
        if heard {
            self.alive();
        }
        Ok(())
    }

    /// Delivers the outcome of a request.
    fn answered(&mut self, mut ask: Ask, by_hash: ByHash, reading: Result<CommandOutcome, NodeError>) {
        let unnumbered = ask.stage == Stage::Unnumbered;
        match reading {
            // It was not stored, or has gone since.
            Ok(CommandOutcome::Voted { vote: Vote::Free, .. }) if unnumbered => {
                ask.stage = Stage::Scripted;
                self.batch.push(ask);
            }
            // The command that has released it notifies no waiter.
            Ok(CommandOutcome::Voted { vote: Vote::Wanted, .. })
                if self.supported.deleting.is_some() && ask.stage == Stage::Fresh =>
            {
                ask.stage = Stage::Released;
                self.batch.push(ask);
            }
            reading if ask.stage == Stage::Released && !matches!(reading, Ok(CommandOutcome::Forgotten)) => {
                let told = matches!(reading, Ok(CommandOutcome::Voted { vote: Vote::Notified, .. }));
                let vote = if told { Vote::Notified } else { Vote::Wanted };
                ask.answer(Ok(Response::new(vote, Arc::clone(&self.identity))));
            }
            Ok(CommandOutcome::Voted { vote, fence }) => {
                let unconfirmed = self.copies.is_some() && vote == Vote::Granted && must_last(&ask.request);
                let answer = Response::new(vote, Arc::clone(&self.identity)).with_fencing_token(fence);
                if unconfirmed {
                    self.unconfirmed.push((ask, answer));
                } else {
                    ask.answer_with(answer, ReceivedAt { at: self.heard, clock: self.clock });
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
        encode(&release, None, &mut Library::default(), self.line.outbox());
        self.in_flight.push_back(Sent {
            what: What::Undo(Box::new(Undo { ask, error })),
            at: self.clock.now(),
            prelude: 0,
        });
    }

    /// Records that `copies` replicas have the granted votes.
    fn copied(&mut self, copies: u64) {
        let needed = self.copies.map_or(0, |copies| u64::from(copies.needed));
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
