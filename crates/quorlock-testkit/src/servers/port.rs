//! Ports that stay ours.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// A port of the loopback interface, handed out by the system and kept while its server is down.
///
/// On Linux it holds the port by a socket that never listens. That leaves the port free for a
/// server, which sets `SO_REUSEADDR` as they all do, but takes it away from everybody who asks for
/// any port: without it, a test that runs beside this one can be given the port of a server that
/// has just been killed, and answer in its place. Elsewhere that is left to chance, and a server
/// that finds its port taken is started again until it does not.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    #[expect(dead_code, reason = "it works by being open")]
    reservation: Option<TcpSocket>,
}

/// How far above the port for clients a server listens to the other members of its cluster.
const BUS: u16 = 10_000;

impl Port {
    /// One of at most that number.
    pub(crate) fn reserve(most: u16) -> io::Result<Port> {
        // Those that are too large are kept until one is not, so that none comes twice.
        let mut too_large = Vec::new();
        loop {
            let port = Port::any()?;
            if port.number <= most {
                return Ok(port);
            }
            too_large.push(port);
        }
    }

    /// One for a member of a cluster, and the one 10,000 above, on which members talk to each other.
    pub(crate) fn reserve_two() -> io::Result<(Port, Port)> {
        let mut taken = Vec::new();
        loop {
            let port = Port::reserve(u16::MAX - BUS)?;
            match Port::at(port.number + BUS) {
                Ok(bus) => return Ok((port, bus)),
                Err(busy) if busy.kind() == io::ErrorKind::AddrInUse => taken.push(port),
                Err(error) => return Err(error),
            }
        }
    }

    fn any() -> io::Result<Port> {
        Port::at(0)
    }

    fn at(number: u16) -> io::Result<Port> {
        let socket = TcpSocket::new_v4()?;
        // Bound first, so that the system does not hand out a port that another one keeps.
        socket.bind((Ipv4Addr::LOCALHOST, number).into())?;
        socket.set_reuseaddr(true)?;
        let number = socket.local_addr()?.port();
        Ok(Port { number, reservation: cfg!(target_os = "linux").then_some(socket) })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }

    /// For a server in this process.
    pub(crate) fn listen(&self) -> io::Result<TcpListener> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(self.address())?;
        socket.listen(1024)
    }
}
