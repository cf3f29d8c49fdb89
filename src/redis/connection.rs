//! One connection: reads and writes its bytes.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use redis::Value;
use tokio::io::ReadBuf;

use super::resp::decode::{RespReader, RespValue};
use super::resp::frame::{FOREIGN, FrameError, FrameScanner};
use crate::transport::Stream;

/// The size of one read: about a thousand votes. No buffer stays larger than this.
const USUAL: usize = 16 * 1024;

/// A connection, which sends requests in the order in which they were written to it, and returns the server's
/// messages one by one. See ADR 8.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    /// The ID that the server assigned to the connection, if it has reported it.
    pub(crate) client: Option<i64>,
    out: Outbox,
    inbox: Inbox,
    /// How many more bytes the server may push.
    allowance: usize,
}

/// How many bytes a server may push before it has received anything.
const FREE: usize = 64 * 1024;
/// How many more bytes it may push for each byte that it receives. It pushes each change of a key once for
/// each time that the key was read, and each key that was read is in a request: twice would suffice.
const EARNED: usize = 8;
/// The most bytes that it may be allowed to push: a hundred thousand changes.
const MOST: usize = 16 * 1024 * 1024;
/// The cost of each push in addition to its bytes: the shortest has four bytes, but each has to be handled.
const EACH: usize = 32;

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
    /// An open transaction cannot be ended: no command would be carried out any more.
    Queued,
    /// The server process is a replica now, and may later be a master that has lost locks.
    Demoted,
}

impl Connection {
    pub(crate) fn new(stream: Box<dyn Stream>) -> Connection {
        Connection { stream, client: None, out: Outbox::default(), inbox: Inbox::default(), allowance: FREE }
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
        let earned = self.out.sent.wrapping_sub(before).saturating_mul(EARNED);
        self.allowance = self.allowance.saturating_add(earned).min(MOST);
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
            let cost = push.len().saturating_add(EACH);
            self.allowance = self.allowance.checked_sub(cost).ok_or(ConnectionError::Flood)?;
        }
        Ok(message)
    }

    /// Skips these messages if they are exactly what follows in the buffer.
    pub(crate) fn passes(&mut self, messages: &[u8]) -> bool {
        self.inbox.passes(messages)
    }

    /// Sends requests and waits for as many replies. Pushes in between are ignored.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the connection must not be used afterwards.
    pub(crate) async fn exchange(
        &mut self,
        requests: &redis::Pipeline,
    ) -> Result<Vec<Value>, ConnectionError> {
        Ok(self.exchange_subscribing(requests, false).await?.0)
    }

    /// Like [`exchange`](Connection::exchange), where one of the requests `subscribes` to channels; returns
    /// whether it did. The server then pushes each channel instead of a reply to that request.
    pub(crate) async fn exchange_subscribing(
        &mut self,
        requests: &redis::Pipeline,
        subscribes: bool,
    ) -> Result<(Vec<Value>, bool), ConnectionError> {
        self.outbox().extend(requests.get_packed_pipeline());
        let mut answers = Vec::with_capacity(requests.len());
        let mut expected = requests.len();
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
                            expected = requests.len() - 1;
                        }
                        Some(Message::Push(_)) => {}
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
            go_on_later(context);
            Poll::Pending
        })
        .await?;
        Ok((answers, expected < requests.len()))
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
pub(crate) fn go_on_later(context: &mut Context<'_>) {
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

#[derive(Debug, Default)]
struct Outbox {
    bytes: Vec<u8>,
    /// How many of them were passed to the stream.
    written: usize,
    /// How many were sent over the connection so far.
    sent: usize,
    flushed: bool,
}

impl Outbox {
    fn poll_send(&mut self, stream: &mut dyn Stream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(stream);
        while let Some(rest @ [_, ..]) = self.bytes.get(self.written..) {
            match ready!(stream.as_mut().poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => {
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
struct Inbox {
    buffer: Vec<u8>,
    /// The begin of the first message that was not returned yet.
    begin: usize,
    /// The end of the scanned part.
    seen: usize,
    /// The end of the data.
    end: usize,
    scan: FrameScanner,
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

    fn passes(&mut self, messages: &[u8]) -> bool {
        let news = self.buffer.get(self.seen..self.end).unwrap_or_default();
        // A message that is partly scanned must be scanned to its end.
        let passes = self.begin == self.seen && news.starts_with(messages);
        if passes {
            self.seen += messages.len();
            self.begin = self.seen;
        }
        passes
    }

    fn message(&mut self) -> Result<Option<Message<'_>>, FrameError> {
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

/// Returns the error of a reply, if it is one.
pub(super) fn server_error(answer: Value) -> Option<redis::ServerError> {
    if let Value::ServerError(error) = answer { Some(error) } else { None }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use proptest::prelude::*;
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

    use super::*;
    use crate::redis::resp::frame::LONGEST;

    async fn read(line: &mut Connection) -> Result<(), ConnectionError> {
        std::future::poll_fn(|context| line.poll_read(context)).await
    }

    /// Returns all messages until the stream ends.
    async fn all(line: &mut Connection) -> Vec<(bool, Vec<u8>)> {
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
        let mut line = Connection::new(Box::new(near));
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
        let mut line = Connection::new(Box::new(near));
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
        let mut line = Connection::new(Box::new(near));
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
    async fn of_what_a_slow_server_has_read_nothing_is_kept() {
        const LEFT_BEHIND: usize = 64 * 1024;

        let (near, mut far) = tokio::io::duplex(4096);
        let mut line = Connection::new(Box::new(near));
        line.outbox().extend(vec![b'x'; LEFT_BEHIND]);
        let mut largest = 0;
        for _ in 0..1000 {
            // As much is added as it reads, so it never catches up.
            line.outbox().extend([b'x'; 4096]);
            std::future::poll_fn(|context| {
                assert!(line.poll_send(context).is_pending(), "it has caught up");
                Poll::Ready(())
            })
            .await;
            far.read_exact(&mut [0; 4096]).await.unwrap();
            // Otherwise the runtime suspends the connection, not the server.
            tokio::task::yield_now().await;
            largest = largest.max(line.out.bytes.len());
        }
        assert!(largest <= 4 * LEFT_BEHIND, "{largest} bytes are kept of a thousand times 4096");
    }

    #[tokio::test]
    async fn what_a_server_says_before_it_leaves_counts() {
        let (near, mut far) = tokio::io::duplex(1000);
        far.write_all(b"-ERR max number of clients reached\r\n").await.unwrap();
        drop(far);
        let mut ping = redis::Pipeline::new();
        ping.cmd("PING");
        let answers = Connection::new(Box::new(near)).exchange(&ping).await.unwrap();
        assert!(
            matches!(&answers[..], [Value::ServerError(error)] if error.details().is_some()),
            "{answers:?}"
        );
    }

    #[tokio::test]
    async fn a_subscription_is_pushed_and_has_no_answer_of_its_own() {
        let push = ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n";
        for (said, count, subscribed) in [
            (push.to_owned(), 1, true),
            // A user without the permission, and a server that replies as in RESP2.
            ("-NOPERM no channels\r\n".to_owned(), 2, false),
            (push.replacen('>', "*", 1), 2, false),
        ] {
            let (near, mut far) = tokio::io::duplex(1024);
            far.write_all(format!("{said}$4\r\ninfo\r\n").as_bytes()).await.unwrap();
            let mut requests = redis::Pipeline::new();
            requests.cmd("SUBSCRIBE").arg("a").cmd("INFO");
            let mut line = Connection::new(Box::new(near));
            let (answers, is_subscribed) = line.exchange_subscribing(&requests, true).await.unwrap();
            assert_eq!((answers.len(), is_subscribed), (count, subscribed), "{said:?}");
            assert_eq!(answers.last(), Some(&Value::BulkString(b"info".to_vec())));
        }
    }

    fn ping() -> redis::Pipeline {
        let mut ping = redis::Pipeline::new();
        ping.cmd("PING");
        ping
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn pushes_without_end_leave_other_connections_their_turn() {
        const TRIPS: u32 = 50;

        let read = Arc::new(AtomicU32::new(0));
        let mut line = Connection::new(Box::new(Endless { read: Arc::clone(&read) }));
        // As much as a busy server may push: it does not reach the bound here.
        line.allowance = MOST;
        let flooded = tokio::spawn(async move { line.exchange(&ping()).await.map(drop) });
        let (mut near, mut far) = tokio::net::UnixStream::pair().unwrap();
        tokio::spawn(async move {
            let mut byte = [0];
            while far.read_exact(&mut byte).await.is_ok() {
                far.write_all(&byte).await.unwrap();
            }
        });
        for _ in 0..TRIPS {
            near.write_all(b"x").await.unwrap();
            near.read_exact(&mut [0]).await.unwrap();
        }
        // In both directions the runtime has to poll the IO driver. In between, a task that wakes itself is
        // polled 61 times.
        let read = read.load(Ordering::Relaxed);
        assert!(read > 0 && read <= TRIPS * 10 * READS, "{read} reads in {TRIPS} round trips of others");
        assert!(!flooded.is_finished(), "it still pushes");
    }

    #[tokio::test]
    async fn a_server_that_pushes_more_than_it_was_asked_for_is_left() {
        let read = Arc::new(AtomicU32::new(0));
        let mut line = Connection::new(Box::new(Endless { read: Arc::clone(&read) }));
        let end = line.exchange(&ping()).await;
        assert!(matches!(end, Err(ConnectionError::Flood)), "{end:?}");
        let read = usize::try_from(read.load(Ordering::Relaxed)).unwrap();
        assert!(read <= 1 + (FREE + 14 * EARNED) / (PUSH.len() + EACH), "{read} pushes were read");
    }

    #[tokio::test]
    async fn a_change_of_each_key_that_was_asked_for_is_no_flood() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut line = Connection::new(Box::new(near));
        let ask = |key: &str| format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
        let changed = |key: &str| format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n${}\r\n{key}\r\n", key.len());
        for round in 0..20_000 {
            let key = format!("orders/{round}");
            line.outbox().extend_from_slice(ask(&key).as_bytes());
            std::future::poll_fn(|context| line.poll_send(context)).await.unwrap();
            far.read_exact(&mut vec![0; ask(&key).len()]).await.unwrap();
            far.write_all(changed(&key).as_bytes()).await.unwrap();
            read(&mut line).await.unwrap();
            assert!(matches!(line.message(), Ok(Some(Message::Push(_)))), "{key}");
        }
    }

    /// A message that [`Endless`] pushes.
    const PUSH: &[u8] = b">0\r\n";

    /// A stream that pushes at each read, outside the runtime's budget.
    struct Endless {
        /// The number of reads.
        read: Arc<AtomicU32>,
    }

    impl AsyncRead for Endless {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            room: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.read.fetch_add(1, Ordering::Relaxed);
            room.put_slice(PUSH);
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
                let mut line = Connection::new(Box::new(near));
                futures::future::join(server, all(&mut line)).await.1
            });
            let expected: Vec<_> =
                pieces.iter().map(|piece| (piece.starts_with('>'), piece.as_bytes().to_vec())).collect();
            prop_assert_eq!(messages, expected);
        }
    }
}
