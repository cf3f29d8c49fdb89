//! The bytes of one connection, both ways.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use redis::Value;
use tokio::io::ReadBuf;

use super::bounds::{Excess, FOREIGN, Scan};
use super::dial::Stream;

/// How much is read at once. A thousand votes; no buffer stays larger than that.
const USUAL: usize = 16 * 1024;

/// A connection: requests go out in the order in which they were written to it, and what the server
/// says comes in, message by message. See ADR 8.
pub(crate) struct Line {
    stream: Box<dyn Stream>,
    /// What the server calls this connection, if it has said so.
    pub(crate) client: Option<i64>,
    out: Outbox,
    inbox: Inbox,
}

/// What the server says, where it stands in the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Message<'a> {
    /// To the oldest request without an answer.
    Answer(&'a [u8]),
    /// Unasked.
    Push(&'a [u8]),
}

/// Why a line carries nothing more.
#[derive(Debug)]
pub(crate) enum Break {
    /// The stream ended.
    Stream(io::Error),
    /// The server sent what none should.
    Excess(Excess),
    /// It sent an answer, and there was no question.
    Stray,
    /// The process at its other end is a replica now, and may come back as a master that has forgotten.
    Demoted,
}

impl Line {
    pub(crate) fn new(stream: Box<dyn Stream>) -> Line {
        Line { stream, client: None, out: Outbox::default(), inbox: Inbox::default() }
    }

    /// Where requests are written.
    pub(crate) fn outbox(&mut self) -> &mut Vec<u8> {
        self.out.flushed = false;
        &mut self.out.bytes
    }

    /// Sends what is in the outbox, as much at a time as the stream takes.
    pub(crate) fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Break>> {
        self.out.poll_send(&mut *self.stream, context).map_err(Break::Stream)
    }

    /// Reads once.
    pub(crate) fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Break>> {
        self.inbox.poll_read(&mut *self.stream, context).map_err(Break::Stream)
    }

    /// The next message that is complete, of those that were read.
    pub(crate) fn message(&mut self) -> Result<Option<Message<'_>>, Break> {
        self.inbox.message().map_err(Break::Excess)
    }

    /// Passes over these messages, if they are what comes next, to the last byte.
    pub(crate) fn passes(&mut self, messages: &[u8]) -> bool {
        self.inbox.passes(messages)
    }

    /// Sends some requests, and waits for as many answers. What is pushed meanwhile concerns nobody.
    ///
    /// # Cancel safety
    ///
    /// None: the line is not to be used any more.
    pub(crate) async fn exchange(&mut self, requests: &redis::Pipeline) -> Result<Vec<Value>, Break> {
        self.outbox().extend(requests.get_packed_pipeline());
        let mut answers = Vec::with_capacity(requests.len());
        std::future::poll_fn(|context| {
            // What it said before it left counts, such as that it has clients enough.
            let sent = match self.poll_send(context) {
                Poll::Ready(Err(broken)) => Err(broken),
                Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
            };
            for _ in 0..READS {
                while answers.len() < requests.len() {
                    match self.message()? {
                        Some(Message::Answer(answer)) => answers.push(value(answer)?),
                        Some(Message::Push(_)) => {}
                        None => break,
                    }
                }
                if answers.len() == requests.len() {
                    return Poll::Ready(Ok(()));
                }
                match self.poll_read(context) {
                    Poll::Ready(read) => read?,
                    Poll::Pending => {
                        return sent.map_or_else(|broken| Poll::Ready(Err(broken)), |()| Poll::Pending);
                    }
                }
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await?;
        Ok(answers)
    }
}

/// The most reads in a row. A stream that always has more to read would use up the runtime's budget
/// for the task (128), and with it the turns of its timers and of its questions.
pub(crate) const READS: u32 = 32;

/// A message, as the client crate reads it.
pub(crate) fn value(message: &[u8]) -> Result<Value, Break> {
    redis::parse_redis_value(message).map_err(|_| Break::Excess(FOREIGN))
}

/// The text of an answer, of whichever kind of string.
pub(crate) fn text(answer: Value) -> Option<String> {
    if let Value::BulkString(bytes) = answer {
        Some(String::from_utf8_lossy(&bytes).into_owned())
    } else if let Value::SimpleString(text) | Value::VerbatimString { text, .. } = answer {
        Some(text)
    } else {
        None
    }
}

#[derive(Debug, Default)]
struct Outbox {
    bytes: Vec<u8>,
    /// So many of them are on their way.
    written: usize,
    flushed: bool,
}

impl Outbox {
    fn poll_send(&mut self, stream: &mut dyn Stream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(stream);
        while let Some(rest @ [_, ..]) = self.bytes.get(self.written..) {
            match ready!(stream.as_mut().poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
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
struct Inbox {
    buffer: Vec<u8>,
    /// Where the first message begins that was not handed out.
    begin: usize,
    /// So far it was looked at.
    seen: usize,
    /// So far there is something.
    end: usize,
    scan: Scan,
}

impl Inbox {
    fn poll_read(&mut self, stream: &mut dyn Stream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.make_room();
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

    /// Grows for a message that needs it, whose length is bounded, and shrinks behind it.
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

    fn passes(&mut self, messages: &[u8]) -> bool {
        let news = self.buffer.get(self.seen..self.end).unwrap_or_default();
        // What the scan has begun to look at, it has to see the end of.
        let passes = self.begin == self.seen && news.starts_with(messages);
        if passes {
            self.seen += messages.len();
            self.begin = self.seen;
        }
        passes
    }

    fn message(&mut self) -> Result<Option<Message<'_>>, Excess> {
        let news = self.buffer.get(self.seen..self.end).unwrap_or_default();
        let Some(length) = self.scan.end(news)? else {
            self.seen = self.end;
            return Ok(None);
        };
        let end = self.seen + length;
        let message = self.buffer.get(self.begin..end).unwrap_or_default();
        (self.begin, self.seen) = (end, end);
        Ok(Some(if message.first() == Some(&b'>') {
            Message::Push(message)
        } else {
            Message::Answer(message)
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use proptest::prelude::*;
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

    use super::super::bounds::LONGEST;
    use super::*;

    async fn read(line: &mut Line) -> Result<(), Break> {
        std::future::poll_fn(|context| line.poll_read(context)).await
    }

    /// All that comes until the stream ends.
    async fn all(line: &mut Line) -> Vec<(bool, Vec<u8>)> {
        let mut messages = Vec::new();
        while read(line).await.is_ok() {
            while let Some(message) = line.message().unwrap() {
                messages.push(match message {
                    Message::Answer(answer) => (false, answer.to_vec()),
                    Message::Push(push) => (true, push.to_vec()),
                });
            }
        }
        messages
    }

    fn text(length: usize) -> Vec<u8> {
        [format!("${length}\r\n").as_bytes(), &vec![b'x'; length], b"\r\n"].concat()
    }

    #[tokio::test]
    async fn a_long_message_is_taken_in_and_its_room_given_back() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut line = Line::new(Box::new(near));
        let (long, short) = (text(LONGEST - 20), text(5));
        far.write_all(&[&short[..], &long, &short].concat()).await.unwrap();
        drop(far);
        let mut lengths = Vec::new();
        while read(&mut line).await.is_ok() {
            while let Some(Message::Answer(answer)) = line.message().unwrap() {
                lengths.push(answer.len());
            }
            assert!(line.inbox.buffer.len() <= 2 * LONGEST, "{}", line.inbox.buffer.len());
        }
        assert_eq!(lengths, [short.len(), long.len(), short.len()]);
        assert_eq!(line.inbox.buffer.len(), USUAL);
    }

    #[tokio::test]
    async fn nothing_is_passed_over_within_a_message_that_has_begun() {
        let (near, mut far) = tokio::io::duplex(1000);
        let mut line = Line::new(Box::new(near));
        far.write_all(b"$5\r\n").await.unwrap();
        read(&mut line).await.unwrap();
        assert_eq!(line.message().unwrap(), None);
        far.write_all(b"+OK\r\n\r\n+OK\r\n").await.unwrap();
        read(&mut line).await.unwrap();
        assert!(!line.passes(b"+OK\r\n"), "it is text");
        assert_eq!(line.message().unwrap(), Some(Message::Answer(b"$5\r\n+OK\r\n\r\n")));
        assert!(line.passes(b"+OK\r\n") && !line.passes(b"+OK\r\n"), "it was one message");
    }

    #[tokio::test]
    async fn what_is_to_be_sent_is_sent_in_order_and_its_room_given_back() {
        let (near, mut far) = tokio::io::duplex(1000);
        let mut line = Line::new(Box::new(near));
        let words: Vec<u8> = (0..100_000_u32).flat_map(u32::to_be_bytes).collect();
        line.outbox().extend_from_slice(&words);
        let sender = async {
            std::future::poll_fn(|context| line.poll_send(context)).await.unwrap();
            assert!(line.out.bytes.capacity() <= USUAL);
            drop(line);
        };
        let mut heard = Vec::new();
        futures::future::join(sender, far.read_to_end(&mut heard)).await.1.unwrap();
        assert!(heard == words, "{} bytes came", heard.len());
    }

    #[tokio::test]
    async fn what_a_server_says_before_it_leaves_counts() {
        let (near, mut far) = tokio::io::duplex(1000);
        far.write_all(b"-ERR max number of clients reached\r\n").await.unwrap();
        drop(far);
        let mut ping = redis::Pipeline::new();
        ping.cmd("PING");
        let answers = Line::new(Box::new(near)).exchange(&ping).await.unwrap();
        assert!(
            matches!(&answers[..], [Value::ServerError(error)] if error.details().is_some()),
            "{answers:?}"
        );
    }

    #[tokio::test]
    async fn pushes_without_end_leave_others_their_turn() {
        let read = Arc::new(AtomicU32::new(0));
        let mut line = Line::new(Box::new(Endless { read: Arc::clone(&read) }));
        let mut ping = redis::Pipeline::new();
        ping.cmd("PING");
        let others = async {
            for _ in 0..100 {
                read.store(0, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        };
        let waiting = std::pin::pin!(line.exchange(&ping));
        let first = futures::future::select(waiting, Box::pin(others)).await;
        assert!(matches!(first, futures::future::Either::Right(_)), "nothing was answered");
    }

    /// Pushes whenever it is read from, without the runtime's budget.
    struct Endless {
        /// How often it was read from since others had their turn.
        read: Arc<AtomicU32>,
    }

    impl AsyncRead for Endless {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            room: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            assert!(self.read.fetch_add(1, Ordering::Relaxed) < READS, "nobody else has a turn");
            room.put_slice(b">0\r\n");
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Endless {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    proptest! {
        #[test]
        fn messages_are_the_same_however_their_bytes_are_cut(
            pieces in prop::collection::vec(
                prop::sample::select(vec!["+OK\r\n", "$-1\r\n", ">2\r\n+a\r\n_\r\n", "*2\r\n$3\r\n\r\n\r\r\n:5\r\n", ">0\r\n"]),
                1..30,
            ),
            cut in 1..50_usize,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let messages = runtime.block_on(async {
                let (near, mut far) = tokio::io::duplex(cut);
                let bytes = pieces.concat();
                let server = async move { far.write_all(bytes.as_bytes()).await.unwrap() };
                let mut line = Line::new(Box::new(near));
                futures::future::join(server, all(&mut line)).await.1
            });
            let expected: Vec<_> =
                pieces.iter().map(|piece| (piece.starts_with('>'), piece.as_bytes().to_vec())).collect();
            prop_assert_eq!(messages, expected);
        }
    }
}
