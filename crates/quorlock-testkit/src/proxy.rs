//! A bad network in front of a good server.

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

use crate::timer::Timer;
use crate::wait::pause;

/// A TCP proxy with the faults of a network: delay, jitter, silence, resets.
///
/// It makes what killing and freezing a server cannot: an answer that is lost after the server has
/// acted, and a way that is slow in one direction. It knows nothing of what it carries.
///
/// Dropping it resets every connection.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use quorlock_testkit::{Proxy, Servers, Way};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let servers = Servers::start(1).await?;
/// for server in servers.iter() {
///     let proxy = Proxy::start(server.address()).await?;
///     // Clients connect to `proxy.url()`. The server acts, and nobody hears its answers:
///     proxy.hold(Way::ToClient);
///     // The network heals, and everything arrives late:
///     proxy.let_go(Way::ToClient);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
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
    to_server: watch::Sender<Traffic>,
    to_client: watch::Sender<Traffic>,
    refusing: watch::Sender<bool>,
    /// Changes when all connections are to be reset.
    cut: watch::Sender<()>,
    open: AtomicUsize,
}

/// What is wrong in one direction. By default nothing is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Traffic {
    /// Whether nothing passes: see [`Proxy::hold`].
    pub held: bool,
    /// How much longer everything takes: see [`Proxy::delay`].
    pub delay: Duration,
    /// Up to how much longer still, at random: see [`Proxy::jitter`].
    pub jitter: Duration,
}

impl Proxy {
    /// Starts one in front of `upstream`, on a port of the loopback interface that the system hands
    /// out.
    ///
    /// # Errors
    ///
    /// If no port can be had.
    pub async fn start(upstream: SocketAddr) -> io::Result<Proxy> {
        Proxy::listen((Ipv4Addr::LOCALHOST, 0).into(), upstream.to_string()).await
    }

    /// Starts one that listens at `address`, in front of `upstream`, which is `HOST:PORT`.
    ///
    /// The host is looked up anew for each connection: a name may come to stand for another machine,
    /// or for none while that is down. Clients are then reset, as they are if nobody listens there.
    ///
    /// # Errors
    ///
    /// If nobody may listen at `address`, or somebody does.
    pub async fn listen(address: SocketAddr, upstream: impl Into<String>) -> io::Result<Proxy> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let faults = Arc::new(Faults {
            to_server: watch::Sender::new(Traffic::default()),
            to_client: watch::Sender::new(Traffic::default()),
            refusing: watch::Sender::new(false),
            cut: watch::Sender::new(()),
            open: AtomicUsize::new(0),
        });
        let accepting =
            tokio::spawn(accept(listener, upstream.into().into(), Arc::clone(&faults))).abort_handle();
        Ok(Proxy { address, faults, accepting })
    }

    /// `redis://ADDRESS:PORT`
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.faults.open.load(Ordering::SeqCst)
    }

    /// Nothing passes this way any more, nor the end of a connection. What comes is kept.
    pub fn hold(&self, way: Way) {
        self.change(way, |traffic| traffic.held = true);
    }

    /// Ends [`hold`](Proxy::hold): what was kept arrives now.
    pub fn let_go(&self, way: Way) {
        self.change(way, |traffic| traffic.held = false);
    }

    /// What comes from now on takes this much longer.
    pub fn delay(&self, way: Way, delay: Duration) {
        self.change(way, |traffic| traffic.delay = delay);
    }

    /// What comes from now on takes up to this much longer, by a new random time for each piece. It
    /// is added to the delay. No piece overtakes another: each waits for those before it.
    ///
    /// Not from a seed: which bytes come in one piece is up to the system, so no seed could bring
    /// the same times back.
    pub fn jitter(&self, way: Way, most: Duration) {
        self.change(way, |traffic| traffic.jitter = most);
    }

    /// Resets every open connection on both sides. What was kept is lost.
    pub fn cut(&self) {
        self.faults.cut.send_replace(());
    }

    /// New connections are reset at once, from now on or no longer.
    pub fn refuse(&self, refusing: bool) {
        self.faults.refusing.send_replace(refusing);
    }

    /// Everything that comes from now on passes at once, and new connections are let in. What was
    /// held arrives now, what was delayed when it would have anyway.
    pub fn heal(&self) {
        self.change(Way::Both, |traffic| *traffic = Traffic::default());
        self.refuse(false);
    }

    /// What is wrong with requests.
    #[must_use]
    pub fn to_server(&self) -> Traffic {
        *self.faults.to_server.borrow()
    }

    /// What is wrong with answers.
    #[must_use]
    pub fn to_client(&self) -> Traffic {
        *self.faults.to_client.borrow()
    }

    /// Whether new connections are reset at once.
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

async fn accept(listener: TcpListener, upstream: Arc<str>, faults: Arc<Faults>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) if *faults.refusing.borrow() => drop(client.set_zero_linger()),
                Ok((client, _)) => drop(connections.spawn(relay(client, Arc::clone(&upstream), Arc::clone(&faults)))),
                // Out of file descriptors, or a client that has gone already. Both pass.
                Err(_) => pause().await,
            },
            // Forgets those that have ended.
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection: orderly if both sides end it, reset if anything else does.
async fn relay(mut client: TcpStream, upstream: Arc<str>, faults: Arc<Faults>) {
    // Set first: also an aborted task resets its connections.
    drop(client.set_zero_linger());
    let mut cut = faults.cut.subscribe();
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
        // After an orderly end both directions are shut down already, and the reset is not sent.
        _ = async { tokio::try_join!(
            pump(client_reads, server_writes, faults.to_server.subscribe(), &was_cut),
            pump(server_reads, client_writes, faults.to_client.subscribe(), &was_cut),
        ) } => {}
    }
}

/// One direction. Reading goes on while earlier bytes wait, so a delay does not slow the stream.
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
            // It may fall due before what came earlier, and waits for that in the queue all the same.
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

/// What was kept is lost with its connection, also where that is cut and the traffic let go in one
/// breath: whoever sees the second sees the first.
async fn let_through(traffic: &mut watch::Receiver<Traffic>, cut: &watch::Receiver<()>) -> io::Result<()> {
    traffic.wait_for(|traffic| !traffic.held).await.map_err(io::Error::other)?;
    if cut.has_changed().unwrap_or(true) { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
}

/// A random time below `most`.
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
