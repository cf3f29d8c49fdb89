//! One connection: reads and writes its bytes.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use redis::Value;

use self::allowance::Allowance;
use self::buffers::{Inbox, Outbox};
use super::push::is_of_everything;
use super::resp::decode::{RespReader, RespValue};
use super::resp::frame::{FOREIGN, FrameError};
use crate::runtime::clock::Clock;
use crate::transport::Stream;

mod allowance;
mod buffers;
#[cfg(test)]
mod tests;

/// A connection, which sends requests in the order in which they were written to it, and returns the server's
/// messages one by one. See ADR 5.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    /// The ID that the server assigned to the connection, if it has reported it.
    pub(crate) client: Option<i64>,
    out: Outbox,
    inbox: Inbox,
    /// Whether a push was ignored between the replies of the handshake.
    pub(crate) missed_push: bool,
    /// Whether one of them was of everything.
    pub(crate) is_invalidated: bool,
    allowance: Allowance,
}

/// A message of the server, in the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Message<'a> {
    /// The reply to the oldest unanswered request.
    Answer(&'a [u8]),
    /// A push.
    Push(&'a [u8]),
}

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum ConnectionError {
    /// The stream has ended.
    Stream(io::Error),
    /// The stream ended before the server had sent anything.
    Early {
        error: io::Error,
        /// The likely cause.
        likely: &'static str,
    },
    /// The server sent an invalid message.
    FrameError(FrameError),
    /// The server sent a reply without a request.
    Stray,
    /// The server pushed far more than the requests explain.
    Flood,
    /// The server process is a replica now, and may later be a master that has lost locks.
    Demoted,
    /// The server has invalidated all keys, and may have lost locks.
    Invalidated,
}

impl Connection {
    pub(crate) fn new(stream: Box<dyn Stream>, clock: Arc<dyn Clock>) -> Connection {
        let (out, inbox) = (Outbox::default(), Inbox::default());
        Connection {
            stream,
            client: None,
            out,
            inbox,
            missed_push: false,
            is_invalidated: false,
            allowance: Allowance::new(clock),
        }
    }

    /// Returns the buffer to write requests to.
    pub(crate) fn outbox(&mut self) -> &mut Vec<u8> {
        self.out.flushed = false;
        &mut self.out.bytes
    }

    /// Sends the outbox, as far as the stream accepts it.
    pub(crate) fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        let before = self.out.sent;
        let sent = self.out.poll_send(&mut *self.stream, context).map_err(ConnectionError::Stream);
        self.allowance.sent(self.out.sent.wrapping_sub(before));
        sent
    }

    /// Reads once from the stream.
    pub(crate) fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        self.inbox.poll_read(&mut *self.stream, context).map_err(ConnectionError::Stream)
    }

    /// Returns the next complete message that was read.
    pub(crate) fn message(&mut self) -> Result<Option<Message<'_>>, ConnectionError> {
        let message = self.inbox.message().map_err(ConnectionError::FrameError)?;
        if let Some(Message::Push(push)) = message {
            self.allowance.pushed(push)?;
        }
        Ok(message)
    }

    /// Skips these messages if they are exactly what follows in the buffer.
    pub(crate) fn passes(&mut self, messages: &[u8]) -> bool {
        self.inbox.passes(messages)
    }

    /// Sends requests and waits for as many replies. Of pushes in between it only records that there was one.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the connection must not be used afterwards.
    pub(crate) async fn exchange(
        &mut self,
        requests: &redis::Pipeline,
    ) -> Result<Vec<Value>, ConnectionError> {
        self.outbox().extend(requests.get_packed_pipeline());
        Ok(self.replies(requests.len(), false).await?.0)
    }

    /// Sends what was written to the outbox, and waits for the replies to the next `count` requests. If one of them
    /// `subscribes` to channels, returns also whether it did: the server then pushes each channel instead of a reply to it.
    ///
    /// # Cancel safety
    ///
    /// As of [`exchange`](Connection::exchange).
    pub(crate) async fn replies(
        &mut self,
        count: usize,
        subscribes: bool,
    ) -> Result<(Vec<Value>, bool), ConnectionError> {
        let (mut answers, mut expected) = (Vec::with_capacity(count), count);
        std::future::poll_fn(|context| {
            // A reply that was sent before the server closed the connection counts, such as that it has too
            // many clients.
            let sent = match self.poll_send(context) {
                Poll::Ready(Err(broken)) => Err(broken),
                Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
            };
            for _ in 0..READS {
                while answers.len() < expected {
                    match self.message()? {
                        Some(Message::Answer(answer)) => answers.push(value(answer)?),
                        Some(Message::Push(push)) if subscribes && is_subscription(push) => {
                            expected = count - 1;
                        }
                        Some(Message::Push(push)) => {
                            let of_everything = is_of_everything(push);
                            self.missed_push = true;
                            self.is_invalidated |= of_everything;
                        }
                        None => break,
                    }
                }
                if answers.len() == expected {
                    return Poll::Ready(Ok(()));
                }
                match self.poll_read(context) {
                    Poll::Ready(read) => read?,
                    Poll::Pending => {
                        return sent.map_or_else(|broken| Poll::Ready(Err(broken)), |()| Poll::Pending);
                    }
                }
            }
            yield_later(context);
            Poll::Pending
        })
        .await?;
        Ok((answers, expected < count))
    }
}

/// Returns whether the push confirms a subscription to a channel.
fn is_subscription(push: &[u8]) -> bool {
    let mut parts = RespReader::of(push);
    matches!((parts.next(), parts.next()), (Some(RespValue::List(3)), Some(RespValue::Text(b"subscribe"))))
}

/// The most reads in a row: a stream that always has data must not starve the others. Two reads are two
/// thousand votes.
pub(crate) const READS: u32 = 2;

/// Wakes the task of `context` after the runtime has polled its timers and the other connections. A task that
/// wakes itself in the usual way is polled sixty times before that, if no other task is ready.
pub(crate) fn yield_later(context: &mut Context<'_>) {
    // It would be ready when polled again, which does not happen: only the wake-up matters.
    let _woken = pin!(tokio::task::yield_now()).poll(context);
}

/// Parses a message with the client crate.
pub(crate) fn value(message: &[u8]) -> Result<Value, ConnectionError> {
    redis::parse_redis_value(message).map_err(|_| ConnectionError::FrameError(FOREIGN))
}

/// Returns the text of a reply, of any kind of string.
pub(crate) fn text(answer: Value) -> Option<String> {
    if let Value::BulkString(bytes) = answer {
        Some(String::from_utf8_lossy(&bytes).into_owned())
    } else if let Value::SimpleString(text) | Value::VerbatimString { text, .. } = answer {
        Some(text)
    } else {
        None
    }
}

/// Returns the error of a reply, if it is one.
pub(super) fn server_error(answer: Value) -> Option<redis::ServerError> {
    if let Value::ServerError(error) = answer { Some(error) } else { None }
}
