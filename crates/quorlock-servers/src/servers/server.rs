//! One server, and its faults.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::MutexGuard;
use std::time::Duration;

use quorlock::node::Expiry;
use quorlock::runtime::{Clock, Mutex, SystemClock};
use tempfile::TempDir;

use super::Setup;
use super::kind::Kind;
use super::port::Port;
use super::process::{How, LOG, Process};
use super::wire::RedisClient;
use crate::folder;
use crate::resp::Resp;
use crate::wait::{pause, within};

/// An independent master on its own port, with its own folder.
///
/// Faults take `&self`, so that a test can cause them while other tasks use the server. They affect only
/// processes that were started here.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    durable: bool,
    password: Option<String>,
    environment: Vec<(String, OsString)>,
    options: Vec<String>,
    sentinel: String,
    port: Port,
    #[expect(dead_code, reason = "it works by being kept")]
    bus: Option<Port>,
    folder: TempDir,
    process: Mutex<Option<Process>>,
}

/// The file with the cluster state of a member.
const MEMBERSHIP: &str = "nodes.conf";
/// How long a server may take to answer after its start. A real one takes 20 ms, more on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(10);
/// The timeout of [`Server::command`].
const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// Properties.
impl Server {
    /// Returns `redis://:PASSWORD@127.0.0.1:PORT`, or without the password if there is none.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}{}", self.login(), self.address())
    }

    /// Returns [`url`](Server::url) without the password, as messages show it.
    #[must_use]
    pub fn bare_url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Returns [`url`](Server::url) with another `USER:PASSWORD`.
    #[must_use]
    pub fn url_as(&self, login: &str) -> String {
        format!("redis://{login}@{}", self.address())
    }

    /// Returns `:PASSWORD@`, or nothing.
    pub(crate) fn login(&self) -> String {
        self.password().map_or_else(String::new, |password| format!(":{password}@"))
    }

    /// Returns its password, if it has one.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Returns its port on 127.0.0.1, which stays the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns its address, for a [`Proxy`](crate::Proxy) in front of it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Returns its PID, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(Process::pid)
    }

    /// Returns the path of its log, which covers all its runs and is deleted with the server.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.folder.path().join(LOG)
    }

    /// Returns the kind of server.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.kind
    }
}

/// Faults.
impl Server {
    /// Sends SIGKILL, and waits for the end. Connections are reset and nothing more is written. Does nothing
    /// if it is not running.
    pub fn kill(&self) {
        drop(self.process().take());
    }

    /// Sends SIGSTOP: the kernel still accepts connections and bytes for it, and it reads them after
    /// [`thaw`](Server::thaw).
    ///
    /// # Errors
    ///
    /// If the server does not run, or cannot be stopped: see [`Kind::can_freeze`].
    pub fn freeze(&self) -> io::Result<()> {
        self.process().as_ref().ok_or_else(not_running)?.freeze()
    }

    /// Sends SIGCONT.
    ///
    /// # Errors
    ///
    /// As [`freeze`](Server::freeze).
    pub fn thaw(&self) -> io::Result<()> {
        self.process().as_ref().ok_or_else(not_running)?.thaw()
    }

    /// Kills it if it runs, and starts it empty on the same port: a master that has lost its memory. A member
    /// of a cluster remains one.
    ///
    /// # Errors
    ///
    /// If it does not answer in time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the server dead, or started and not yet answering.
    pub async fn restart_empty(&self) -> io::Result<()> {
        self.kill();
        for entry in fs::read_dir(self.folder.path())? {
            let path = entry?.path();
            if path == self.log() || path.ends_with(MEMBERSHIP) {
                continue;
            }
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
        self.launch().await
    }

    /// Restarts it on the same port with its keys. A frozen server is thawed first.
    ///
    /// A durable server is killed, and reads its own files. The keys of any other are copied before it is
    /// killed; locks are strings, and nothing else is copied. If it was killed before, it has no keys, unless
    /// it is durable.
    ///
    /// # Errors
    ///
    /// If the keys cannot be copied, or it does not answer in time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the server dead, or without its keys.
    pub async fn restart_with_data(&self) -> io::Result<()> {
        if self.durable {
            self.kill();
            return self.launch().await;
        }
        if self.kind.can_freeze() {
            self.thaw()?;
        }
        let copied = SystemClock::default().now();
        let kept = self.strings().await?;
        self.kill();
        self.launch().await?;
        for (key, value, expiry) in kept {
            let left = match expiry {
                Expiry::In(left) => left.saturating_sub(SystemClock::default().now().since(copied)),
                Expiry::Never => Duration::MAX,
            };
            if left.as_millis() > 0 {
                let expiry = if expiry == Expiry::Never { expiry } else { Expiry::In(left) };
                self.set(&key, &value, expiry).await?;
            }
        }
        Ok(())
    }
}

/// Inspection, without going through the library.
impl Server {
    /// Sends one command over a new connection: `server.command(&["PTTL", "orders/42"])`.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, or does not answer within five seconds. An error from the server is
    /// an answer: [`Resp::Error`].
    pub async fn command(&self, words: &[&str]) -> io::Result<Resp> {
        self.command_of_bytes(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>()).await
    }

    /// Sends one command whose words need not be text, like [`command`](Server::command).
    ///
    /// # Errors
    ///
    /// As [`command`](Server::command).
    pub async fn command_of_bytes(&self, words: &[&[u8]]) -> io::Result<Resp> {
        let what = format!("the answer of {} on port {}", self.kind, self.port());
        let answer =
            async { RedisClient::connect(self.port.address(), self.password()).await?.ask(words).await };
        within(&what, COMMAND_LIMIT, answer).await
    }

    async fn strings(&self) -> io::Result<Vec<(Vec<u8>, Vec<u8>, Expiry)>> {
        let mut strings = Vec::new();
        let Resp::List(keys) = self.command(&["KEYS", "*"]).await? else { return Ok(strings) };
        for key in keys {
            let Resp::Text(key) = key else { continue };
            let Resp::Text(value) = self.command_of_bytes(&[b"GET", &key]).await? else { continue };
            let Resp::Number(millis) = self.command_of_bytes(&[b"PTTL", &key]).await? else { continue };
            match u64::try_from(millis) {
                Ok(millis) => strings.push((key, value, Expiry::In(Duration::from_millis(millis)))),
                Err(_) if millis == -1 => strings.push((key, value, Expiry::Never)),
                // It has just expired.
                Err(_) => {}
            }
        }
        Ok(strings)
    }

    async fn set(&self, key: &[u8], value: &[u8], expiry: Expiry) -> io::Result<()> {
        let answer = match expiry {
            Expiry::Never => self.command_of_bytes(&[b"SET", key, value]).await?,
            Expiry::In(left) => {
                let millis = left.as_millis().to_string();
                self.command_of_bytes(&[b"SET", key, value, b"PX", millis.as_bytes()]).await?
            }
        };
        refuse_error(answer)
    }
}

/// Starting.
impl Server {
    pub(super) async fn start(kind: Kind, password: Option<String>, setup: Setup) -> io::Result<Server> {
        let folder = folder::private("quorlock-", &std::env::temp_dir())?;
        let Setup { durable, environment, options, sentinel, .. } = setup;
        let (port, bus) = if options.iter().any(|option| option == "--cluster-enabled") {
            let (port, bus) = Port::reserve_two()?;
            (port, Some(bus))
        } else {
            (Port::reserve(u16::MAX)?, None)
        };
        let process = Mutex::new(None);
        let server =
            Server { kind, durable, password, environment, options, sentinel, port, bus, folder, process };
        server.launch().await?;
        Ok(server)
    }

    /// Starts the process and waits until it, and no other server on its port, answers. If it ends instead,
    /// as it does when another program has taken the port, it is restarted.
    async fn launch(&self) -> io::Result<()> {
        let what = format!("{} to answer on port {}", self.kind, self.port());
        let ready = async {
            loop {
                match self.ensure_started() {
                    Ok(()) if self.answers().await => return Ok(()),
                    Ok(()) => {}
                    // An ended task frees its port when the runtime drops it.
                    Err(busy) if busy.kind() == io::ErrorKind::AddrInUse => {}
                    Err(error) => return Err(error),
                }
                pause().await;
            }
        };
        within(&what, START_LIMIT, ready).await.map_err(|error| {
            self.kill();
            io::Error::new(error.kind(), format!("{error}; its last words: {}", self.last_words()))
        })
    }

    fn ensure_started(&self) -> io::Result<()> {
        let mut process = self.process();
        if process.as_mut().is_none_or(Process::has_ended) {
            let how = How {
                durable: self.durable,
                password: self.password.as_deref(),
                environment: &self.environment,
                options: &self.options,
                sentinel: &self.sentinel,
            };
            *process = Some(Process::start(&self.kind, &self.port, self.folder.path(), &how)?);
        }
        Ok(())
    }

    async fn answers(&self) -> bool {
        let Ok(Resp::Status(pong)) = self.command(&["PING"]).await else { return false };
        let Ok(info) = self.command(&["INFO", "server"]).await else { return false };
        let ours = self.pid().is_some_and(|pid| info.to_string().contains(&format!("process_id:{pid}\r\n")));
        pong == "PONG" && ours
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let words = log.lines().rev().take(3).collect::<Vec<_>>().join(" / ");
        if words.is_empty() { "none".to_owned() } else { words }
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock()
    }
}

fn refuse_error(answer: Resp) -> io::Result<()> {
    if let Resp::Error(message) = answer { Err(io::Error::other(message)) } else { Ok(()) }
}

fn not_running() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "this server does not run")
}
