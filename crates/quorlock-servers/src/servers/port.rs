//! Reserved ports.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// A port of the loopback interface, chosen by the system and reserved while its server is down.
///
/// On Linux it reserves the port with a bound socket that never listens. A server can still use the port,
/// because servers set `SO_REUSEADDR`, but the system gives it to no program that asks for any port:
/// otherwise a concurrent test could get the port of a server that was just killed, and answer in its place.
/// Other systems have no such protection, and a server that finds its port in use is restarted until it is
/// free.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    #[expect(dead_code, reason = "it works by being open")]
    reservation: Option<TcpSocket>,
}

/// The offset from the port for clients to the port of the cluster bus.
const BUS: u16 = 10_000;

impl Port {
    /// Reserves a port of at most this number.
    pub(crate) fn reserve(most: u16) -> io::Result<Port> {
        // Larger ones stay bound until a smaller one is found, so that none is returned twice.
        let mut too_large = Vec::new();
        loop {
            let port = Port::any()?;
            if port.number <= most {
                return Ok(port);
            }
            too_large.push(port);
        }
    }

    /// Reserves a port for a member of a cluster, and the one 10,000 above for the cluster bus.
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
        // Bound first, so that the system does not choose a port that is already reserved.
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

    /// Listens on the port, for a server in this process.
    pub(crate) fn listen(&self) -> io::Result<TcpListener> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(self.address())?;
        socket.listen(1024)
    }
}
