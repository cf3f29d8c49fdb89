//! Built-in servers as child processes of this very program. It has no test harness, because such a program
//! must first of all serve if it was started for that.

#![expect(clippy::indexing_slicing, reason = "an index out of range fails the test")]

use std::io;

use quorlock_testkit::{Kind, Resp, Server, Servers, eventually, patience, serve_if_asked};

#[tokio::main(flavor = "current_thread")]
async fn run() -> io::Result<()> {
    assert_eq!(Kind::builtin(), Kind::BuiltinProcess, "announced, so it may start itself");
    each_is_a_process_of_its_own().await?;
    a_killed_one_comes_back_empty().await?;
    one_without_a_parent_ends().await
}

fn main() -> io::Result<()> {
    serve_if_asked();
    run()?;
    println!("built-in child processes: all fine");
    Ok(())
}

async fn start(count: usize) -> io::Result<Servers> {
    Servers::setup().kind(Kind::builtin()).start(count).await
}

async fn each_is_a_process_of_its_own() -> io::Result<()> {
    let servers = start(3).await?;
    let mut pids: Vec<u32> = servers.iter().filter_map(Server::pid).collect();
    pids.push(std::process::id());
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 4, "three children and this process");
    Ok(())
}

async fn a_killed_one_comes_back_empty() -> io::Result<()> {
    let servers = start(1).await?;
    servers[0].command(&["SET", "key", "value"]).await?;
    servers[0].kill();
    assert!(servers[0].command(&["PING"]).await.is_err(), "it is dead");
    servers[0].restart_empty().await?;
    assert_eq!(servers[0].command(&["GET", "key"]).await?, Resp::Null);
    Ok(())
}

/// Starts one by hand and closes its lifeline.
async fn one_without_a_parent_ends() -> io::Result<()> {
    let mut child = std::process::Command::new(std::env::current_exe()?)
        .env("QUORLOCK_BUILTIN_SERVER", "0")
        .env("QUORLOCK_BUILTIN_LIFELINE", "stdin")
        .stdin(std::process::Stdio::piped())
        .spawn()?;
    assert!(child.try_wait()?.is_none(), "it serves while the pipe is open");
    drop(child.stdin.take());
    eventually("the child to end", patience(), async || child.try_wait().is_ok_and(|ended| ended.is_some()))
        .await
}
