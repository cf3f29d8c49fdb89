//! A bad network in front of a good server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quorlock::{Clock, SystemClock};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

/// A TCP proxy on the loopback interface, with the faults of a network: delay, silence, resets.
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

#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    held: bool,
    delay: Duration,
}

impl Proxy {
    /// Starts one in front of `upstream`, on a port that the system hands out.
    ///
    /// # Errors
    ///
    /// If no port can be had.
    pub async fn start(upstream: SocketAddr) -> io::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let faults = Arc::new(Faults {
            to_server: watch::Sender::new(Traffic::default()),
            to_client: watch::Sender::new(Traffic::default()),
            refusing: watch::Sender::new(false),
            cut: watch::Sender::new(()),
            open: AtomicUsize::new(0),
        });
        let accepting = tokio::spawn(accept(listener, upstream, Arc::clone(&faults))).abort_handle();
        Ok(Proxy { address, faults, accepting })
    }

    /// `redis://127.0.0.1:PORT`
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

    /// Resets every open connection on both sides. What was kept is lost.
    pub fn cut(&self) {
        self.faults.cut.send_replace(());
    }

    /// New connections are reset at once, from now on or no longer.
    pub fn refuse(&self, refusing: bool) {
        self.faults.refusing.send_replace(refusing);
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

async fn accept(listener: TcpListener, upstream: SocketAddr, faults: Arc<Faults>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) if *faults.refusing.borrow() => drop(client.set_zero_linger()),
                Ok((client, _)) => drop(connections.spawn(relay(client, upstream, Arc::clone(&faults)))),
                Err(_) => return,
            },
            // Forgets those that have ended.
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection: orderly if both sides end it, reset if anything else does.
async fn relay(mut client: TcpStream, upstream: SocketAddr, faults: Arc<Faults>) {
    // Set first: also an aborted task resets its connections.
    drop(client.set_zero_linger());
    let mut cut = faults.cut.subscribe();
    let Ok(mut server) = TcpStream::connect(upstream).await else { return };
    drop((server.set_zero_linger(), server.set_nodelay(true), client.set_nodelay(true)));
    let _open = Open::new(&faults);
    let (client_reads, client_writes) = client.split();
    let (server_reads, server_writes) = server.split();
    tokio::select! {
        _ = cut.changed() => {}
        // After an orderly end both directions are shut down already, and the reset is not sent.
        _ = async { tokio::try_join!(
            pump(client_reads, server_writes, faults.to_server.subscribe()),
            pump(server_reads, client_writes, faults.to_client.subscribe()),
        ) } => {}
    }
}

/// One direction. Reading goes on while earlier bytes wait, so a delay does not slow the stream.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut traffic: watch::Receiver<Traffic>,
) -> io::Result<()> {
    const CHUNK: usize = 16 * 1024;
    const WAITING: usize = 1024;

    let clock = SystemClock::default();
    let (kept, mut due) = mpsc::channel(WAITING);
    let now = traffic.clone();
    let read = async move {
        loop {
            let mut chunk = Vec::with_capacity(CHUNK);
            let ended = from.read_buf(&mut chunk).await? == 0;
            let delay = now.borrow().delay;
            if ended || kept.send((clock.now() + delay, chunk)).await.is_err() {
                return Ok(());
            }
        }
    };
    let write = async {
        while let Some((moment, chunk)) = due.recv().await {
            clock.sleep_until(moment).await;
            let_through(&mut traffic).await?;
            to.write_all(&chunk).await?;
        }
        let_through(&mut traffic).await?;
        to.shutdown().await
    };
    tokio::try_join!(read, write).map(|((), ())| ())
}

async fn let_through(traffic: &mut watch::Receiver<Traffic>) -> io::Result<()> {
    traffic.wait_for(|traffic| !traffic.held).await.map(drop).map_err(io::Error::other)
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
