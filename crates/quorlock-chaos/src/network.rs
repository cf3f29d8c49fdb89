//! A faulty network in front of one server, as two subcommands: `proxy` runs the proxy, and `network` sets
//! its faults.
//!
//! # The control port
//!
//! A client sends one line, the words after `quorlock-chaos network --at ADDRESS` on the command line, and
//! receives one line: the current state, or `error: ` and a message. Then the proxy closes the connection.
//!
//! ```text
//! -> delay 50ms --jitter 20ms --way to-client
//! <- to server: ok; to client: delay 50ms, jitter 20ms; 3 connections open
//! ```
//!
//! The control port has no authentication: any client that reaches it can inject faults. It listens on the
//! loopback interface by default and must not be exposed outside of test networks.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use quorlock_servers::{Proxy, within};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};

use self::control::Control;
use self::fault::Fault;
use crate::print;

mod control;
mod fault;

/// `quorlock-chaos proxy`.
#[derive(Debug, clap::Args)]
pub(crate) struct ProxyArgs {
    /// Address for clients
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Address of the server; a host name is resolved again for each connection
    #[arg(long, value_name = "HOST:PORT")]
    upstream: String,
    /// Address for `quorlock-chaos network`; no authentication
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    control: SocketAddr,
}

/// `quorlock-chaos network`.
#[derive(Debug, clap::Args)]
pub(crate) struct NetworkArgs {
    /// The control port of the proxy
    #[arg(long, value_name = "HOST:PORT")]
    at: String,
    #[command(subcommand)]
    fault: Fault,
}

/// Runs the proxy until SIGTERM or SIGINT.
pub(crate) fn proxy(args: &ProxyArgs) -> io::Result<()> {
    block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        let mut interrupted = signal(SignalKind::interrupt())?;
        let proxy = Proxy::listen(args.listen, args.upstream.as_str()).await.map_err(at(&args.listen))?;
        let control = Control::listen(args.control).await.map_err(at(&args.control))?;
        print(&format!(
            "listening on {}, control on {}, in front of {}\n",
            proxy.address(),
            control.address()?,
            args.upstream
        ))?;
        tokio::select! {
            never = control.serve(&proxy) => match never {},
            _ = terminated.recv() => Ok(()),
            _ = interrupted.recv() => Ok(()),
        }
    })
}

/// Sends a fault to a proxy and prints the resulting state.
pub(crate) fn network(args: &NetworkArgs) -> io::Result<()> {
    const TIMEOUT: Duration = Duration::from_secs(10);

    let answer = block_on(within("an answer", TIMEOUT, ask(&args.at, &args.fault))).map_err(at(&args.at))?;
    if let Some(error) = answer.strip_prefix(control::ERROR) {
        return Err(io::Error::other(error.to_owned()));
    }
    print(&format!("{answer}\n"))
}

async fn ask(at: &str, fault: &Fault) -> io::Result<String> {
    let mut stream = TcpStream::connect(at).await?;
    stream.write_all(format!("{fault}\n").as_bytes()).await?;
    read_line(&mut stream).await
}

/// Reads one line of limited length and returns it without its end.
async fn read_line(stream: &mut TcpStream) -> io::Result<String> {
    const LONGEST: u64 = 1024;

    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line).await?;
    match line.strip_suffix('\n') {
        Some(line) => Ok(line.to_owned()),
        None => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the connection was closed before the end of the line",
        )),
    }
}

fn at<T: ToString>(place: &T) -> impl FnOnce(io::Error) -> io::Error {
    let place = place.to_string();
    move |error| io::Error::new(error.kind(), format!("{place}: {error}"))
}

fn block_on<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
