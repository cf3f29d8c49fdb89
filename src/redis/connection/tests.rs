use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::allowance::{EACH, EARNED, FREE, MOST};
use super::buffers::USUAL;
use super::*;
use crate::redis::resp::frame::LONGEST;
use crate::redis::tests::Virtual;

/// A connection by the clock of the runtime.
fn connection(stream: impl Stream + 'static) -> Connection {
    Connection::new(Box::new(stream), Arc::new(Virtual))
}

async fn read(connection: &mut Connection) -> Result<(), ConnectionError> {
    std::future::poll_fn(|context| connection.poll_read(context)).await
}

/// Returns all messages until the stream ends.
async fn all(connection: &mut Connection) -> Vec<(bool, Vec<u8>)> {
    let mut messages = Vec::new();
    while read(connection).await.is_ok() {
        while let Some(message) = connection.message().unwrap() {
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
async fn the_buffer_grows_and_shrinks_with_a_long_message() {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let mut connection = connection(near);
    let (long, short) = (text(LONGEST - 20), text(5));
    far.write_all(&[&short[..], &long, &short].concat()).await.unwrap();
    drop(far);
    let mut lengths = Vec::new();
    while read(&mut connection).await.is_ok() {
        while let Some(Message::Answer(answer)) = connection.message().unwrap() {
            lengths.push(answer.len());
        }
        assert!(connection.inbox.buffer.len() <= 2 * LONGEST, "{}", connection.inbox.buffer.len());
    }
    assert_eq!(lengths, [short.len(), long.len(), short.len()]);
    assert_eq!(connection.inbox.buffer.len(), USUAL);
}

#[tokio::test]
async fn nothing_is_skipped_within_a_message() {
    let (near, mut far) = tokio::io::duplex(1000);
    let mut connection = connection(near);
    far.write_all(b"$5\r\n").await.unwrap();
    read(&mut connection).await.unwrap();
    assert_eq!(connection.message().unwrap(), None);
    far.write_all(b"+OK\r\n\r\n+OK\r\n").await.unwrap();
    read(&mut connection).await.unwrap();
    assert!(!connection.passes(b"+OK\r\n"), "it is text");
    assert_eq!(connection.message().unwrap(), Some(Message::Answer(b"$5\r\n+OK\r\n\r\n")));
    assert!(connection.passes(b"+OK\r\n") && !connection.passes(b"+OK\r\n"), "it was one message");
}

#[tokio::test]
async fn the_outbox_is_sent_in_order_and_shrinks() {
    let (near, mut far) = tokio::io::duplex(1000);
    let mut connection = connection(near);
    let words: Vec<u8> = (0..100_000_u32).flat_map(u32::to_be_bytes).collect();
    connection.outbox().extend_from_slice(&words);
    let sender = async {
        std::future::poll_fn(|context| connection.poll_send(context)).await.unwrap();
        assert!(connection.out.bytes.capacity() <= USUAL);
        drop(connection);
    };
    let mut heard = Vec::new();
    futures::future::join(sender, far.read_to_end(&mut heard)).await.1.unwrap();
    assert!(heard == words, "{} bytes came", heard.len());
}

#[tokio::test]
async fn bytes_that_a_slow_server_has_read_are_dropped() {
    const LEFT_BEHIND: usize = 64 * 1024;

    let (near, mut far) = tokio::io::duplex(4096);
    let mut connection = connection(near);
    connection.outbox().extend(vec![b'x'; LEFT_BEHIND]);
    let mut largest = 0;
    for _ in 0..1000 {
        // As much is added as it reads, so it never catches up.
        connection.outbox().extend([b'x'; 4096]);
        std::future::poll_fn(|context| {
            assert!(connection.poll_send(context).is_pending(), "it has caught up");
            Poll::Ready(())
        })
        .await;
        far.read_exact(&mut [0; 4096]).await.unwrap();
        // Otherwise the runtime suspends the connection, not the server.
        tokio::task::yield_now().await;
        largest = largest.max(connection.out.bytes.len());
    }
    assert!(largest <= 4 * LEFT_BEHIND, "{largest} bytes are kept of a thousand times 4096");
}

#[tokio::test]
async fn a_reply_before_the_connection_closes_counts() {
    let (near, mut far) = tokio::io::duplex(1000);
    far.write_all(b"-ERR max number of clients reached\r\n").await.unwrap();
    drop(far);
    let mut ping = redis::Pipeline::new();
    ping.cmd("PING");
    let answers = connection(near).exchange(&ping).await.unwrap();
    assert!(matches!(&answers[..], [Value::ServerError(error)] if error.details().is_some()), "{answers:?}");
}

#[tokio::test]
async fn a_subscription_is_pushed_instead_of_answered() {
    let push = ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n";
    for (reply, count, subscribed) in [
        (push.to_owned(), 1, true),
        // A user without the permission, and a server that replies as in RESP2.
        ("-NOPERM no channels\r\n".to_owned(), 2, false),
        (push.replacen('>', "*", 1), 2, false),
    ] {
        let (near, mut far) = tokio::io::duplex(1024);
        far.write_all(format!("{reply}$4\r\ninfo\r\n").as_bytes()).await.unwrap();
        let mut requests = redis::Pipeline::new();
        requests.cmd("SUBSCRIBE").arg("a").cmd("INFO");
        let mut connection = connection(near);
        connection.outbox().extend(requests.get_packed_pipeline());
        let (answers, is_subscribed) = connection.replies(requests.len(), true).await.unwrap();
        assert_eq!((answers.len(), is_subscribed), (count, subscribed), "{reply:?}");
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
async fn endless_pushes_do_not_starve_other_connections() {
    const TRIPS: u32 = 50;

    let read = Arc::new(AtomicU32::new(0));
    let mut connection = connection(Endless { read: Arc::clone(&read) });
    // As much as a busy server may push: it does not reach the bound here.
    connection.allowance.bytes = MOST;
    let flooded = tokio::spawn(async move { connection.exchange(&ping()).await.map(drop) });
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

#[tokio::test(start_paused = true)]
async fn a_flooding_server_is_disconnected() {
    let read = Arc::new(AtomicU32::new(0));
    let mut connection = connection(Endless { read: Arc::clone(&read) });
    let end = connection.exchange(&ping()).await;
    assert!(matches!(end, Err(ConnectionError::Flood)), "{end:?}");
    let read = usize::try_from(read.load(Ordering::Relaxed)).unwrap();
    assert!(read <= 1 + (FREE + 14 * EARNED) / (PUSH.len() + EACH), "{read} pushes were read");
}

#[tokio::test]
async fn a_change_of_each_requested_key_is_no_flood() {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let mut connection = connection(near);
    let ask = |key: &str| format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
    let changed = |key: &str| format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n${}\r\n{key}\r\n", key.len());
    for round in 0..20_000 {
        let key = format!("orders/{round}");
        connection.outbox().extend_from_slice(ask(&key).as_bytes());
        std::future::poll_fn(|context| connection.poll_send(context)).await.unwrap();
        far.read_exact(&mut vec![0; ask(&key).len()]).await.unwrap();
        far.write_all(changed(&key).as_bytes()).await.unwrap();
        read(&mut connection).await.unwrap();
        assert!(matches!(connection.message(), Ok(Some(Message::Push(_)))), "{key}");
    }
}

/// A holder is notified of what others ask for: of the first waiter in the queue of its lock each time that it asks.
#[tokio::test(start_paused = true)]
async fn messages_that_the_requests_of_others_cause_are_no_flood() {
    const HELD: usize = 100;
    const RENEWALS: Duration = Duration::from_secs(80);

    let (near, mut far) = tokio::io::duplex(1 << 20);
    let mut connection = connection(near);
    let push = format!(">3\r\n$7\r\nmessage\r\n$5\r\ninbox\r\n{}", String::from_utf8(text(240)).unwrap());
    let (end, mut renewed) = (Virtual.now() + Duration::from_secs(600), Virtual.now());
    while Virtual.now() < end {
        if renewed <= Virtual.now() {
            renewed = renewed + RENEWALS;
            connection.outbox().extend(vec![b'x'; HELD * 500]);
            std::future::poll_fn(|context| connection.poll_send(context)).await.unwrap();
            far.read_exact(&mut vec![0; HELD * 500]).await.unwrap();
        }
        for _ in 0..HELD {
            far.write_all(push.as_bytes()).await.unwrap();
        }
        let mut pushed = 0;
        while pushed < HELD {
            read(&mut connection).await.unwrap();
            while connection.message().unwrap().is_some() {
                pushed += 1;
            }
        }
        Virtual.sleep_until(Virtual.now() + Duration::from_millis(500)).await;
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
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
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
    fn messages_do_not_depend_on_fragmentation(
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
            let mut connection = connection(near);
            futures::future::join(server, all(&mut connection)).await.1
        });
        let expected: Vec<_> =
            pieces.iter().map(|piece| (piece.starts_with('>'), piece.as_bytes().to_vec())).collect();
        prop_assert_eq!(messages, expected);
    }
}
