//! A TCP proxy with network faults.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quorlock::runtime::{Clock, Entropy, SystemClock, SystemEntropy};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::servers::{Server, Servers};
use crate::timer::Timer;
use crate::wait::pause;

/// A TCP proxy with the faults of a network: delay, jitter, silence, resets.
///
/// It simulates what killing and freezing a server cannot: a response that is lost after the server has
/// executed the request, and a network that is slow in one direction. It does not interpret the bytes.
///
/// Dropping it resets every connection.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use quorlock_servers::{Proxy, Servers, Way};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let servers = Servers::start(1).await?;
/// for server in servers.iter() {
///     let proxy = Proxy::before(server).await?;
///     // Clients connect to `proxy.url()`. The server executes requests, but its answers are held:
///     proxy.hold(Way::ToClient);
///     // The network heals, and everything arrives late:
///     proxy.release(Way::ToClient);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    /// What its URL has before the address: `:PASSWORD@`, or nothing.
    login: String,
    faults: Arc<Faults>,
    accepting: AbortHandle,
}

/// A direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: there and back")]
pub enum Way {
    /// Requests.
    ToServer,
    /// Answers.
    ToClient,
    /// Both.
    Both,
}

#[derive(Debug)]
struct Faults {
    /// The server, as `HOST:PORT`.
    upstream: watch::Sender<Arc<str>>,
    to_server: watch::Sender<Traffic>,
    to_client: watch::Sender<Traffic>,
    refusing: watch::Sender<bool>,
    /// Notified when all connections must be reset.
    cut: watch::Sender<()>,
    open: AtomicUsize,
}

/// The faults in one direction; none by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Traffic {
    /// Whether everything is held: see [`Proxy::hold`].
    pub held: bool,
    /// The added delay: see [`Proxy::delay`].
    pub delay: Duration,
    /// The maximum of the random delay: see [`Proxy::jitter`].
    pub jitter: Duration,
}

impl Servers {
    /// Starts a proxy in front of each, in order, that delays both requests and answers by this much.
    ///
    /// # Errors
    ///
    /// As [`Proxy::start`].
    pub async fn ways(&self, delay: Duration) -> io::Result<Vec<Proxy>> {
        let mut ways = Vec::new();
        for server in self.iter() {
            let way = Proxy::before(server).await?;
            way.delay(Way::Both, delay);
            ways.push(way);
        }
        Ok(ways)
    }
}

impl Proxy {
    /// Starts a proxy in front of `upstream`, on a port of the loopback interface that the system chooses.
    ///
    /// # Errors
    ///
    /// If no port is available.
    pub async fn start(upstream: SocketAddr) -> io::Result<Proxy> {
        Proxy::listen((Ipv4Addr::LOCALHOST, 0).into(), upstream.to_string()).await
    }

    /// Starts a proxy in front of this server, whose password is then part of [`url`](Proxy::url).
    ///
    /// # Errors
    ///
    /// As [`start`](Proxy::start).
    pub async fn before(server: &Server) -> io::Result<Proxy> {
        let mut proxy = Proxy::start(server.address()).await?;
        proxy.login = server.login();
        Ok(proxy)
    }

    /// Starts a proxy that listens at `address`, in front of `upstream`, which is `HOST:PORT`.
    ///
    /// The host is resolved for each connection: a name may later refer to another machine, or to none while
    /// that is down. Clients are then reset, as they are if no server listens there.
    ///
    /// # Errors
    ///
    /// If listening at `address` is not permitted, or it is in use.
    pub async fn listen(address: SocketAddr, upstream: impl Into<String>) -> io::Result<Proxy> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let faults = Arc::new(Faults {
            upstream: watch::Sender::new(upstream.into().into()),
            to_server: watch::Sender::new(Traffic::default()),
            to_client: watch::Sender::new(Traffic::default()),
            refusing: watch::Sender::new(false),
            cut: watch::Sender::new(()),
            open: AtomicUsize::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&faults))).abort_handle();
        Ok(Proxy { address, login: String::new(), faults, accepting })
    }

    /// Returns `redis://ADDRESS:PORT`, with the password of the server for which it was started.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}{}", self.login, self.address)
    }

    /// Returns the address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.faults.open.load(Ordering::SeqCst)
    }

    /// Holds everything in this direction, including the end of a connection, and buffers it.
    pub fn hold(&self, way: Way) {
        self.change(way, |traffic| traffic.held = true);
    }

    /// Ends [`hold`](Proxy::hold): the buffered bytes arrive now.
    pub fn release(&self, way: Way) {
        self.change(way, |traffic| traffic.held = false);
    }

    /// Delays later bytes by this much.
    pub fn delay(&self, way: Way, delay: Duration) {
        self.change(way, |traffic| traffic.delay = delay);
    }

    /// Delays later bytes by up to this much, with a new random time for each piece, which is added to the
    /// delay. No piece overtakes another: each waits for those before it.
    ///
    /// There is no seed: how the bytes are split into pieces depends on the system, so no seed could
    /// reproduce the delays.
    pub fn jitter(&self, way: Way, most: Duration) {
        self.change(way, |traffic| traffic.jitter = most);
    }

    /// Resets every open connection on both sides. Held bytes are lost.
    pub fn cut(&self) {
        self.faults.cut.send_replace(());
    }

    /// Leads to this server from now on, like a virtual IP address after a failover, and resets every open
    /// connection.
    pub fn lead_to(&self, upstream: SocketAddr) {
        self.faults.upstream.send_replace(upstream.to_string().into());
        self.cut();
    }

    /// Sets whether new connections are reset immediately.
    pub fn refuse(&self, refusing: bool) {
        self.faults.refusing.send_replace(refusing);
    }

    /// Ends all faults: later bytes pass immediately, and new connections are accepted. Held bytes arrive
    /// now, delayed ones at their original time.
    pub fn heal(&self) {
        self.change(Way::Both, |traffic| *traffic = Traffic::default());
        self.refuse(false);
    }

    /// Returns the faults of requests.
    #[must_use]
    pub fn to_server(&self) -> Traffic {
        *self.faults.to_server.borrow()
    }

    /// Returns the faults of responses.
    #[must_use]
    pub fn to_client(&self) -> Traffic {
        *self.faults.to_client.borrow()
    }

    /// Whether new connections are reset immediately.
    #[must_use]
    pub fn is_refusing(&self) -> bool {
        *self.faults.refusing.borrow()
    }

    fn change(&self, way: Way, change: impl Fn(&mut Traffic)) {
        if way != Way::ToClient {
            self.faults.to_server.send_modify(&change);
        }
        if way != Way::ToServer {
            self.faults.to_client.send_modify(&change);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, faults: Arc<Faults>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) if *faults.refusing.borrow() => drop(client.set_zero_linger()),
                Ok((client, _)) => {
                    // Now, so that a cut also ends a connection whose task has not run yet.
                    let cut = faults.cut.subscribe();
                    drop(connections.spawn(relay(client, cut, Arc::clone(&faults))));
                }
                // Out of file descriptors, or the client is already gone. Both are temporary.
                Err(_) => pause().await,
            },
            // Removes closed connections.
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Relays one connection; closes it properly if both sides do, and resets it otherwise.
async fn relay(mut client: TcpStream, mut cut: watch::Receiver<()>, faults: Arc<Faults>) {
    // Set first, so that an aborted task also resets its connections.
    drop(client.set_zero_linger());
    let upstream = Arc::clone(&faults.upstream.borrow());
    let connected = tokio::select! {
        _ = cut.changed() => return,
        connected = TcpStream::connect(&*upstream) => connected,
    };
    let Ok(mut server) = connected else { return };
    drop((server.set_zero_linger(), server.set_nodelay(true), client.set_nodelay(true)));
    let _open = Open::new(&faults);
    let (client_reads, client_writes) = client.split();
    let (server_reads, server_writes) = server.split();
    let was_cut = cut.clone();
    tokio::select! {
        _ = cut.changed() => {}
        // After a proper close both directions are already shut down, and no reset is sent.
        _ = async { tokio::try_join!(
            pump(client_reads, server_writes, faults.to_server.subscribe(), &was_cut),
            pump(server_reads, client_writes, faults.to_client.subscribe(), &was_cut),
        ) } => {}
    }
}

/// Relays one direction. Reads while earlier bytes wait, so that a delay does not reduce the throughput.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut traffic: watch::Receiver<Traffic>,
    cut: &watch::Receiver<()>,
) -> io::Result<()> {
    const CHUNK: usize = 16 * 1024;
    const WAITING: usize = 1024;

    let clock = SystemClock::default();
    let (kept, mut due) = mpsc::channel(WAITING);
    let now = traffic.clone();
    let mut timer = Timer::default();
    let read = async move {
        loop {
            let mut chunk = Vec::with_capacity(CHUNK);
            let ended = from.read_buf(&mut chunk).await? == 0;
            let Traffic { delay, jitter, .. } = *now.borrow();
            // If it is due before an earlier piece, it waits in the queue.
            let moment = clock.now() + delay + up_to(jitter);
            if ended || kept.send((moment, chunk)).await.is_err() {
                return Ok(());
            }
        }
    };
    let write = async {
        while let Some((moment, chunk)) = due.recv().await {
            timer.until(moment).await;
            let_through(&mut traffic, cut).await?;
            to.write_all(&chunk).await?;
        }
        let_through(&mut traffic, cut).await?;
        to.shutdown().await
    };
    tokio::try_join!(read, write).map(|((), ())| ())
}

/// Waits while the traffic is held. Fails if the connection was cut: held bytes are lost with it, even if it
/// is cut and the traffic released at the same time, because a task that sees the release also sees the cut.
async fn let_through(traffic: &mut watch::Receiver<Traffic>, cut: &watch::Receiver<()>) -> io::Result<()> {
    traffic.wait_for(|traffic| !traffic.held).await.map_err(io::Error::other)?;
    if cut.has_changed().unwrap_or(true) { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
}

/// Returns a random time below `most`.
fn up_to(most: Duration) -> Duration {
    // A whole number of nanoseconds below 2^64, however large `most` is.
    let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    let scaled = (u128::from(SystemEntropy::default().next_u64()) * u128::from(most)) >> 64;
    Duration::from_nanos(u64::try_from(scaled).unwrap_or(most))
}

/// Counts an open connection.
struct Open<'a> {
    faults: &'a Faults,
}

impl Open<'_> {
    fn new(faults: &Faults) -> Open<'_> {
        faults.open.fetch_add(1, Ordering::SeqCst);
        Open { faults }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.faults.open.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_time_is_below_its_bound() {
        for most in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(3), Duration::MAX] {
            let times: Vec<Duration> = (0..100).map(|_| up_to(most)).collect();
            assert!(times.iter().all(|time| *time < most || most.is_zero()), "{most:?} gave {times:?}");
            let differ = times.iter().any(|time| Some(time) != times.first());
            assert_eq!(differ, most > Duration::from_nanos(1), "{most:?} gave {times:?}");
        }
    }
}
