//! An address that forwards to one server now and to another later, like a virtual IP address or a DNS
//! name in a failover.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Forwards connections to the current server. Closes them on drop.
pub(super) struct Forwarder {
    address: SocketAddr,
    /// The current server; `None` during a failover.
    to: watch::Sender<Option<SocketAddr>>,
    accepting: AbortHandle,
}

impl Forwarder {
    /// Listens on a port chosen by the system, and forwards to this server.
    pub(super) async fn open(server: SocketAddr) -> io::Result<Forwarder> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (to, leads) = watch::channel(Some(server));
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // Ends with the connection, or when the server changes.
                drop(tokio::spawn(carry(client, leads.clone())));
            }
        });
        Ok(Forwarder { address, to, accepting: accepting.abort_handle() })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections, and every new one immediately.
    pub(super) fn close(&self) {
        self.to.send_replace(None);
    }

    /// Forwards to this server from now on.
    pub(super) fn forward_to(&self, server: SocketAddr) {
        self.to.send_replace(Some(server));
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn carry(mut client: TcpStream, mut leads: watch::Receiver<Option<SocketAddr>>) {
    let to = *leads.borrow_and_update();
    let Some(to) = to else { return };
    let carrying = async {
        let mut server = TcpStream::connect(to).await?;
        // Like the proxy in front of it, it must not add latency.
        server.set_nodelay(true)?;
        client.set_nodelay(true)?;
        copy_bidirectional(&mut client, &mut server).await
    };
    tokio::select! {
        biased;
        // Also when the forwarder is dropped.
        _ = leads.changed() => {}
        ended = carrying => drop(ended),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn a_forwarder_switches_servers_and_closes_connections() {
        let servers = [
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        ];
        let forwarder = Forwarder::open(servers[0].local_addr().unwrap()).await.unwrap();
        let mut early = TcpStream::connect(forwarder.address()).await.unwrap();
        let _served = servers[0].accept().await.unwrap();
        forwarder.close();
        assert_eq!(early.read(&mut [0]).await.unwrap_or(0), 0, "it is cut off");
        let mut between = TcpStream::connect(forwarder.address()).await.unwrap();
        assert_eq!(between.read(&mut [0]).await.unwrap_or(0), 0, "there is no server");
        forwarder.forward_to(servers[1].local_addr().unwrap());
        let _late = TcpStream::connect(forwarder.address()).await.unwrap();
        servers[1].accept().await.unwrap();
    }
}
