//! One database server, and its faults.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use quorlock::runtime::Mutex;
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::disk::Disk;
use super::processes::{Running, run, succeed};
use super::template::{INNODB_LOG, MYSQL_LOG, Template};
use super::{Engine, Make, is_root};
use crate::folder;
use crate::servers::Port;
use crate::wait::{patience, pause, within};

/// A database server on its own port, with its own folder, that ends when this is dropped.
///
/// Faults take `&self`, so that a test can cause them while other tasks use the server. They affect only
/// processes that were started here.
#[derive(Debug)]
pub struct Database {
    engine: Engine,
    port: Port,
    // Dropped in this order: stop the server, unmount the disk, delete the folder.
    running: Mutex<Option<Running>>,
    disk: Option<Disk>,
    folder: TempDir,
    /// Kept while this lives, so that the next server can be copied from it too.
    template: Mutex<Option<Arc<Template>>>,
}

/// How long a server may take to answer after its start: a crash may leave much to recover.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The timeout of one check whether it answers.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// The folder with its data, over which a disk may be mounted.
const PLACE: &str = "disk";
const LOG: &str = "server.log";
/// The file with what MariaDB or MySQL executes at each start.
const SET_UP_FILE: &str = "set-up.sql";
/// The file with a dump.
const DUMP: &str = "dump.sql";
/// The file that has the password before the database has.
const PASSWORD: &str = "password";
/// What MariaDB or MySQL executes at each start. Its administrator has no password, and so no port either: only a socket, in the
/// folder of the server.
const SET_UP: &str = "\
    CREATE DATABASE IF NOT EXISTS locks;\n\
    CREATE USER IF NOT EXISTS 'locks'@'%' IDENTIFIED BY 'PASSWORD';\n\
    GRANT ALL ON locks.* TO 'locks'@'%';\n\
    DROP USER IF EXISTS root@'127.0.0.1', root@'::1';\n";
/// What MySQL executes besides: only with this right its user sees that it is no replica.
const MYSQL_SET_UP: &str = "GRANT REPLICATION CLIENT ON *.* TO 'locks'@'%';\n";

/// Properties.
impl Database {
    /// Returns the kind of server.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns its node URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.engine.url(self.address())
    }

    /// Returns its address on the loopback interface, which stays the same over restarts.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Returns the PID of the process that was started, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.running().as_ref().map(Running::pid)
    }

    /// Returns the path of its log, which covers all its runs and is deleted with the server.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.folder.path().join(LOG)
    }

    /// Returns its folder, which only its user can enter and which is deleted with it. The servers also listen on a
    /// Unix socket in it, where they ask administrators for no password: that of PostgreSQL is named after the port,
    /// that of MariaDB and MySQL is `socket`.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Faults.
impl Database {
    /// Sends SIGKILL to all its processes, as when its machine stops, and waits for the end. Does nothing if it is not running.
    pub fn kill(&self) {
        if let Some(mut running) = self.running().take() {
            running.kill();
        }
    }

    /// Sends SIGSTOP to all its processes, and waits until they have stopped: the kernel still accepts
    /// connections and bytes for it, and it reads them after [`thaw`](Database::thaw).
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn freeze(&self) -> io::Result<()> {
        self.running().as_ref().ok_or_else(not_running)?.freeze()
    }

    /// Sends SIGCONT.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn thaw(&self) -> io::Result<()> {
        self.running().as_ref().ok_or_else(not_running)?.thaw()
    }

    /// Sends SIGSTOP to the processes that serve the current clients, and waits until they have stopped. The
    /// server itself keeps running, and serves new clients.
    ///
    /// # Errors
    ///
    /// If it does not run, has no such processes, or this is not Linux.
    pub fn stop_backends(&self) -> io::Result<()> {
        self.has_backends()?;
        self.running().as_ref().ok_or_else(not_running)?.stop_backends()
    }

    /// Sends SIGCONT to them: they execute the requests that they have received.
    ///
    /// # Errors
    ///
    /// As [`stop_backends`](Database::stop_backends).
    pub fn continue_backends(&self) -> io::Result<()> {
        self.has_backends()?;
        self.running().as_ref().ok_or_else(not_running)?.continue_backends()
    }

    /// Sends SIGSTOP to the process with this PID, which serves a client, and waits until it has stopped.
    ///
    /// # Errors
    ///
    /// As [`stop_backends`](Database::stop_backends), and if it is not a process of this server.
    pub fn stop_backend(&self, pid: i32) -> io::Result<()> {
        self.has_backends()?;
        self.running().as_ref().ok_or_else(not_running)?.stop_backend(pid)
    }

    /// Sends SIGCONT to it.
    ///
    /// # Errors
    ///
    /// As [`stop_backend`](Database::stop_backend).
    pub fn continue_backend(&self, pid: i32) -> io::Result<()> {
        self.has_backends()?;
        self.running().as_ref().ok_or_else(not_running)?.continue_backend(pid)
    }

    fn has_backends(&self) -> io::Result<()> {
        if self.engine.is_postgres() && cfg!(target_os = "linux") {
            return Ok(());
        }
        let why = "only PostgreSQL on Linux has processes for its clients that are found here";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    /// Kills it if it runs, and starts it on the same port with its data.
    ///
    /// # Errors
    ///
    /// If it does not answer within a minute.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the server dead, or started and not yet answering.
    pub async fn restart_with_data(&self) -> io::Result<()> {
        self.kill();
        self.launch().await
    }

    /// Kills it if it runs, and starts an empty one on the same port.
    ///
    /// # Errors
    ///
    /// As [`restart_with_data`](Database::restart_with_data), and if its data cannot be deleted.
    ///
    /// # Cancel safety
    ///
    /// As [`restart_with_data`](Database::restart_with_data).
    pub async fn restart_empty(&self) -> io::Result<()> {
        self.kill();
        // Processes that survive a crash for a moment may still write.
        within("the data to be deleted", START_LIMIT, async {
            while self.data().exists() && fs::remove_dir_all(self.data()).is_err() {
                pause().await;
            }
            Ok(())
        })
        .await?;
        self.set_up().await?;
        self.launch().await
    }

    /// Fills its separate disk until nothing more fits.
    ///
    /// # Errors
    ///
    /// If it has none: see [`Engine::start_on_small_disk`].
    pub fn fill_disk(&self) -> io::Result<()> {
        self.disk.as_ref().ok_or_else(no_disk)?.fill()
    }

    /// Frees the disk. A server that stopped because of the full disk is restarted, as is one of PostgreSQL that has not
    /// stopped yet: it does when it next writes its log.
    ///
    /// # Errors
    ///
    /// If it has no disk for itself, or does not answer within a minute.
    ///
    /// # Cancel safety
    ///
    /// As [`restart_with_data`](Database::restart_with_data).
    pub async fn free_disk(&self) -> io::Result<()> {
        self.disk.as_ref().ok_or_else(no_disk)?.free()?;
        if self.engine.is_postgres() { self.restart_with_data().await } else { self.launch().await }
    }
}

/// Dumps.
impl Database {
    /// Dumps the lock tables with the server's own tool, into a file of its folder.
    ///
    /// # Errors
    ///
    /// If there is no such tool, or it fails; [`Unsupported`](io::ErrorKind::Unsupported) if it is older than the server.
    pub async fn dump(&self) -> io::Result<()> {
        let file = self.folder().join(DUMP);
        let mut dumping = match self.engine.make {
            Make::Postgres => {
                let mut dumping = self.console("pg_dump");
                dumping.args(["--schema=quorlock", "--clean", "--if-exists", "-f"]).arg(file).arg("postgres");
                dumping
            }
            Make::MariaDb | Make::MySql => {
                let program = if self.engine.is_mysql() { "mysqldump" } else { "mariadb-dump" };
                let mut dumping = self.console(program);
                if self.engine.is_mysql() {
                    // Otherwise only another server takes the dump.
                    dumping.arg("--set-gtid-purged=OFF");
                }
                dumping.arg(format!("--result-file={}", file.display())).arg("locks");
                dumping
            }
        };
        dumping.current_dir(self.folder());
        run(dumping).await.map_err(|error| {
            let older = error.to_string().contains("server version mismatch");
            if older { io::Error::new(io::ErrorKind::Unsupported, error) } else { error }
        })
    }

    /// Replaces the lock tables by those of the last [`dump`](Database::dump), as an operator does.
    ///
    /// # Errors
    ///
    /// If there is no dump, or it cannot be restored.
    pub async fn restore(&self) -> io::Result<()> {
        match run(self.restoring()?).await {
            // A connected client that misses a table makes it, also between the dump's `DROP` and `CREATE`.
            Err(error) if error.to_string().contains("already exists") => run(self.restoring()?).await,
            restored => restored,
        }
    }

    fn restoring(&self) -> io::Result<Command> {
        let file = self.folder().join(DUMP);
        let mut restoring = match self.engine.make {
            Make::Postgres => {
                let mut restoring = self.console("psql");
                restoring.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"]).arg(file).arg("postgres");
                restoring
            }
            Make::MariaDb | Make::MySql => {
                let program = if self.engine.is_mysql() { "mysql" } else { "mariadb" };
                let mut restoring = self.console(program);
                // The client of MySQL 9.7 does not know `source` unless asked to.
                restoring.arg("locks").stdin(File::open(file)?);
                restoring
            }
        };
        restoring.current_dir(self.folder());
        Ok(restoring)
    }

    /// Stops it, copies its data as they are on the disk, and starts both: it on its port, the copy on another.
    ///
    /// # Errors
    ///
    /// If the data cannot be copied, or one of them does not answer within a minute.
    pub async fn copy(&self) -> io::Result<Database> {
        let copy = Database::prepared(&self.engine, None)?;
        self.kill();
        let mut copying = Command::new("cp");
        copying.arg("-a").arg(self.data()).arg(copy.data());
        run(copying).await?;
        if !self.engine.is_postgres() {
            fs::copy(self.folder().join(SET_UP_FILE), copy.folder().join(SET_UP_FILE))?;
        }
        self.launch().await?;
        copy.launch().await?;
        Ok(copy)
    }

    /// Returns a client program that connects as the administrator.
    fn console(&self, program: &str) -> Command {
        let mut command = self.engine.command(program);
        match self.engine.make {
            Make::Postgres => {
                let port = self.port.number().to_string();
                command.arg("-h").arg(self.folder()).args(["-p", &port, "-U", "postgres"]);
            }
            Make::MariaDb | Make::MySql => {
                let socket = self.folder().join("socket");
                command.arg("--no-defaults").arg(format!("--socket={}", socket.display())).arg("--user=root");
            }
        }
        command
    }
}

/// Replication.
impl Database {
    /// Starts a standby that follows this server asynchronously. It connects to `from`: this server's
    /// address, or that of a [`Proxy`](crate::Proxy) in front of it. Without `pg_basebackup` this server is
    /// restarted for it.
    ///
    /// # Errors
    ///
    /// If it is not PostgreSQL, the data cannot be copied, or the standby does not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends what has started.
    pub async fn standby(&self, from: SocketAddr) -> io::Result<Database> {
        if !self.engine.is_postgres() {
            let why = "only a PostgreSQL server gets a standby here";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let standby = Database::prepared(&self.engine, None)?;
        if self.engine.programs.join("pg_basebackup").is_file() {
            let mut copying = self.engine.command("pg_basebackup");
            copying.args(["-U", "postgres", "-R", "-X", "stream", "--checkpoint=fast", "--no-sync", "-h"]);
            copying.arg(from.ip().to_string()).arg("-p").arg(from.port().to_string());
            copying.arg("-D").arg(standby.data()).current_dir(standby.folder());
            // It stores the password for the standby.
            copying.env("PGPASSWORD", self.engine.password());
            run(copying).await?;
        } else {
            // Not every package for other programs contains it.
            if let Some(mut running) = self.running().take() {
                running.shut_down();
            }
            let mut copying = Command::new("cp");
            copying.arg("-a").arg(self.data()).arg(standby.data());
            run(copying).await?;
            let (host, port) = (from.ip(), from.port());
            let password = self.engine.password();
            let settings =
                format!("primary_conninfo = 'host={host} port={port} user=postgres password={password}'\n");
            standby.write("postgresql.auto.conf", &settings)?;
            standby.write("standby.signal", "")?;
            self.launch().await?;
        }
        standby.launch().await?;
        Ok(standby)
    }

    /// Promotes a standby, with the data that it has received so far.
    ///
    /// # Errors
    ///
    /// If it is not a standby, or does not become a primary within a minute.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves it open whether the standby is promoted.
    pub async fn promote(&self) -> io::Result<()> {
        let mut promoting = self.engine.command("pg_ctl");
        promoting.args(["promote", "-w", "-t", &patience().as_secs().to_string(), "-D"]);
        promoting.arg(self.data()).current_dir(self.folder.path());
        run(promoting).await
    }
}

/// Starting.
impl Database {
    pub(super) async fn start(engine: &Engine, megabytes: Option<u32>) -> io::Result<Database> {
        let database = Database::prepared(engine, megabytes)?;
        database.set_up().await?;
        database.launch().await?;
        Ok(database)
    }

    /// Prepares a folder and a port, both empty.
    fn prepared(engine: &Engine, megabytes: Option<u32>) -> io::Result<Database> {
        let folder = folder::private("quorlock-database.", Path::new(super::PLACE))?;
        // The log is not on the small disk, so that it can report that the disk is full.
        let place = folder.path().join(PLACE);
        fs::create_dir(&place)?;
        let disk = megabytes.map(|megabytes| Disk::mount(&place, megabytes)).transpose()?;
        if engine.is_postgres() && is_root() {
            let mut giving = Command::new("chown");
            succeed(giving.arg("postgres").arg(folder.path()).arg(&place))?;
        }
        let port = Port::reserve(u16::MAX)?;
        let (running, template) = (Mutex::default(), Mutex::default());
        Ok(Database { engine: engine.clone(), port, running, disk, folder, template })
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join(PLACE).join("data")
    }

    /// Creates the files of a new server.
    async fn set_up(&self) -> io::Result<()> {
        match self.engine.make {
            Make::Postgres => {
                let mut command = self.engine.command("initdb");
                // The folder keeps others from the Unix socket, and from the password.
                let password = self.folder().join(PASSWORD);
                fs::write(&password, self.engine.password())?;
                fs::set_permissions(&password, fs::Permissions::from_mode(0o644))?;
                command.args([
                    "--auth-local=trust",
                    "--auth-host=scram-sha-256",
                    "-U",
                    "postgres",
                    "--no-sync",
                ]);
                command.arg("--pwfile").arg(password).arg("-D").arg(self.data());
                if self.disk.is_some() {
                    // Small WAL segments: a full disk is noticed when the next one is created.
                    command.arg("--wal-segsize=1");
                }
                command.current_dir(self.folder());
                run(command).await?;
            }
            Make::MariaDb | Make::MySql => {
                let mut set_up = SET_UP.replace("PASSWORD", self.engine.password());
                if self.engine.is_mysql() {
                    set_up.push_str(MYSQL_SET_UP);
                }
                fs::write(self.folder().join(SET_UP_FILE), set_up)?;
                let template = Template::of(&self.engine).await?;
                template.copy_to(&self.data()).await?;
                *self.template.lock() = Some(template);
            }
        }
        self.engine.files.iter().try_for_each(|(name, text)| self.write(name, text))
    }

    /// Writes a file that only the server may read.
    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.data().join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        if self.engine.is_postgres() && is_root() {
            succeed(Command::new("chown").arg("postgres").arg(path))?;
        }
        Ok(())
    }

    /// Starts the process, if it does not run, and waits until it answers. If it ends instead, it is
    /// restarted: memory left by a crash may still be in use by processes that notice the crash later.
    async fn launch(&self) -> io::Result<()> {
        let what = format!("{} to answer on port {}", self.engine, self.port.number());
        let ready = async {
            loop {
                self.ensure_started()?;
                if self.answers().await {
                    return Ok(());
                }
                pause().await;
            }
        };
        within(&what, START_LIMIT, ready).await.map_err(|error| {
            let log = fs::read_to_string(self.log()).unwrap_or_default();
            let words = log.lines().rev().take(3).collect::<Vec<_>>().join(" / ");
            io::Error::new(error.kind(), format!("{error}; its last words: {words}"))
        })
    }

    fn ensure_started(&self) -> io::Result<()> {
        let mut running = self.running();
        if running.as_mut().is_none_or(Running::has_ended) {
            let log = File::options().create(true).append(true).open(self.log())?;
            let mut command = self.server();
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            command.current_dir(self.folder.path());
            *running = Some(Running::start(&mut command, self.engine.is_postgres())?);
        }
        Ok(())
    }

    fn server(&self) -> Command {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let mut command = self.engine.command(self.engine.make.server());
        let port = self.port.number();
        match self.engine.make {
            Make::Postgres => {
                command.arg("-D").arg(self.data()).arg("-p").arg(port.to_string());
                command.args(["-c", "listen_addresses=127.0.0.1", "-k"]).arg(self.folder());
                command.args(["-c", "shared_buffers=16MB"]);
                if self.disk.is_some() {
                    command.args(["-c", "min_wal_size=2MB"]);
                } else {
                    // One that is killed would leave a megabyte in the system's shared memory.
                    command.args(["-c", "dynamic_shared_memory_type=mmap"]);
                }
                // Otherwise a standby that has lost its primary takes five seconds to notice its promotion.
                command.args(["-c", "wal_retrieve_retry_interval=100ms"]);
                command.args(self.engine.settings.iter().flat_map(|setting| ["-c", setting]));
            }
            Make::MariaDb | Make::MySql => {
                command.arg("--no-defaults").arg(format!("--datadir={}", self.data().display()));
                command.arg(format!("--tmpdir={}", self.folder.path().display()));
                command.arg(format!("--socket={}", path("socket")));
                command.arg(format!("--pid-file={}", path("pid"))).arg(format!("--port={port}"));
                command.arg(format!("--init-file={}", path(SET_UP_FILE)));
                // Nor may anyone who got in write files elsewhere.
                command.arg(format!("--secure-file-priv={}", self.folder.path().display()));
                command.args(["--bind-address=127.0.0.1", "--innodb-buffer-pool-size=32M"]);
                command.args(["--skip-name-resolve", "--performance-schema=OFF"]);
                if self.engine.is_mysql() {
                    // Its other protocol would have a port that is the same for all servers.
                    command.args([MYSQL_LOG, "--mysqlx=OFF"]);
                } else {
                    command.arg(INNODB_LOG);
                }
                command.args(&self.engine.settings);
                if is_root() {
                    command.arg("--user=root");
                }
            }
        }
        command
    }

    /// Whether it accepts clients.
    async fn answers(&self) -> bool {
        match self.engine.make {
            Make::Postgres => self.pid().is_some_and(|pid| self.notes_that_it_is_ready(pid)),
            Make::MariaDb | Make::MySql => within("the greeting", ANSWER_LIMIT, async {
                let mut greeting = [0; 5];
                TcpStream::connect(self.address()).await?.read_exact(&mut greeting).await?;
                Ok(greeting.ends_with(&[PROTOCOL]))
            })
            .await
            .unwrap_or(false),
        }
    }

    /// Reads the PID file of PostgreSQL: the PID, and in the eighth line whether it accepts clients. A client
    /// could be refused for other reasons, such as the rules for logins.
    fn notes_that_it_is_ready(&self, pid: u32) -> bool {
        let notes = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = notes.lines().map(str::trim);
        lines.next() == Some(&*pid.to_string()) && lines.nth(6) == Some("ready")
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock()
    }
}

/// The version in the first packet of a MariaDB or MySQL server that accepts clients; otherwise the packet is an error.
const PROTOCOL: u8 = 10;

fn not_running() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "this server does not run")
}

fn no_disk() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this server has no disk for itself")
}
