//! The built-in server, with the client crate and as a child process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quorlock::{
    node::{Hint, HintListener, Node, Request, ask},
    redis::{Address, RedisNode, scripts::INSPECT},
};
use quorlock_testkit::{BuiltinServer, eventually, patience};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, RedisResult, Value, cmd};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Starts a server, and returns its address.
pub(crate) async fn serve(query: &str) -> RedisResult<Client> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move { BuiltinServer::new().serve(listener).await });
    Client::open(format!("redis://127.0.0.1:{port}/{query}"))
}

pub(crate) async fn connect(query: &str) -> RedisResult<MultiplexedConnection> {
    serve(query).await?.get_multiplexed_async_connection().await
}

const BOTH: [&str; 2] = ["", "?protocol=resp3"];

#[tokio::test]
async fn scripts_run_by_their_text_and_then_by_their_hash() -> RedisResult<()> {
    for protocol in BOTH {
        let mut redis = connect(protocol).await?;
        let inspect = |by: &str, script: &str| {
            let mut inspect = cmd(by);
            inspect.arg(script).arg(1).arg("lock").arg("counter").arg("readers");
            inspect
        };
        let by_text: Value = inspect("EVAL", INSPECT.text()).query_async(&mut redis).await?;
        let by_hash: Value = inspect("EVALSHA", INSPECT.hash()).query_async(&mut redis).await?;
        assert_eq!(by_hash, by_text);
        let _: String = cmd("SCRIPT").arg("FLUSH").query_async(&mut redis).await?;
        let forgotten: RedisResult<Value> = inspect("EVALSHA", INSPECT.hash()).query_async(&mut redis).await;
        assert_eq!(forgotten.unwrap_err().code(), Some("NOSCRIPT"));
    }
    Ok(())
}

#[tokio::test]
async fn a_killed_client_executes_no_more_commands() -> RedisResult<()> {
    let server = serve("").await?;
    let connect = || server.get_multiplexed_async_connection();
    let (mut one, mut other) = (connect().await?, connect().await?);
    let id: i64 = cmd("CLIENT").arg("ID").query_async(&mut one).await?;
    for (client, killed) in [(i64::MAX, 0), (id, 1), (id, 0)] {
        let reply: i64 = cmd("CLIENT").arg("KILL").arg("ID").arg(client).query_async(&mut other).await?;
        assert_eq!(reply, killed, "{client}");
    }
    let late: RedisResult<Value> = cmd("SET").arg("k").arg("v").query_async(&mut one).await;
    assert!(late.is_err());
    let found: Option<String> = cmd("GET").arg("k").query_async(&mut other).await?;
    assert_eq!(found, None);
    Ok(())
}

#[tokio::test]
async fn unknown_commands_are_named() -> RedisResult<()> {
    let mut redis = connect("").await?;
    let unknown: RedisResult<String> = cmd("SUBSTR").arg("k").query_async(&mut redis).await;
    assert!(unknown.is_err_and(|error| error.to_string().contains("unknown command 'substr'")));
    let pong: String = cmd("PING").query_async(&mut redis).await?;
    assert_eq!(pong, "PONG");
    Ok(())
}

#[tokio::test]
async fn garbage_ends_its_own_connection_and_no_other() -> Result<(), Box<dyn std::error::Error>> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { BuiltinServer::new().serve(listener).await });
    let mut other =
        redis::Client::open(format!("redis://{address}"))?.get_multiplexed_async_connection().await?;
    let mut stray = tokio::net::TcpStream::connect(address).await?;
    stray.write_all(b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n").await?;
    let mut reply = String::new();
    stray.read_to_string(&mut reply).await?;
    assert!(reply.starts_with("-ERR Protocol error"), "{reply}");
    let pong: String = cmd("PING").query_async(&mut other).await?;
    assert_eq!(pong, "PONG");
    Ok(())
}

#[tokio::test]
async fn shutdown_ends_the_server() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(async move { BuiltinServer::new().serve(listener).await });
    let stream = tokio::net::TcpStream::connect(address).await?;
    stream.writable().await?;
    stream.try_write(b"*1\r\n$8\r\nSHUTDOWN\r\n")?;
    eventually("the server to end", patience(), async || server.is_finished()).await
}

/// A tracking client with its pushes, and another client.
async fn tracking(options: &[&str]) -> RedisResult<(MultiplexedConnection, Pushes, MultiplexedConnection)> {
    let client = serve("?protocol=resp3").await?;
    let (sender, pushes) = unbounded_channel();
    let config = AsyncConnectionConfig::new().set_push_sender(sender);
    let mut client_connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    let on: String =
        cmd("CLIENT").arg("TRACKING").arg("ON").arg(options).query_async(&mut client_connection).await?;
    assert_eq!(on, "OK");
    Ok((client_connection, Pushes(pushes), client.get_multiplexed_async_connection().await?))
}

struct Pushes(UnboundedReceiver<PushInfo>);

impl Pushes {
    /// Returns the next invalidation.
    async fn next(&mut self) -> Option<Value> {
        let push = self.0.recv().await?;
        assert_eq!(push.kind, PushKind::Invalidate);
        push.data.into_iter().next()
    }

    /// Returns the pushes that arrive before the answer to a request.
    async fn so_far(&mut self, client: &mut MultiplexedConnection) -> RedisResult<Vec<Vec<Value>>> {
        let _: String = cmd("PING").query_async(client).await?;
        Ok(std::iter::from_fn(|| self.0.try_recv().ok()).map(|push| push.data).collect())
    }
}

fn key(key: &str) -> Value {
    Value::Array(vec![Value::BulkString(key.into())])
}

#[tokio::test]
async fn a_change_is_notified_once_to_clients_that_read_the_key() -> RedisResult<()> {
    let (mut client_connection, mut pushes, mut other) = tracking(&["NOLOOP"]).await?;
    let _: Option<String> = cmd("GET").arg("read").query_async(&mut client_connection).await?;
    for name in ["unread", "read", "read"] {
        let _: String = cmd("SET").arg(name).arg("a").query_async(&mut other).await?;
    }
    assert_eq!(pushes.next().await, Some(key("read")));
    assert!(
        pushes.so_far(&mut client_connection).await?.is_empty(),
        "it is notified once, and of nothing else"
    );
    let _: Option<String> = cmd("GET").arg("read").query_async(&mut client_connection).await?;
    let _: i64 = cmd("DEL").arg("read").query_async(&mut other).await?;
    assert_eq!(pushes.next().await, Some(key("read")), "it has read it again");
    Ok(())
}

#[tokio::test]
async fn own_changes_are_notified_without_noloop() -> RedisResult<()> {
    for (options, times) in [(&["NOLOOP"][..], 0), (&[], 1)] {
        let (mut client_connection, mut pushes, _) = tracking(options).await?;
        let _: Option<String> = cmd("GET").arg("k").query_async(&mut client_connection).await?;
        let _: String = cmd("SET").arg("k").arg("a").query_async(&mut client_connection).await?;
        // A push may follow the answer that caused it, but not the next one.
        assert_eq!(pushes.so_far(&mut client_connection).await?.len(), times, "{options:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_flush_is_notified_without_a_key() -> RedisResult<()> {
    let (_notified, mut pushes, mut other) = tracking(&["NOLOOP"]).await?;
    let _: String = cmd("FLUSHALL").query_async(&mut other).await?;
    assert_eq!(pushes.next().await, Some(Value::Nil));
    Ok(())
}

#[tokio::test]
async fn tracking_ends_when_it_is_turned_off_and_needs_resp3() -> RedisResult<()> {
    let (mut client_connection, mut pushes, mut other) = tracking(&[]).await?;
    let _: Option<String> = cmd("GET").arg("k").query_async(&mut client_connection).await?;
    let _: String = cmd("CLIENT").arg("TRACKING").arg("OFF").query_async(&mut client_connection).await?;
    let _: String = cmd("SET").arg("k").arg("a").query_async(&mut other).await?;
    assert!(pushes.so_far(&mut client_connection).await?.is_empty());
    let mut old = connect("").await?;
    let refused: RedisResult<String> = cmd("CLIENT").arg("TRACKING").arg("ON").query_async(&mut old).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("RESP3")));
    Ok(())
}

#[derive(Debug, Default)]
struct Hears(AtomicBool);

impl HintListener for Hears {
    fn on_hint(&self, hint: Hint<'_>) {
        self.0.store(hint == Hint::Subscribed, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn hints_are_active_by_the_first_answer() -> Result<(), Box<dyn std::error::Error>> {
    let address = serve("").await?.get_connection_info().addr().to_string();
    let node = RedisNode::new(Address::parse(&address)?);
    let ear = Arc::new(Hears::default());
    node.listen(Arc::clone(&ear) as Arc<dyn HintListener>);
    ask(&node, Request::inspect("k")).await?;
    assert!(ear.0.load(Ordering::Relaxed), "the contract's clauses about hints would be passed over");
    Ok(())
}
