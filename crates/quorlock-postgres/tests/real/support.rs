//! Real PostgreSQL servers, each in its own folder, which end with the test.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use quorlock::protocol::FencingToken;
use quorlock::{
    node::{Expiry, Node, NodeKind as _, Seams},
    runtime::{Clock as _, SystemClock},
};
use quorlock_postgres::PostgresKind;
use quorlock_testkit::Value;
use quorlock_testkit::contract::Plant;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the folder of PostgreSQL's programs, or why there is none. `QUORLOCK_POSTGRES` selects the folder
/// of another version.
fn programs() -> Result<PathBuf, String> {
    let complete = |folder: &PathBuf| {
        ["initdb", "postgres", "pg_ctl"].iter().all(|program| folder.join(program).exists())
    };
    if let Some(named) = std::env::var_os("QUORLOCK_POSTGRES").map(PathBuf::from) {
        assert!(complete(&named), "QUORLOCK_POSTGRES: no initdb, postgres and pg_ctl in {}", named.display());
        return Ok(named);
    }
    let packaged = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = packaged.map(|entry| entry.path().join("bin")).collect();
    found.sort();
    found.reverse();
    found.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let found = found.into_iter().find(complete);
    found.ok_or_else(|| "PostgreSQL is not installed: `initdb` was not found".to_owned())
}

/// Starts a server, or prints why not and returns `None` if PostgreSQL is not installed.
pub(crate) fn server() -> Option<Server> {
    match programs() {
        Ok(_) => Some(Server::start(&[])),
        Err(why) => {
            // Not `eprintln`, whose output the harness captures while a test passes.
            drop(writeln!(io::stderr(), "skipped: {why}"));
            None
        }
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A command that runs as a user that PostgreSQL accepts.
fn command(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command
}

fn run(command: &mut Command) {
    let ended = command.stdin(Stdio::null()).output().unwrap();
    assert!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
}

/// A server, which ends when dropped.
pub(crate) struct Server {
    folder: TempDir,
    port: u16,
    options: Vec<String>,
    child: Mutex<Option<Child>>,
}

impl Server {
    /// Creates a cluster with these settings and starts it.
    pub(crate) fn start(options: &[&str]) -> Server {
        Server::start_with(Server::prepared(5432, options), &[])
    }

    /// Starts a server that also listens on `localhost`, with these files, which only it may read, next to
    /// its data.
    pub(crate) fn listening(options: &[&str], files: &[(&str, &str)]) -> Server {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let tcp = ["listen_addresses=localhost", &format!("port={port}")];
        Server::start_with(Server::prepared(port, &[&tcp, options].concat()), files)
    }

    fn start_with(server: Server, files: &[(&str, &str)]) -> Server {
        for (name, text) in files {
            let path = server.folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            if is_root() {
                run(Command::new("chown").arg("postgres").arg(&path));
            }
        }
        let data = server.data();
        run(command(&programs().unwrap().join("initdb"))
            .args(["-A", "trust", "-U", "postgres", "--no-sync", "-D"])
            .arg(data)
            .current_dir(server.folder.path()));
        server.launch();
        server
    }

    fn prepared(port: u16, options: &[&str]) -> Server {
        // Not below TMPDIR: the path of a socket is limited in length, and the server's user must be able to
        // enter the folder.
        let folder = tempfile::Builder::new().prefix("quorlock-pg.").tempdir_in("/tmp").unwrap();
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(folder.path()));
        }
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Server { folder, port, options, child: Mutex::default() }
    }

    /// Creates a standby of this server, which is restarted for that.
    pub(crate) fn standby(&self) -> Server {
        let standby = Server::prepared(5432, &[]);
        self.end_by(Signal::INT);
        run(Command::new("cp").arg("-a").arg(self.data()).arg(standby.data()));
        fs::write(standby.data().join("standby.signal"), "").unwrap();
        let before = fs::read_to_string(standby.data().join("postgresql.auto.conf")).unwrap();
        let (folder, port) = (self.folder.path().display(), self.port);
        let settings = format!("{before}primary_conninfo = 'host={folder} port={port} user=postgres'\n");
        fs::write(standby.data().join("postgresql.auto.conf"), settings).unwrap();
        self.launch();
        standby.launch();
        standby
    }

    /// Promotes a standby.
    pub(crate) fn promote(&self) {
        let pg_ctl = programs().unwrap().join("pg_ctl");
        run(command(&pg_ctl).args(["promote", "-w", "-D"]).arg(self.data()).current_dir(self.folder.path()));
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn launch(&self) {
        let clock = SystemClock::default();
        let end = clock.now() + PATIENCE;
        loop {
            self.spawn();
            while clock.now() < end {
                if self.is_ready() {
                    return;
                }
                // Memory left by a crash may still be in use by processes that notice the crash later.
                if self.child.lock().unwrap().as_mut().unwrap().try_wait().unwrap().is_some() {
                    break;
                }
                std::thread::yield_now();
            }
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(clock.now() < end, "the server does not start: {log}");
        }
    }

    /// Reads the PID file: the server's PID, and in the eighth line whether it accepts connections.
    fn is_ready(&self) -> bool {
        let process = self.child.lock().unwrap().as_ref().unwrap().id().to_string();
        let noted = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let lines: Vec<&str> = noted.lines().map(str::trim).collect();
        lines.first() == Some(&&*process) && matches!(lines.get(7), Some(&("ready" | "standby")))
    }

    /// Returns the server's log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    fn spawn(&self) {
        let log = fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let child = command(&programs().unwrap().join("postgres"))
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(self.folder.path())
            .args(["-c", "listen_addresses=", "-c", "shared_buffers=16MB"])
            .args(self.options.iter().flat_map(|option| ["-c", option]))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .current_dir(self.folder.path())
            .spawn()
            .unwrap();
        *self.child.lock().unwrap() = Some(child);
    }

    /// Kills it, as a crash does, and waits until it has ended.
    pub(crate) fn kill(&self) {
        self.end_by(Signal::KILL);
    }

    fn end_by(&self, signal: Signal) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            let _ = kill_process(Pid::from_child(&child), signal);
            child.wait().unwrap();
        }
    }

    /// Restarts it.
    pub(crate) fn start_again(&self) {
        self.launch();
    }

    /// Returns the address of this server, with these options.
    pub(crate) fn url(&self, options: &str) -> String {
        format!("postgres://postgres@/postgres?host={}{options}", self.folder.path().display())
    }

    pub(crate) fn node(&self) -> Arc<dyn Node> {
        node(&self.url(""))
    }

    /// Returns the TCP address of this server, as this user.
    pub(crate) fn tcp_url(&self, user: &str, host: &str, options: &str) -> String {
        format!("postgres://{user}@{host}:{}/postgres{options}", self.port)
    }

    /// Opens another client connection to this server.
    pub(crate) async fn client(&self) -> Client {
        let (folder, port) = (self.folder.path().display(), self.port);
        let config = format!("host={folder} port={port} user=postgres dbname=postgres");
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
        drop(tokio::spawn(connection));
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An immediate shutdown, which also ends its child processes.
        self.end_by(Signal::QUIT);
    }
}

/// Opens a node of this address.
pub(crate) fn node(url: &str) -> Arc<dyn Node> {
    PostgresKind::new().parse(url).unwrap().node(&Seams::default()).unwrap()
}

/// Waits until `holds` returns `true`.
pub(crate) async fn until(what: &str, holds: impl AsyncFnMut() -> bool) {
    quorlock_testkit::eventually(what, PATIENCE, holds).await.unwrap();
}

/// Another client, which changes rows without going through the node.
pub(crate) struct Editor<'a> {
    pub server: &'a Server,
    /// Whether the suite may restart the server.
    pub restarts: bool,
}

/// Returns the key of the lock, given the name of its counter.
fn counted(key: &str) -> Option<&str> {
    let rest = key.strip_prefix("quorlock:fence:")?.strip_suffix(":counter")?;
    rest.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).or_else(|| rest.strip_prefix(':'))
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap()
}

impl Editor<'_> {
    async fn change(
        &self,
        key: &str,
        text: &str,
        parameters: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> io::Result<()> {
        let client = self.server.client().await;
        let ensured = "INSERT INTO quorlock.locks (key) VALUES ($1) ON CONFLICT DO NOTHING";
        client.execute(ensured, &[&key.as_bytes()]).await.map_err(io::Error::other)?;
        let name = key.as_bytes();
        let mut all: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> = vec![&name];
        all.extend(parameters);
        client
            .execute(&format!("UPDATE quorlock.locks SET {text} WHERE key = $1"), &all)
            .await
            .map_err(io::Error::other)?;
        Ok(())
    }
}

impl Plant for Editor<'_> {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let ends = if let Expiry::In(left) = expiry {
                Some(micros(SystemClock::default().wall() + left))
            } else {
                None
            };
            if let Some(key) = counted(key) {
                // A number column stores a negative number for a value that is not a number.
                let current = if let Value::Number(counter) = value {
                    i64::try_from(counter.current).unwrap_or(i64::MAX)
                } else {
                    -1
                };
                return self.change(key, "counter = $2", &[&current]).await;
            }
            let token = if let Value::Text(text) = value { Some(text) } else { None };
            self.change(key, "token = $2, expires = $3, number = NULL", &[&token, &ends]).await
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            if key.starts_with("quorlock:want:") {
                // Simulates the release that notifies this waiter of its turn.
                let client = self.server.client().await;
                let told =
                    "WITH gone AS (DELETE FROM quorlock.waiters WHERE turn_key = $1 RETURNING turn_key)
                            SELECT pg_notify('quorlock', encode(turn_key, 'hex')) FROM gone";
                return client.query(told, &[&key.as_bytes()]).await.map(drop).map_err(io::Error::other);
            }
            match counted(key) {
                Some(key) => self.change(key, "counter = 0, number = NULL", &[]).await,
                None => {
                    self.change(key, "token = NULL, expires = NULL, number = NULL, wanted = 0", &[]).await
                }
            }
        })
    }

    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>> {
        Box::pin(async move {
            let client = self.server.client().await;
            let lock = counted(key).unwrap_or(key).as_bytes();
            let row = client
                .query_opt("SELECT token, expires, counter FROM quorlock.locks WHERE key = $1", &[&lock])
                .await;
            let Some(row) = row.map_err(io::Error::other)? else { return Ok(None) };
            let (token, expires, counter): (Option<Vec<u8>>, Option<i64>, i64) =
                (row.get(0), row.get(1), row.get(2));
            let left = |ends: Duration| Expiry::In(ends.saturating_sub(SystemClock::default().wall()));
            if counted(key).is_some() {
                // A counter is kept for as long as its number says.
                let current = u64::try_from(counter).ok().and_then(FencingToken::new);
                return Ok(current
                    .filter(|current| current.get() > 0)
                    .map(|current| left(current.counter_ends())));
            }
            let ends = expires.map(|ends| Duration::from_micros(u64::try_from(ends).unwrap()));
            Ok(token.map(|_| ends.map_or(Expiry::Never, left)))
        })
    }

    fn restart(&self) -> BoxFuture<'_, io::Result<()>> {
        if !self.restarts {
            return Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into())));
        }
        self.server.kill();
        self.server.start_again();
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A proxy between a node and a server: an address that leads to the primary, a failing network, or a pooler.
pub(crate) struct Gate {
    folder: TempDir,
    inner: Arc<Mutex<Way>>,
}

struct Way {
    to: PathBuf,
    /// Greets with this PID instead of the server's.
    greeting: Option<i32>,
    carried: Vec<tokio::task::AbortHandle>,
}

impl Gate {
    pub(crate) fn open(server: &Server) -> Gate {
        let folder = tempfile::Builder::new().prefix("quorlock-gate.").tempdir_in("/tmp").unwrap();
        let listener = tokio::net::UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let way = Way { to: server.folder.path().join(".s.PGSQL.5432"), greeting: None, carried: Vec::new() };
        let inner = Arc::new(Mutex::new(way));
        let shared = Arc::clone(&inner);
        drop(tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (to, greeting) = {
                    let way = shared.lock().unwrap();
                    (way.to.clone(), way.greeting)
                };
                let carrying = tokio::spawn(async move { drop(carry(client, to, greeting).await) });
                shared.lock().unwrap().carried.push(carrying.abort_handle());
            }
        }));
        Gate { folder, inner }
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@/postgres?host={}&connections=1", self.folder.path().display())
    }

    /// Ends all connections on the client's side. The server does not notice yet, because it is busy.
    pub(crate) fn cut(&self) {
        self.inner.lock().unwrap().carried.drain(..).for_each(|carried| carried.abort());
    }

    pub(crate) fn lead_to(&self, server: &Server) {
        self.inner.lock().unwrap().to = server.folder.path().join(".s.PGSQL.5432");
        self.cut();
    }

    pub(crate) fn greet_as(&self, pid: i32) {
        self.inner.lock().unwrap().greeting = Some(pid);
    }
}

async fn carry(mut client: tokio::net::UnixStream, to: PathBuf, greeting: Option<i32>) -> io::Result<()> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let mut server = tokio::net::UnixStream::connect(to).await?;
    let Some(pid) = greeting else {
        return tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop);
    };
    // The startup message, and the answers up to the greeting.
    let length = client.read_u32().await?;
    let mut startup = vec![0; usize::try_from(length).unwrap() - 4];
    client.read_exact(&mut startup).await?;
    server.write_u32(length).await?;
    server.write_all(&startup).await?;
    loop {
        let (kind, length) = (server.read_u8().await?, server.read_u32().await?);
        let mut body = vec![0; usize::try_from(length).unwrap() - 4];
        server.read_exact(&mut body).await?;
        if kind == b'K' {
            body[..4].copy_from_slice(&pid.to_be_bytes());
        }
        client.write_u8(kind).await?;
        client.write_u32(length).await?;
        client.write_all(&body).await?;
        if kind == b'Z' {
            return tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop);
        }
    }
}
