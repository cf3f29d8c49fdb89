//! The buffers of a connection: requests to send, and messages that were read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;

use super::super::resp::frame::{FrameError, FrameScanner, LONGEST};
use super::Message;
use crate::transport::Stream;

/// The size of one read: about a thousand votes. No buffer stays larger than this.
pub(super) const USUAL: usize = 16 * 1024;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) bytes: Vec<u8>,
    /// How many of them were passed to the stream.
    written: usize,
    /// How many were sent over the connection so far.
    pub(super) sent: usize,
    pub(super) flushed: bool,
}

impl Outbox {
    pub(super) fn poll_send(
        &mut self,
        stream: &mut dyn Stream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(stream);
        while let Some(rest @ [_, ..]) = self.bytes.get(self.written..) {
            match ready!(stream.as_mut().poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => {
                    debug_assert!(written <= rest.len(), "the stream has taken bytes that it was not given");
                    self.written += written;
                    self.sent = self.sent.wrapping_add(written);
                }
            }
            // The buffer must not keep everything for a server that always reads late.
            if self.written >= USUAL && self.written >= self.bytes.len() / 2 {
                self.bytes.drain(..self.written);
                self.written = 0;
            }
        }
        self.written = 0;
        self.bytes.clear();
        self.bytes.shrink_to(USUAL);
        if !self.flushed {
            ready!(stream.poll_flush(context))?;
            self.flushed = true;
        }
        Poll::Ready(Ok(()))
    }
}

#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) buffer: Vec<u8>,
    /// The begin of the first message that was not returned yet.
    begin: usize,
    /// The end of the scanned part.
    seen: usize,
    /// The end of the data.
    end: usize,
    scan: FrameScanner,
}

impl Inbox {
    pub(super) fn poll_read(
        &mut self,
        stream: &mut dyn Stream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        debug_assert_eq!(
            self.seen, self.end,
            "no byte is left unscanned, so that the length of a message is bounded"
        );
        self.make_room();
        debug_assert!(self.buffer.len() <= 2 * LONGEST, "the buffer is bounded, whatever the server sends");
        let mut room = ReadBuf::new(self.buffer.get_mut(self.end..).unwrap_or_default());
        ready!(Pin::new(stream).poll_read(context, &mut room))?;
        match room.filled().len() {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            read => {
                self.end += read;
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Grows the buffer for a long message, whose length is bounded, and shrinks it afterwards.
    fn make_room(&mut self) {
        if self.begin == self.end {
            (self.begin, self.seen, self.end) = (0, 0, 0);
            if self.buffer.len() != USUAL {
                self.buffer = vec![0; USUAL];
            }
        } else if self.end == self.buffer.len() {
            if self.begin > 0 {
                self.buffer.copy_within(self.begin..self.end, 0);
                self.seen -= self.begin;
                self.end -= self.begin;
                self.begin = 0;
            } else {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
    }

    pub(super) fn passes(&mut self, messages: &[u8]) -> bool {
        let news = self.buffer.get(self.seen..self.end).unwrap_or_default();
        // A message that is partly scanned must be scanned to its end.
        let passes = self.begin == self.seen && news.starts_with(messages);
        if passes {
            self.seen += messages.len();
            self.begin = self.seen;
        }
        passes
    }

    pub(super) fn message(&mut self) -> Result<Option<Message<'_>>, FrameError> {
        let news = self.buffer.get(self.seen..self.end).unwrap_or_default();
        let Some(length) = self.scan.end(news)? else {
            self.seen = self.end;
            return Ok(None);
        };
        let end = self.seen + length;
        debug_assert!(self.begin < end && end <= self.end, "a message is part of what was read");
        let message = self.buffer.get(self.begin..end).unwrap_or_default();
        (self.begin, self.seen) = (end, end);
        Ok(Some(if message.first() == Some(&b'>') {
            Message::Push(message)
        } else {
            Message::Answer(message)
        }))
    }
}
