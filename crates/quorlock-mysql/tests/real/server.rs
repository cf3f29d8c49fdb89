//! A MariaDB server for a test: in a temporary folder, on a port chosen by the system.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder, Row};
use quorlock_testkit::eventually;
use tempfile::TempDir;

/// Longer than a server takes to start on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Server {
    folder: TempDir,
    port: u16,
    settings: Vec<String>,
    child: Option<Child>,
}

/// Finds a program.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let beside = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(beside).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Returns why no server can be started, if so.
pub(crate) fn missing() -> Option<String> {
    let missing = ["mariadbd", "mariadb-install-db"].into_iter().find(|name| program(name).is_none())?;
    Some(format!("skipped: there is no `{missing}` here; Debian has it in `mariadb-server`"))
}

/// Root must pass this option.
fn as_whom(command: &mut Command) {
    if fs::metadata("/proc/self").is_ok_and(|of| std::os::unix::fs::MetadataExt::uid(&of) == 0) {
        command.arg("--user=root");
    }
}

impl Server {
    /// Starts a server with a database `locks` and a user `locks`, who has all privileges on it.
    pub(crate) async fn start(settings: &[&str]) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let mut install = Command::new(program("mariadb-install-db").unwrap());
        install.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
        // A starting server deletes leftovers in the temporary folder, including files that other servers
        // use.
        install.arg(format!("--tmpdir={}", folder.path().display()));
        install.args([
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--innodb-log-file-size=8M",
        ]);
        as_whom(&mut install);
        let installed = install.output().unwrap();
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut server = Server { folder, port, settings, child: None };
        server.run().await;
        server.sql("CREATE DATABASE locks").await;
        server.sql("CREATE USER 'locks'@'%' IDENTIFIED BY 'secret'").await;
        server.sql("GRANT ALL ON locks.* TO 'locks'@'%'").await;
        server
    }

    /// Starts the process, and waits until it accepts connections.
    #[expect(clippy::disallowed_methods, reason = "a server of a test starts in the time of the system")]
    pub(crate) async fn run(&mut self) {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let mut command = Command::new(program("mariadbd").unwrap());
        command.arg("--no-defaults").arg(format!("--datadir={}", path("data")));
        command.arg(format!("--tmpdir={}", self.folder.path().display()));
        command.arg(format!("--socket={}", path("socket"))).arg(format!("--pid-file={}", path("pid")));
        command.arg(format!("--log-error={}", path("log"))).arg(format!("--port={}", self.port));
        command.args([
            "--bind-address=127.0.0.1",
            "--innodb-log-file-size=8M",
            "--innodb-buffer-pool-size=32M",
        ]);
        command.args(["--skip-name-resolve", "--performance-schema=OFF"]).args(&self.settings);
        as_whom(&mut command);
        self.child =
            Some(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let log = || fs::read_to_string(path("log")).unwrap_or_default();
        let started = async {
            while self.root().await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let started = tokio::time::timeout(PATIENCE, started).await;
        assert!(started.is_ok(), "no server after {PATIENCE:?}\n{}", log());
    }

    /// Kills the process, as a crash does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Stops or continues the process.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    async fn root(&self) -> Result<Conn, mysql_async::Error> {
        let options =
            OptsBuilder::default().ip_or_hostname("127.0.0.1").tcp_port(self.port).user(Some("root"));
        Conn::new(options.prefer_socket(false)).await
    }

    /// Executes a statement as an administrator.
    pub(crate) async fn sql(&self, statement: impl Into<String>) -> Vec<Row> {
        let mut conn = self.root().await.unwrap();
        let rows = conn.query(statement.into()).await.unwrap();
        conn.disconnect().await.unwrap();
        rows
    }

    /// Opens a connection as an administrator.
    pub(crate) async fn other(&self) -> Conn {
        let mut conn = self.root().await.unwrap();
        conn.query_drop("USE locks").await.unwrap();
        conn
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn url(&self) -> String {
        format!("mysql://locks:secret@127.0.0.1:{}/locks", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until `done` returns `true`.
pub(crate) async fn until(what: &str, done: impl AsyncFnMut() -> bool) {
    eventually(what, PATIENCE, done).await.unwrap();
}

pub(crate) fn other(error: mysql_async::Error) -> io::Error {
    io::Error::other(error)
}
