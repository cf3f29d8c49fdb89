//! The built-in server, as the client crate meets it and as a child process.

use std::io;
use std::time::Duration;

use quorlock_testkit::{BuiltinServer, eventually};
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd};
use tokio::net::TcpListener;

async fn connect(query: &str) -> RedisResult<MultiplexedConnection> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move { BuiltinServer::new().serve(listener).await });
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/{query}"))?;
    client.get_multiplexed_async_connection().await
}

const BOTH: [&str; 2] = ["", "?protocol=resp3"];

#[tokio::test]
async fn the_client_crate_sets_and_reads_a_lock_in_both_protocols() -> RedisResult<()> {
    for protocol in BOTH {
        let mut redis = connect(protocol).await?;
        let set: Option<String> =
            cmd("SET").arg("k").arg("a").arg("NX").arg("PX").arg(5000).query_async(&mut redis).await?;
        assert_eq!(set.as_deref(), Some("OK"));
        let again: Option<String> =
            cmd("SET").arg("k").arg("b").arg("NX").arg("PX").arg(5000).query_async(&mut redis).await?;
        assert_eq!(again, None);
        let old: String =
            cmd("SET").arg("k").arg("c").arg("KEEPTTL").arg("GET").query_async(&mut redis).await?;
        assert_eq!(old, "a");
        let left: i64 = cmd("PTTL").arg("k").query_async(&mut redis).await?;
        assert!((1..=5000).contains(&left), "{left} ms left");
        let gone: i64 = cmd("DEL").arg("k").arg("missing").query_async(&mut redis).await?;
        assert_eq!(gone, 1);
    }
    Ok(())
}

#[tokio::test]
async fn the_scripts_of_quorlock_run_by_their_text() -> RedisResult<()> {
    for protocol in BOTH {
        let mut redis = connect(protocol).await?;
        let mut acquire = cmd("EVAL");
        acquire.arg(quorlock::scripts::ACQUIRE).arg(2).arg("lock").arg("tomb").arg("token").arg(30_000);
        let granted: Vec<String> = acquire.query_async(&mut redis).await?;
        assert_eq!(granted, ["granted"]);
        let held: (String, Vec<u8>, i64) =
            cmd("EVAL").arg(quorlock::scripts::INSPECT).arg(1).arg("lock").query_async(&mut redis).await?;
        assert_eq!((held.0.as_str(), held.1.as_slice()), ("held", &b"token"[..]));
        assert!((1..=30_000).contains(&held.2), "{} ms left", held.2);
    }
    Ok(())
}

#[tokio::test]
async fn what_it_does_not_know_it_names() -> RedisResult<()> {
    let mut redis = connect("").await?;
    let unknown: RedisResult<String> = cmd("SUBSTR").arg("k").query_async(&mut redis).await;
    assert!(unknown.is_err_and(|error| error.to_string().contains("unknown command 'substr'")));
    let script: RedisResult<String> = cmd("EVAL").arg("return 1").arg(0).query_async(&mut redis).await;
    assert!(script.is_err_and(|error| error.to_string().contains("use a real server")));
    let pong: String = cmd("PING").query_async(&mut redis).await?;
    assert_eq!(pong, "PONG");
    Ok(())
}

#[tokio::test]
async fn info_tells_what_a_lock_client_must_know_of_a_server() -> RedisResult<()> {
    for protocol in BOTH {
        let mut redis = connect(protocol).await?;
        let info: String = cmd("INFO").query_async(&mut redis).await?;
        for field in
            ["run_id:", "uptime_in_seconds:", "redis_mode:standalone", "role:master", "cluster_enabled:0"]
        {
            assert!(info.contains(field), "{field} is missing in {info}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn two_servers_are_two_processes_by_their_run_id() -> RedisResult<()> {
    let mut ids = Vec::new();
    for _ in 0..2 {
        let info: String = cmd("INFO").query_async(&mut connect("").await?).await?;
        ids.extend(info.lines().find(|line| line.starts_with("run_id:")).map(str::to_owned));
    }
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
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
    let mut said = String::new();
    stray.read_to_string(&mut said).await?;
    assert!(said.starts_with("-ERR Protocol error"), "{said}");
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
    eventually("the server to end", Duration::from_secs(10), async || server.is_finished()).await
}
