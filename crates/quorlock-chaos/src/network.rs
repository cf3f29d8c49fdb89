//! A bad network in front of one server, as two verbs: a proxy that runs until it is ended, and what
//! tells it which faults to have.
//!
//! # The control port
//!
//! Whoever connects to it sends one line, which is what stands on the command line after
//! `quorlock-chaos network --at ADDRESS`, and gets one line back: how things stand now, or `error: `
//! and what is wrong. Then the connection ends.
//!
//! ```text
//! -> delay 50ms --jitter 20ms --way to-client
//! <- to server: sound; to client: delay 50ms, jitter 20ms; 3 connections open
//! ```
//!
//! It has no authentication: whoever reaches the port can break the network behind it. So it listens
//! on the loopback interface unless told otherwise, and belongs into no network but one for tests.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use quorlock::runtime::{Clock as _, SystemClock};
use quorlock_testkit::Proxy;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};

use self::control::Control;
use self::fault::Fault;

mod control;
mod fault;

/// `quorlock-chaos proxy`.
#[derive(Debug, clap::Args)]
pub(crate) struct ProxyArgs {
    /// Where clients connect to
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// The server behind it; its name is looked up anew for each connection
    #[arg(long, value_name = "HOST:PORT")]
    upstream: String,
    /// Where `quorlock-chaos network` connects to. There is no authentication
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

/// Stands in front of a server until SIGTERM or SIGINT.
pub(crate) fn proxy(args: &ProxyArgs) -> io::Result<()> {
    block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        let mut interrupted = signal(SignalKind::interrupt())?;
        let proxy = Proxy::listen(args.listen, args.upstream.as_str()).await.map_err(at(&args.listen))?;
        let control = Control::listen(args.control).await.map_err(at(&args.control))?;
        println!(
            "listening on {}, control on {}, in front of {}",
            proxy.address(),
            control.address()?,
            args.upstream
        );
        tokio::select! {
            never = control.serve(&proxy) => match never {},
            _ = terminated.recv() => Ok(()),
            _ = interrupted.recv() => Ok(()),
        }
    })
}

/// Tells a proxy of a fault, and prints how things stand there.
pub(crate) fn network(args: &NetworkArgs) -> io::Result<()> {
    const LIMIT: Duration = Duration::from_secs(10);

    let answer = block_on(within(LIMIT, ask(&args.at, &args.fault))).map_err(at(&args.at))?;
    if let Some(error) = answer.strip_prefix(control::ERROR) {
        return Err(io::Error::other(error.to_owned()));
    }
    println!("{answer}");
    Ok(())
}

async fn ask(at: &str, fault: &Fault) -> io::Result<String> {
    let mut stream = TcpStream::connect(at).await?;
    stream.write_all(format!("{fault}\n").as_bytes()).await?;
    read_line(&mut stream).await
}

/// One line, without its end. Nobody on either side has more to say than fits.
async fn read_line(stream: &mut TcpStream) -> io::Result<String> {
    const LONGEST: u64 = 1024;

    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line).await?;
    match line.strip_suffix('\n') {
        Some(line) => Ok(line.to_owned()),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "no whole line came")),
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let clock = SystemClock::default();
    let end = clock.now() + limit;
    tokio::select! {
        done = work => done,
        () = clock.sleep_until(end) => {
            let limit = humantime::format_duration(limit);
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit}")))
        }
    }
}

fn at<T: ToString>(place: &T) -> impl FnOnce(io::Error) -> io::Error {
    let place = place.to_string();
    move |error| io::Error::new(error.kind(), format!("{place}: {error}"))
}

fn block_on<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
