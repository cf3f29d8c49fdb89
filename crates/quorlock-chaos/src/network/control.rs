//! The control port of a proxy: see [`network`](super).

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use humantime::format_duration;
use quorlock_servers::{Proxy, Traffic, within};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::fault::Fault;
use super::read_line;

/// The prefix of an error answer.
pub(super) const ERROR: &str = "error: ";

/// The control port.
#[derive(Debug)]
pub(super) struct Control {
    listener: TcpListener,
}

impl Control {
    pub(super) async fn listen(address: SocketAddr) -> io::Result<Control> {
        Ok(Control { listener: TcpListener::bind(address).await? })
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Applies the faults that clients send to `proxy`, one client at a time.
    pub(super) async fn serve(&self, proxy: &Proxy) -> Infallible {
        // More than enough to send a line; an idle client must not block the others.
        const TIMEOUT: Duration = Duration::from_secs(1);

        loop {
            match self.listener.accept().await {
                // Errors and timeouts concern only this client.
                Ok((caller, _)) => drop(within("a line", TIMEOUT, answer(caller, proxy)).await),
                // Out of file descriptors, for example: pause instead of retrying in a busy loop.
                Err(_) => drop(within("nothing", TIMEOUT, pending::<io::Result<()>>()).await),
            }
        }
    }
}

async fn answer(mut caller: TcpStream, proxy: &Proxy) -> io::Result<()> {
    let line = read_line(&mut caller).await?;
    let answer = match Fault::parse(&line) {
        Ok(fault) => {
            fault.apply(proxy);
            state(proxy)
        }
        Err(error) => format!("{ERROR}{error}"),
    };
    caller.write_all(format!("{answer}\n").as_bytes()).await?;
    caller.shutdown().await
}

/// Describes the state of the proxy in one line.
fn state(proxy: &Proxy) -> String {
    let [to_server, to_client] = [proxy.to_server(), proxy.to_client()].map(ailment);
    let open = proxy.connections();
    let connections = if open == 1 { "connection" } else { "connections" };
    let refusing = if proxy.is_refusing() { "; new ones are refused" } else { "" };
    format!("to server: {to_server}; to client: {to_client}; {open} {connections} open{refusing}")
}

fn ailment(traffic: Traffic) -> String {
    let mut ailments = Vec::new();
    if traffic.held {
        ailments.push("held".to_owned());
    }
    for (name, time) in [("delay", traffic.delay), ("jitter", traffic.jitter)] {
        if !time.is_zero() {
            ailments.push(format!("{name} {}", format_duration(time)));
        }
    }
    if ailments.is_empty() { "ok".to_owned() } else { ailments.join(", ") }
}
