//! A port at which nothing answers.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A port on loopback that refuses connections. It is bound, so that no server of another test gets it meanwhile.
#[derive(Debug)]
pub struct ClosedPort(TcpSocket);

impl ClosedPort {
    /// Binds one.
    ///
    /// # Errors
    ///
    /// If the system has none left.
    pub fn bind() -> io::Result<ClosedPort> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(ClosedPort(socket))
    }

    /// Returns its address.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}
