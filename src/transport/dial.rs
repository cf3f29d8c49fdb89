use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use futures::future::select_ok;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::socket::Socket;
use super::stream::Stream;
use super::thread::{Outcome, SharedWork};
#[cfg(feature = "tls")]
use super::tls::Tls;
use crate::address::{Address, Endpoint};
use crate::runtime::{BoxFuture, Mutex};

/// Opens connections to nodes.
///
/// Simulations implement it to replace the network, programs to reach nodes in their own way. An
/// implementation needs no timeout: the caller drops the future.
pub trait Dial: Debug + Send + Sync + 'static {
    /// Connects to `address`, without sending anything.
    fn dial(&self, address: &Address) -> BoxFuture<'static, io::Result<Box<dyn Stream>>>;

    /// Resolves a host name, so that [`doctor`](crate::Coordinator::doctor) sees which nodes
    /// share a machine. Unless overridden, returns nothing for a name, and names are compared
    /// instead.
    fn resolve(&self, host: &str) -> BoxFuture<'static, Vec<IpAddr>> {
        // An IP address needs no lookup.
        Box::pin(std::future::ready(host.parse().into_iter().collect()))
    }
}

/// The idle time before the first keepalive probe, and the interval between probes.
const KEEPALIVE: Duration = Duration::from_secs(1);
/// How many probes may stay unanswered.
const PROBES: u32 = 2;
/// How long sent data may stay unacknowledged.
#[cfg(any(target_os = "linux", target_os = "android"))]
const USER_TIMEOUT: Duration = Duration::from_secs(2);

/// The operating system's TCP and Unix sockets, and TLS with the feature `tls`.
///
/// `TCP_NODELAY` is on: without it a request waits for the acknowledgement of the previous one,
/// which costs about half the throughput on a real network (redis-rs #2195).
///
/// A network that silently drops all packets is detected within 2.4 s, measured with a firewall
/// rule. That takes two options, since each covers only one case: keepalive probes (after 1 s idle,
/// 1 s apart, 2 unanswered) detect a dead idle connection in 2.1 s, but are not sent while data is
/// unacknowledged; `TCP_USER_TIMEOUT` (2 s, Linux and Android) detects a dead busy connection in
/// 2.4 s, but not an idle one. With neither, a dead connection still counted as alive after 20 s.
/// Without `TCP_USER_TIMEOUT`, a node that answers nothing for 30 s is dialled again.
///
/// TLS verifies certificates against the operating system's roots, or those in the file that
/// `SSL_CERT_FILE` names. Its crypto provider (ring) is passed explicitly, so it neither needs nor
/// sets a process-wide one: client libraries that rely on that panic at the first connection of a
/// program that has set none (redis-rs #1812).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SystemDial {
    #[cfg(feature = "tls")]
    tls: Tls,
    lookups: Lookups,
}

#[cfg(feature = "tls")]
impl SystemDial {
    /// Uses the system's sockets, with these TLS settings.
    #[must_use]
    pub fn with_tls(tls: Tls) -> SystemDial {
        SystemDial { tls, lookups: Lookups::default() }
    }
}

impl Dial for SystemDial {
    fn resolve(&self, host: &str) -> BoxFuture<'static, Vec<IpAddr>> {
        let (lookups, host) = (self.lookups.clone(), host.to_owned());
        Box::pin(async move {
            let found = lookups.look_up(&host, 0).await;
            found.into_iter().flatten().map(|address| address.ip()).collect()
        })
    }

    fn dial(&self, address: &Address) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let lookups = self.lookups.clone();
        match address.endpoint().clone() {
            Endpoint::Tcp { host, port } => {
                Box::pin(async move { Ok(Box::new(lookups.connect(&host, port).await?) as Box<dyn Stream>) })
            }
            #[cfg(feature = "tls")]
            Endpoint::Tls { host, port } => {
                let tls = self.tls.clone();
                Box::pin(async move {
                    let stream = lookups.connect(&host, port).await?;
                    tls.wrap(&host, stream).await
                })
            }
            #[cfg(not(feature = "tls"))]
            Endpoint::Tls { .. } => {
                Box::pin(async { Err(unsupported("TLS needs the feature `tls` of quorlock")) })
            }
            Endpoint::Sentinel { .. } => Box::pin(async {
                Err(unsupported(
                    "a Sentinel service has no address of its own; ask its Sentinels for the master",
                ))
            }),
            #[cfg(unix)]
            Endpoint::Unix { path } => Box::pin(async move {
                Ok(Box::new(Socket(tokio::net::UnixStream::connect(path).await?)) as Box<dyn Stream>)
            }),
            #[cfg(not(unix))]
            Endpoint::Unix { .. } => {
                Box::pin(async { Err(unsupported("this platform has no Unix sockets")) })
            }
        }
    }
}

fn unsupported(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, what)
}

/// The lookups of names that are under way, by name. A lookup has a thread, and may take far longer than a connection is waited
/// for: each later connection waits for the same one.
#[derive(Clone, Debug, Default)]
struct Lookups(Arc<Mutex<BTreeMap<Arc<str>, SharedWork<Addresses>>>>);

type Addresses = Arc<[SocketAddr]>;

impl Lookups {
    /// Connects to the first of the host's addresses that answers, in parallel: an unreachable one must
    /// not use up the time of the others.
    async fn connect(&self, host: &str, port: u16) -> io::Result<Socket<TcpStream>> {
        let addresses = self.look_up(host, port).await?;
        let attempts: Vec<_> =
            addresses.into_iter().map(|address| Box::pin(TcpStream::connect(address))).collect();
        if attempts.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the host name has no address"));
        }
        let (stream, _) = select_ok(attempts).await?;
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
        #[cfg(any(
            target_os = "linux",
            target_os = "android",
            target_vendor = "apple",
            target_os = "freebsd",
            windows
        ))]
        let keepalive = keepalive.with_interval(KEEPALIVE).with_retries(PROBES);
        socket.set_tcp_keepalive(&keepalive)?;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
        Ok(Socket(stream))
    }

    /// Resolves a host name by the operating system.
    async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let resolve = |host: &str| (host, 0).to_socket_addrs().map(Iterator::collect);
        let found = self.join(host, resolve).await.map_err(io::Error::other)?;
        let with_port = |found: &SocketAddr| {
            let mut address = *found;
            address.set_port(port);
            address
        };
        Ok(found.iter().map(with_port).collect())
    }

    /// Returns what the lookup of the host finds that is under way, or a new one.
    fn join(
        &self,
        host: &str,
        resolve: impl FnOnce(&str) -> io::Result<Addresses> + Send + 'static,
    ) -> Outcome<Addresses> {
        let mut under_way = self.0.lock();
        under_way.retain(|_, lookup| lookup.is_under_way());
        let host = Arc::<str>::from(host);
        let lookup = under_way.entry(Arc::clone(&host));
        lookup.or_insert_with(|| SharedWork::new(move || resolve(&host))).outcome()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_name_and_an_address_are_looked_up() {
        let lookups = Lookups::default();
        let loopback = lookups.look_up("localhost", 7).await.unwrap();
        assert!(loopback.iter().all(|found| found.ip().is_loopback() && found.port() == 7), "{loopback:?}");
        assert_eq!(lookups.look_up("::1", 7).await.unwrap(), ["[::1]:7".parse().unwrap()]);
        assert!(lookups.look_up("no such host", 7).await.is_err());
    }

    /// Each attempt to connect gave up its lookup, which went on, and began another one.
    #[tokio::test]
    async fn a_lookup_that_hangs_is_not_begun_again() {
        let (lookups, (name_server, answers)) = (Lookups::default(), channel::<SocketAddr>());
        let hangs = move |_: &str| answers.recv().map(|found| [found].into()).map_err(io::Error::other);
        assert!(lookups.join("db", hangs).now_or_never().is_none(), "it is answered");
        let again = |_: &str| -> io::Result<Addresses> { panic!("it is begun again") };
        let (second, third) = (lookups.join("db", again), lookups.join("db", again));
        let other = lookups.join("cache", |_| Ok([].into())).await.unwrap();
        assert!(other.is_empty(), "another name does not wait");
        let found: SocketAddr = "10.0.0.1:0".parse().unwrap();
        name_server.send(found).unwrap();
        assert_eq!((&*second.await.unwrap(), &*third.await.unwrap()), (&[found][..], &[found][..]));
    }
}
