//! Servers of other kinds on this machine: PostgreSQL, MariaDB and MySQL, etcd, ZooKeeper.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use quorlock::runtime::{Entropy as _, SystemEntropy};

mod database;
#[doc(hidden)]
mod disk;
mod etcd;
mod processes;
mod template;
mod zookeeper;

pub use database::Database;
pub use disk::Disk;
pub use etcd::{EtcdCluster, EtcdPrograms};
pub use zookeeper::{ZooKeeperCluster, ZooKeeperPrograms};

/// A database server that this machine can run.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// match quorlock_servers::Engine::postgres() {
///     Ok(engine) => {
///         let database = engine.start().await?;
///         println!("{engine} at {}", database.url());
///     }
///     Err(reason) => println!("skipped: {reason}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Engine {
    make: Make,
    version: String,
    programs: PathBuf,
    settings: Vec<String>,
    files: Vec<(String, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Make {
    Postgres,
    MariaDb,
    MySql,
}

impl Engine {
    /// Finds the newest installed PostgreSQL, or the one whose programs are in the folder that
    /// `QUORLOCK_POSTGRES` names. Its servers run as the user `postgres` if this program runs as root, which
    /// PostgreSQL refuses.
    ///
    /// # Errors
    ///
    /// If `initdb` and the programs next to it are not found; or as root, if there is no user `postgres` or
    /// no program `setpriv`.
    pub fn postgres() -> io::Result<Engine> {
        let mut places: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
            .collect();
        places.sort();
        places.reverse();
        let mut programs = vec!["initdb", "postgres", "pg_ctl", "pg_basebackup"];
        if let Some(named) = std::env::var_os("QUORLOCK_POSTGRES").map(PathBuf::from) {
            // Not every package for other programs contains the one that copies a server.
            programs.pop();
            if let Some(lacking) = programs.iter().find(|program| !named.join(program).is_file()) {
                return Err(missing(&format!("QUORLOCK_POSTGRES={}: no `{lacking}`", named.display())));
            }
            places = vec![named];
        }
        let engine = Engine::found(Make::Postgres, places, &programs, "PostgreSQL")?;
        if is_root() {
            let tried = engine.command("postgres").arg("--version").output();
            if !tried.is_ok_and(|tried| tried.status.success()) {
                return Err(missing(
                    "PostgreSQL does not run as root, and `setpriv --reuid=postgres` does not work here",
                ));
            }
        }
        Ok(engine)
    }

    /// Finds MariaDB, or the MySQL or MariaDB whose programs are in the folder that `QUORLOCK_MYSQL` names. Which of both
    /// `mysqld` is, its version says.
    ///
    /// # Errors
    ///
    /// If `mariadbd` or `mariadb-install-db` is not found; of MySQL, `mysqld`.
    pub fn mariadb() -> io::Result<Engine> {
        let Some(named) = std::env::var_os("QUORLOCK_MYSQL").map(PathBuf::from) else {
            let places = ["/usr/bin", "/usr/sbin", "/usr/local/sbin"].map(PathBuf::from).to_vec();
            return Engine::found(Make::MariaDb, places, &["mariadbd", "mariadb-install-db"], "MariaDB");
        };
        let is_mysql = named.join("mysqld").is_file() && !version(&named.join("mysqld"))?.contains("MariaDB");
        let make = if is_mysql { Make::MySql } else { Make::MariaDb };
        let installer = (!is_mysql).then_some("mariadb-install-db");
        if let Some(lacking) =
            [make.server()].into_iter().chain(installer).find(|program| !named.join(program).is_file())
        {
            return Err(missing(&format!("QUORLOCK_MYSQL={}: no `{lacking}`", named.display())));
        }
        Engine::found(make, vec![named], &[make.server()], make.name())
    }

    /// The programs need not be in one folder: the server program's version counts.
    fn found(make: Make, first: Vec<PathBuf>, programs: &[&str], name: &str) -> io::Result<Engine> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places: Vec<PathBuf> = first.into_iter().chain(std::env::split_paths(&path)).collect();
        let complete = |place: &&PathBuf| programs.iter().all(|program| place.join(program).is_file());
        let Some(place) = places.iter().find(complete).or_else(|| {
            // The administrator's programs may be in another folder.
            let scattered = |program: &&str| places.iter().any(|place| place.join(program).is_file());
            let server = |place: &&PathBuf| place.join(make.server()).is_file();
            programs.iter().all(scattered).then(|| places.iter().find(server)).flatten()
        }) else {
            let programs = programs.join("`, `");
            return Err(missing(&format!("{name} is not installed: `{programs}` were not found")));
        };
        let output = version(&place.join(make.server()))?;
        let is_version = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
        let version = output.split_whitespace().find(is_version).unwrap_or("of an unknown version");
        let version = version.trim_end_matches(',').to_owned();
        Ok(Engine { make, version, programs: place.clone(), settings: Vec::new(), files: Vec::new() })
    }

    /// Adds settings of its servers: `["fsync=off"]` for PostgreSQL, `["--max-connections=400"]` for MariaDB.
    #[must_use]
    pub fn settings(mut self, settings: &[&str]) -> Engine {
        self.settings.extend(settings.iter().map(ToString::to_string));
        self
    }

    /// Adds a file to the data folder of its servers, which only they may read: `pg_hba.conf`, or a key. It
    /// replaces one of the same name.
    #[must_use]
    pub fn file(mut self, name: &str, text: &str) -> Engine {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Starts a new server with an empty database, on a port of the loopback interface, and waits until it
    /// answers. Everything that it acknowledges is on disk, unless one of the [`settings`](Engine::settings)
    /// trades that for speed.
    ///
    /// # Errors
    ///
    /// If it cannot be set up, or does not answer within a minute; with what it wrote to its log.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends what has started.
    pub async fn start(&self) -> io::Result<Database> {
        Database::start(self, None).await
    }

    /// Like [`start`](Engine::start), with its data on a separate disk of this size, which
    /// [`Database::fill_disk`] fills.
    ///
    /// # Errors
    ///
    /// As [`start`](Engine::start), and if no such disk can be mounted: that takes root, and Linux.
    pub async fn start_on_small_disk(&self, megabytes: u32) -> io::Result<Database> {
        Database::start(self, Some(megabytes)).await
    }

    /// Returns the address of a server of this kind, or of a proxy in front of it, as a node URL: with a user,
    /// its [password](Engine::password), and a dedicated database.
    #[must_use]
    pub fn url(&self, address: SocketAddr) -> String {
        let password = self.password();
        match self.make {
            Make::Postgres => format!("postgres://postgres:{password}@{address}/postgres"),
            Make::MariaDb => format!("mysql://locks:{password}@{address}/locks"),
            // The first login after each start sends the password itself.
            Make::MySql => format!("mysql://locks:{password}@{address}/locks?cleartext-password=loopback"),
        }
    }

    /// Returns the password of that user: random, and the same for all servers of this program. Every user of the
    /// machine reaches the servers' ports, and an administrator of a database can run programs as its user.
    #[must_use]
    pub fn password(&self) -> &str {
        static PASSWORD: OnceLock<String> = OnceLock::new();

        PASSWORD.get_or_init(|| format!("{:032x}", SystemEntropy::default().next_u128()))
    }

    /// Whether this is PostgreSQL, which has a process per connection, and standbys.
    #[must_use]
    pub fn is_postgres(&self) -> bool {
        self.make == Make::Postgres
    }

    /// Whether this is MySQL, which is not MariaDB.
    #[must_use]
    pub fn is_mysql(&self) -> bool {
        self.make == Make::MySql
    }

    /// Returns a command for one of its programs, run by a user that it accepts.
    fn command(&self, program: &str) -> Command {
        let found = self.programs.join(program);
        let found = if found.is_file() { found } else { Path::new(program).to_owned() };
        if !self.is_postgres() || !is_root() {
            return Command::new(found);
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(found);
        command
    }
}

impl Make {
    fn server(self) -> &'static str {
        match self {
            Make::Postgres => "postgres",
            Make::MariaDb => "mariadbd",
            Make::MySql => "mysqld",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Make::Postgres => "PostgreSQL",
            Make::MariaDb => "MariaDB",
            Make::MySql => "MySQL",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.make.name(), self.version, self.programs.display())
    }
}

/// What a program says of its version.
fn version(program: &Path) -> io::Result<String> {
    let output = Command::new(program).arg("--version").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn missing(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, why.to_owned())
}

/// Not TMPDIR, which the user of a server may be unable to enter.
const PLACE: &str = "/tmp";

fn is_root() -> bool {
    #[cfg(unix)]
    return rustix::process::geteuid().is_root();
    #[cfg(not(unix))]
    false
}
