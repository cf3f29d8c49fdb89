//! Servers that attack their clients, for tests of any kind of node.
//!
//! A table of [`Attack`]s says what a server sends instead of an answer, and [`Attack::survive`] holds a lock
//! on it and on two honest nodes beside it. Each kind of node has a table for its protocol: huge, endless,
//! absurd, slow and silent answers, two answers to one question, and answers out of order, in each phase of a
//! connection. The tests run in a process of their own ([`in_process_of_its_own`]), since the memory of one
//! process is measured, and since what a client must survive may otherwise end the test program.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a check of the table fails by panicking, as the test that runs it"
)]

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use quorlock::node::NodeKind;
use quorlock::redis::Address;
use quorlock::runtime::BoxFuture;
use quorlock::runtime::{self, Clock as _, Mutex, SystemClock};
use quorlock::transport::{Dial, Stream};
use quorlock::{AcquireError, Coordinator, RestartGuard, Wait};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::{eventually, memory_nodes, patience, scaled};

/// What a server sends instead of an answer.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Attack {
    /// What it is.
    pub name: &'static str,
    /// What the client's error says about it.
    pub words: &'static str,
    /// A server that is to answer until the attack begins.
    pub upstream: Option<SocketAddr>,
    /// What to send after the client has sent certain bytes, one after the other. With an upstream, the first
    /// of these begins the attack.
    pub stages: Vec<(Vec<u8>, Vec<u8>)>,
    /// What to repeat after that, for ever.
    pub then: Vec<u8>,
    /// How long to wait before each repetition.
    pub pause: Duration,
    /// How long the client waits for a connection. Unless the attack is to make it wait, long enough.
    pub limit: Option<Duration>,
}

/// The key of the lock that [`Attack::survive`] acquires.
pub const KEY: &str = "orders/42";
/// The most memory that a client may take for an attack.
pub const MEMORY: usize = 64 << 20;

/// How long a client usually waits for a connection.
const LIMIT: Duration = Duration::from_secs(5);
/// Ten times the longest timeout of a node.
const TTL: Duration = Duration::from_secs(120);

impl Attack {
    /// An attack that the client reports with these words.
    #[must_use]
    pub fn new(name: &'static str, words: &'static str) -> Attack {
        Attack { name, words, ..Attack::default() }
    }

    /// Lets this server answer until the attack begins.
    #[must_use]
    pub fn behind(mut self, upstream: SocketAddr) -> Attack {
        self.upstream = Some(upstream);
        self
    }

    /// Sends `answer` once the client has sent `asked`.
    #[must_use]
    pub fn after(mut self, asked: impl Into<Vec<u8>>, answer: impl Into<Vec<u8>>) -> Attack {
        self.stages.push((asked.into(), answer.into()));
        self
    }

    /// Repeats these bytes for ever.
    #[must_use]
    pub fn then(mut self, bytes: impl Into<Vec<u8>>) -> Attack {
        self.then = bytes.into();
        self
    }

    /// Waits before each repetition.
    #[must_use]
    pub fn slowly(mut self, pause: Duration) -> Attack {
        self.pause = pause;
        self
    }

    /// Gives the client this time for a connection.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Attack {
        self.limit = Some(limit);
        self
    }

    /// Holds a lock on a server that attacks and on two honest nodes. Returns the memory that it took, in
    /// bytes, and what is reported if there is no other node.
    ///
    /// # Panics
    ///
    /// If the lock is not held, or cannot be released; if the server gets a vote; if the error does not say
    /// what is wrong; or if the client takes more than [`MEMORY`].
    pub async fn survive<K: NodeKind + Clone>(
        self,
        kind: K,
        url: impl Fn(SocketAddr) -> String,
    ) -> (usize, String) {
        let (name, words) = (self.name, self.words);
        let limit = self.limit.unwrap_or_else(|| scaled(LIMIT).min(2 * LIMIT));
        let server = HostileServer::start(self).await.expect("a port of the loopback interface");
        let url = url(server.address());
        let build = |honest| {
            let nodes = Coordinator::builder().kind(kind.clone()).nodes([url.clone()]);
            let nodes = nodes.custom_nodes(memory_nodes(honest)).connect_timeout(limit);
            let nodes = nodes.node_timeout(limit + Duration::from_secs(1)).ttl(TTL).max_ttl(TTL);
            nodes.restart_guard(RestartGuard::Off).build().expect("a valid address")
        };
        let before = Memory::start();
        let coordinator = build(2);
        let lease = in_time(name, coordinator.lock(KEY).wait(Wait::Never).acquire())
            .await
            .unwrap_or_else(|error| panic!("{name}: two of three are honest: {error}"));
        let attacked = async || server.attacks() > 0;
        eventually("the server attacks", patience(), attacked)
            .await
            .unwrap_or_else(|late| panic!("{name}: {late}"));
        assert!(lease.check().is_ok(), "{name}: the lease was lost");
        in_time(name, lease.release()).await.unwrap_or_else(|lost| panic!("{name}: {lost}"));
        in_time(name, coordinator.close(Duration::from_millis(100))).await;
        let coordinator = build(0);
        let alone = in_time(name, coordinator.lock(KEY).wait(Wait::Never).acquire()).await;
        let error = alone.expect_err("a hostile server grants nothing");
        assert!(!matches!(error, AcquireError::Contended { .. }), "{name}: {error}");
        let error = format!("{error:#}");
        assert!(error.contains(words), "{name}: {error}");
        assert!(error.len() < 4096 && !error.chars().any(char::is_control), "{name}: {error}");
        in_time(name, coordinator.close(Duration::from_millis(100))).await;
        let taken = before.taken();
        assert!(taken < MEMORY, "{name}: the client took {taken} bytes");
        (taken, error)
    }
}

async fn in_time<T>(name: &str, work: impl Future<Output = T>) -> T {
    let done = runtime::within(&SystemClock::default(), patience(), work).await;
    done.unwrap_or_else(|| panic!("{name}: it hangs"))
}

/// Checks that each attack harms only its own vote, and that no error has the `secret`, which is in the URL. A panic is a
/// harm too, even if it is caught. A client may panic during the next attack, when it connects once more.
///
/// # Panics
///
/// With the names of the attacks that harmed, and the panics.
pub async fn survive_all<K: NodeKind + Clone>(
    attacks: Vec<Attack>,
    kind: K,
    (url, secret): (impl Fn(SocketAddr) -> String, &str),
) {
    let panics = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&panics);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        seen.lock().push(panic.to_string());
        usual(panic);
    }));
    let mut harmed = Vec::new();
    for attack in attacks {
        let name = attack.name;
        match AssertUnwindSafe(attack.survive(kind.clone(), &url)).catch_unwind().await {
            Ok((taken, error)) => {
                println!("{name}: {} KB", taken >> 10);
                assert!(!error.contains(secret), "{error}");
            }
            Err(_) => harmed.push(name.to_owned()),
        }
        let panics = std::mem::take(&mut *panics.lock());
        harmed.extend(panics);
    }
    assert!(harmed.is_empty(), "{harmed:#?}");
}

/// Leads every address to this server.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete: an address")]
pub struct To(pub SocketAddr);

impl Dial for To {
    fn dial(&self, _: &Address) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let address = self.0;
        Box::pin(async move { Ok(Box::new(TcpStream::connect(address).await?) as Box<dyn Stream>) })
    }
}

/// A server that attacks all its clients. It ends when dropped.
#[derive(Debug)]
pub struct HostileServer {
    address: SocketAddr,
    attacks: Arc<AtomicUsize>,
    accepting: AbortHandle,
}

impl HostileServer {
    /// Starts it on a port of the loopback interface that the system chooses.
    ///
    /// # Errors
    ///
    /// If no port is available.
    pub async fn start(attack: Attack) -> io::Result<HostileServer> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (attack, attacks) = (Arc::new(attack), Arc::new(AtomicUsize::new(0)));
        let begun = Arc::clone(&attacks);
        let accepting = tokio::spawn(async move {
            let mut clients = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (attack, begun) = (Arc::clone(&attack), Arc::clone(&begun));
                clients.spawn(async move { serve(client, &attack, &begun).await });
            }
        });
        Ok(HostileServer { address, attacks, accepting: accepting.abort_handle() })
    }

    /// Returns its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns how often it has begun to attack.
    #[must_use]
    pub fn attacks(&self) -> usize {
        self.attacks.load(Ordering::Relaxed)
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(mut client: TcpStream, attack: &Attack, attacks: &AtomicUsize) -> io::Result<()> {
    let mut asked = Vec::new();
    let mut server = match attack.upstream {
        Some(upstream) => Some(TcpStream::connect(upstream).await?),
        None => None,
    };
    for (trigger, answer) in &attack.stages {
        relay(&mut client, server.as_mut(), trigger, &mut asked).await?;
        server = None;
        client.write_all(answer).await?;
    }
    attacks.fetch_add(1, Ordering::Relaxed);
    while !attack.then.is_empty() {
        if !attack.pause.is_zero() {
            let clock = SystemClock::default();
            clock.sleep_until(clock.now() + attack.pause).await;
        }
        client.write_all(&attack.then).await?;
    }
    // Silent from now on, but not deaf: the client must not notice by a full buffer.
    tokio::io::copy(&mut client, &mut tokio::io::sink()).await.map(drop)
}

/// Passes bytes between client and server, if there is one, until the client has sent these.
async fn relay(
    client: &mut TcpStream,
    mut server: Option<&mut TcpStream>,
    until: &[u8],
    asked: &mut Vec<u8>,
) -> io::Result<()> {
    let (mut question, mut answer) = ([0; 4096], [0; 4096]);
    loop {
        let found = asked.windows(until.len().max(1)).position(|window| window == until);
        if until.is_empty() || found.is_some() {
            asked.clear();
            return Ok(());
        }
        let answered = async {
            match &mut server {
                Some(server) => server.read(&mut answer).await,
                None => std::future::pending().await,
            }
        };
        let (from_client, length) = tokio::select! {
            read = client.read(&mut question) => (true, read?),
            read = answered => (false, read?),
        };
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if from_client {
            let bytes = question.get(..length).unwrap_or_default();
            asked.extend(bytes);
            let is_over = asked.windows(until.len()).any(|window| window == until);
            if let (Some(server), false) = (&mut server, is_over) {
                server.write_all(bytes).await?;
            }
        } else {
            client.write_all(answer.get(..length).unwrap_or_default()).await?;
        }
    }
}

/// The most memory of this process since the start of a measurement.
struct Memory {
    before: usize,
}

impl Memory {
    fn start() -> Memory {
        // Resets the peak to what is in use.
        drop(std::fs::write("/proc/self/clear_refs", "5"));
        Memory { before: Memory::peak() }
    }

    fn taken(&self) -> usize {
        Memory::peak().saturating_sub(self.before)
    }

    /// Where there is no such file, nothing is measured.
    fn peak() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = peak.and_then(|peak| peak.trim().split(' ').next()?.parse::<usize>().ok());
        kilobytes.unwrap_or_default() << 10
    }
}

/// Runs an ignored test of this program in a process of its own, and passes on what it prints.
///
/// # Panics
///
/// If the test fails, or the process is aborted.
pub fn in_process_of_its_own(test: &str) {
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new("sh");
    // A client that fails must not take the memory of the machine.
    let child = child.args(["-c", "ulimit -v 4194304 && exec \"$0\" \"$@\""]).arg(program);
    // A backtrace would be counted with the memory of the client.
    let child = child.env("RUST_BACKTRACE", "0").args([
        test,
        "--exact",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    let ended = child.output().expect("a process");
    let [out, errors] = [&ended.stdout, &ended.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    print!("{out}");
    assert!(ended.status.success(), "{test} ended with {}:\n{errors}", ended.status);
    assert!(out.contains("1 passed"), "there is no test `{test}`");
}
