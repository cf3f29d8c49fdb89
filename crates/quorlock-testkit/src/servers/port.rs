//! Ports that stay ours.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// A port of the loopback interface, handed out by the system and kept while its server is down.
///
/// On Linux it holds the port by a socket that never listens. That leaves the port free for a
/// server, which sets `SO_REUSEADDR` as they all do, but takes it away from everybody else: without
/// it, a client that tries again and again to reach a dead server can be given that very port for
/// its own end of the connection, and then talks to itself.
#[derive(Debug)]
pub(super) struct Port {
    number: u16,
    #[expect(dead_code, reason = "it works by being open")]
    reservation: Option<TcpSocket>,
}

impl Port {
    pub(super) fn reserve() -> io::Result<Port> {
        let socket = TcpSocket::new_v4()?;
        // Bound first, so that the system does not hand out a port that another one keeps.
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        socket.set_reuseaddr(true)?;
        let number = socket.local_addr()?.port();
        Ok(Port { number, reservation: cfg!(target_os = "linux").then_some(socket) })
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }

    pub(super) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }

    /// For a server in this process.
    pub(super) fn listen(&self) -> io::Result<TcpListener> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(self.address())?;
        socket.listen(1024)
    }
}
