//! Delivers the replies and pushes of the server.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::super::admission::PendingRequest;
use super::super::command::encode;
use super::super::connection::{ConnectionError, Message, READS, text, value, yield_later};
use super::super::exchange::{Progress, Step};
use super::super::max_ttl::max_ttl_in;
use super::super::push::is_of_everything;
use super::super::redisson;
use super::super::scripts::Library;
use super::Session;
use super::sent::{Expected, Sent, Undo};
use crate::node::{NodeError, ReceivedAt, Request, Response};

/// How long only scripts are used after the server has refused one of two commands: it may be out of memory for a
/// while, or the user may lack a permission.
const SCRIPTS_FOR: Duration = Duration::from_secs(10);

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
                    if is_of_everything(push) {
                        return Err(self.invalidated());
                    }
                    self.notes.pushed(push);
                    if let Some(listeners) = self.listeners
                        && !(self.pushes_own
                            && self.in_flight.front().is_some_and(|sent| sent.changes_own(push)))
                    {
                        listeners.pushed(push, &self.identity);
                    }
                }
                Message::Answer(answer) => {
                    // Without a request, later replies would be taken for those of other requests.
                    let Some(sent) = self.in_flight.pop_front() else { return Err(ConnectionError::Stray) };
                    if !received {
                        // The first of those that arrived together.
                        received = true;
                        self.last_reply = self.clock.now();
                    }
                    match sent.expected {
                        Expected::Response { pending, mut awaited } => {
                            match awaited.read(answer, &pending.request, self.connector.user()) {
                                None => {
                                    let expected = Expected::Response { pending, awaited };
                                    self.in_flight.push_front(Sent { expected, at: sent.at });
                                }
                                Some(progress) => self.proceed(pending, progress)?,
                            }
                        }
                        Expected::Undo(undo) => undo.pending.answer(Err(undo.error)),
                        Expected::NodeLists => {
                            if let Some(note) = &self.lists {
                                note.hear(self.name, answer, self.last_reply);
                            }
                        }
                        Expected::MaxTtl => {
                            if let Some((note, theirs)) = self.notes.max_ttl.as_ref().zip(max_ttl_in(answer))
                            {
                                note.hear(self.name, theirs);
                            }
                            self.notes.max_ttl_is_known();
                        }
                        Expected::SecretLeft => {}
                        Expected::Secret => {
                            let secret = value(answer).ok().and_then(text);
                            self.notes.secret_is_known();
                            self.has_secret(secret);
                        }
                    }
                }
            }
        }
        if received {
            self.alive();
        }
        Ok(())
    }

    /// Records that the data may be others from here on, and returns the error that ends the connection: the replies that
    /// follow are not read.
    fn invalidated(&mut self) -> ConnectionError {
        self.connector.invalidated(self.clock.now());
        ConnectionError::Invalidated
    }

    /// Records the secret of the inboxes, which has changed.
    fn has_secret(&mut self, secret: Option<String>) {
        let (Some(secret), Some(listeners)) = (secret, self.listeners) else { return };
        let secret: Box<[u8]> = secret.into_bytes().into();
        self.connector.has_secret(secret.clone());
        listeners.inbox_open(secret);
    }

    /// Answers a request, or sends its next step.
    fn proceed(&mut self, mut pending: PendingRequest, progress: Progress) -> Result<(), ConnectionError> {
        match progress {
            Progress::Voted { vote, fence } => {
                let answer = Response::new(vote, Arc::clone(&self.identity)).with_fencing_token(fence);
                pending.answer_with(answer, ReceivedAt { at: self.last_reply, clock: self.clock });
            }
            Progress::Then(step) => {
                pending.step = Some(step);
                self.batch.push(pending);
            }
            Progress::Unclear => {
                self.pairs_from = self.clock.now() + SCRIPTS_FOR;
                pending.step = Some(Step::Draw);
                self.batch.push(pending);
            }
            Progress::Again => {
                self.library.forget();
                self.batch.push(pending);
            }
            Progress::Failed(error) => {
                let of_redisson = self.library.redisson().is_some();
                pending.answer(Err(if of_redisson { redisson::explain(error) } else { error }));
            }
            Progress::Undo(error) => self.undo(pending, error),
            Progress::Demoted => {
                pending.answer(Err(demoted()));
                return Err(ConnectionError::Demoted);
            }
        }
        Ok(())
    }

    /// Releases what the request may have stored, and then reports the error, which says that nothing was
    /// done.
    fn undo(&mut self, pending: PendingRequest, error: NodeError) {
        let Some(claim) = pending.request.claim() else { return pending.answer(Err(error)) };
        let release = Request::Release { claim: Arc::new(claim.clone()) };
        // In full: this must not fail for a lost script, whatever else has failed.
        encode(&release, None, &mut Library::new(self.library.redisson()), self.connection.outbox());
        self.in_flight.push_back(Sent {
            expected: Expected::Undo(Box::new(Undo { pending, error })),
            at: self.clock.now(),
        });
    }
}

/// It was a master at the handshake. The next handshake shows whether the problem is permanent.
fn demoted() -> NodeError {
    NodeError::Unreachable { reason: "it is a replica now, or was one since the handshake".into() }
}
