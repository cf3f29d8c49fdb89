//! Tests of `quorlock-chaos proxy` and `quorlock-chaos network`, without containers.

use std::error::Error;
use std::io::{self, BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quorlock::{AcquireError, Coordinator, RestartGuard, Wait};
use quorlock_testkit::{Kind, Servers, eventually, patience};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A running `quorlock-chaos proxy`, killed on drop.
struct Proxy {
    process: Child,
    url: String,
    control: String,
    stdout: BufReader<ChildStdout>,
}

impl Proxy {
    fn start(upstream: &str) -> Result<Proxy, Box<dyn Error>> {
        let mut process = command(&["proxy", "--listen", "127.0.0.1:0", "--upstream", upstream])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdout = BufReader::new(process.stdout.take().ok_or("its output is piped")?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let between = |start: &str, end: &str| {
            let (_, rest) = line.split_once(start).ok_or_else(|| format!("no {start:?} in {line:?}"))?;
            let (found, _) = rest.split_once(end).ok_or_else(|| format!("no {end:?} in {line:?}"))?;
            Ok::<_, String>(found.to_owned())
        };
        let url = format!("redis://{}", between("listening on ", ",")?);
        let control = between("control on ", ",")?;
        Ok(Proxy { process, url, control, stdout })
    }

    /// Runs `quorlock-chaos network` at its control port and returns the output.
    fn network(&self, words: &[&str]) -> Result<String, Box<dyn Error>> {
        let output = command(&["network", "--at", &self.control]).args(words).output()?;
        assert!(output.status.success(), "{words:?}: {output:?}");
        Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
    }

    /// Sends `words` to its control port and returns the answer.
    async fn say(&self, words: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(&self.control).await?;
        stream.write_all(words.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorlock-chaos"));
    command.args(words).stdin(Stdio::null());
    command
}

/// Starts a server, a proxy in front of it, and a client that connects to the proxy.
async fn bench() -> Result<(Servers, Proxy, Coordinator), Box<dyn Error>> {
    let servers = Servers::setup().kind(Kind::BuiltinTask).start(1).await?;
    let server = servers.first().ok_or("one server was asked for")?;
    let proxy = Proxy::start(&format!("localhost:{}", server.port()))?;
    let login = format!("redis://:{}@", server.password().ok_or("it has a password")?);
    let url = proxy.url.replace("redis://", &login);
    let coordinator = Coordinator::builder().nodes([url]).restart_guard(RestartGuard::Off).build()?;
    Ok((servers, proxy, coordinator))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_acquired_through_the_proxy_except_while_it_holds() -> Result<(), Box<dyn Error>> {
    let (_servers, proxy, coordinator) = bench().await?;
    let lock = coordinator.lock("job").wait(Wait::Never);
    lock.acquire().await?.release().await?;
    assert_eq!(proxy.network(&["show"])?, "to server: ok; to client: ok; 1 connection open");

    let held = proxy.network(&["hold", "--way", "to-client"])?;
    assert_eq!(held, "to server: ok; to client: held; 1 connection open");
    let refused = lock.acquire().await;
    assert!(matches!(refused, Err(AcquireError::Unavailable { .. })), "{refused:?}");

    proxy.network(&["heal"])?;
    // The client may have closed the connection as dead by now, and reconnects.
    eventually("the lock to be acquired again", patience(), async || match lock.acquire().await {
        Ok(lease) => lease.release().await.is_ok(),
        Err(_) => false,
    })
    .await?;
    Ok(())
}

#[test]
fn each_fault_is_shown_until_it_is_healed() -> Result<(), Box<dyn Error>> {
    let proxy = Proxy::start("localhost:1")?;
    proxy.network(&["delay", "1m", "--jitter", "1500us", "--way", "to-client"])?;
    proxy.network(&["hold", "--way", "to-server"])?;
    let broken =
        "to server: held; to client: delay 1m, jitter 1ms 500us; 0 connections open; new ones are refused";
    assert_eq!(proxy.network(&["refuse"])?, broken);
    assert_eq!(proxy.network(&["release"])?, broken.replace("held", "ok"));
    let healed = "to server: ok; to client: ok; 0 connections open";
    assert_eq!(proxy.network(&["heal"])?, healed);
    assert_eq!(proxy.network(&["cut"])?, healed);
    Ok(())
}

#[tokio::test]
async fn the_control_port_answers_invalid_lines_with_an_error() -> Result<(), Box<dyn Error>> {
    let proxy = Proxy::start("localhost:1")?;
    let answer = proxy.say("sing\n").await?;
    assert!(answer.starts_with("error: ") && answer.contains("sing"), "{answer:?}");
    // An endless line is rejected, and an idle client does not block the others.
    assert_eq!(proxy.say(&"x".repeat(2048)).await.unwrap_or_default(), "");
    let _silent = TcpStream::connect(&proxy.control).await?;
    assert!(proxy.say("show\n").await?.starts_with("to server: ok"), "the next client got no answer");
    Ok(())
}

#[test]
fn a_missing_proxy_is_an_error_with_its_address() -> Result<(), Box<dyn Error>> {
    // Port 1 of the loopback interface is closed.
    let Output { status, stderr, .. } = command(&["network", "--at", "127.0.0.1:1", "show"]).output()?;
    assert_eq!(status.code(), Some(125));
    let stderr = String::from_utf8(stderr)?;
    assert!(stderr.contains("127.0.0.1:1: "), "{stderr}");
    Ok(())
}

#[tokio::test]
async fn a_proxy_exits_with_0_on_a_signal() -> Result<(), Box<dyn Error>> {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut proxy = Proxy::start("localhost:1")?;
        kill(Pid::from_raw(i32::try_from(proxy.process.id())?), signal)?;
        let mut status = None;
        eventually("the proxy to exit", patience(), async || {
            status = proxy.process.try_wait().ok().flatten();
            status.is_some()
        })
        .await?;
        assert_eq!(status.and_then(|status| status.code()), Some(0), "after {signal}");
        let mut rest = String::new();
        assert_eq!(proxy.stdout.read_line(&mut rest)?, 0, "it printed {rest:?}");
    }
    Ok(())
}
