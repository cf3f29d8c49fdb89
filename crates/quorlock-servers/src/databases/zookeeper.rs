//! Ensembles of ZooKeeper on this machine.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use quorlock::runtime::{Mutex, SystemClock, within};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::missing;
use super::processes::{Running, cluster_of_processes, not_running};
use crate::folder::private;
use crate::proxy::{Proxy, Way};
use crate::servers::Port;
use crate::wait::{self, patience, pause};

/// A ZooKeeper that this machine can run: a folder of jars, and Java.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// match quorlock_servers::ZooKeeperPrograms::find() {
///     Ok(programs) => println!("{programs} at {}", programs.start(3).await?.url()),
///     Err(reason) => println!("skipped: {reason}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZooKeeperPrograms {
    folder: PathBuf,
    version: String,
}

/// The usual settings of the members. A tick is short, so that sessions of a second are possible.
const SETTINGS: [&str; 5] =
    ["tickTime=200", "initLimit=100", "syncLimit=50", "maxClientCnxns=0", "admin.enableServer=false"];

impl ZooKeeperPrograms {
    /// Finds the jars in the folder that `QUORLOCK_ZOOKEEPER` names, and Java on the `PATH`.
    ///
    /// # Errors
    ///
    /// If they are not found.
    pub fn find() -> io::Result<ZooKeeperPrograms> {
        let named = std::env::var_os("QUORLOCK_ZOOKEEPER").map(PathBuf::from);
        let Some(named) = named else {
            return Err(missing(
                "ZooKeeper is not installed: `QUORLOCK_ZOOKEEPER` names no folder of its jars; `scripts/zookeeper` downloads them",
            ));
        };
        ZooKeeperPrograms::at(&named)
    }

    /// Returns the ZooKeeper whose jars are in this folder.
    ///
    /// # Errors
    ///
    /// If they are missing, or Java is.
    pub fn at(folder: &Path) -> io::Result<ZooKeeperPrograms> {
        let names = fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let version = |name: String| {
            let version = name.strip_prefix("zookeeper-")?.strip_suffix(".jar")?;
            version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
        };
        let version = names.into_iter().find_map(version);
        let version =
            version.ok_or_else(|| missing(&format!("no zookeeper-*.jar in {}", folder.display())))?;
        let java = Command::new("java").arg("-version").stdin(Stdio::null()).output();
        if !java.is_ok_and(|java| java.status.success()) {
            return Err(missing("no `java` runs, which ZooKeeper needs"));
        }
        Ok(ZooKeeperPrograms { folder: folder.to_owned(), version })
    }

    /// Returns the version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns a command that runs a class of the jars, or of this folder.
    #[must_use]
    pub fn java(&self, classes: Option<&Path>) -> Command {
        let mut path = self.folder.join("*").into_os_string();
        if let Some(classes) = classes {
            path.push(":");
            path.push(classes);
        }
        let mut java = Command::new("java");
        // Little memory, and a start without long compilations.
        java.args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]).arg(path);
        java
    }

    /// Starts a new ensemble on ports of the loopback interface, and waits until all members answer.
    ///
    /// # Errors
    ///
    /// If one does not answer within a minute; with the end of its log.
    pub async fn start(&self, members: usize) -> io::Result<ZooKeeperCluster> {
        self.start_with(members, &[]).await
    }

    /// The same, with further settings of each member, such as `syncLimit=40`, instead of the usual ones of that name.
    ///
    /// # Errors
    ///
    /// As [`start`](ZooKeeperPrograms::start).
    pub async fn start_with(&self, members: usize, settings: &[&str]) -> io::Result<ZooKeeperCluster> {
        let folder = private("quorlock-zookeeper-", &std::env::temp_dir())?;
        let mut all = Vec::new();
        for _ in 0..members {
            let [client, quorum, election] =
                [Port::reserve(u16::MAX)?, Port::reserve(u16::MAX)?, Port::reserve(u16::MAX)?];
            all.push(Member { client, quorum, election, running: Mutex::default() });
        }
        let mut links = BTreeMap::new();
        for from in 0..members {
            for (to, member) in all.iter().enumerate() {
                if from != to {
                    links.insert((from, to), Proxy::start(member.quorum.address()).await?);
                }
            }
        }
        let name = |line: &str| line.split('=').next().map(str::to_owned);
        let named: Vec<_> = settings.iter().map(|line| name(line)).collect();
        let usual = SETTINGS.iter().filter(|line| !named.contains(&name(line)));
        let settings = usual.chain(settings).map(ToString::to_string).collect();
        let cluster = ZooKeeperCluster { programs: self.clone(), members: all, links, settings, folder };
        cluster.start_all().await?;
        Ok(cluster)
    }
}

impl fmt::Display for ZooKeeperPrograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZooKeeper {}", self.version)
    }
}

/// An ensemble that was started here. Dropping it ends it.
#[derive(Debug)]
pub struct ZooKeeperCluster {
    programs: ZooKeeperPrograms,
    members: Vec<Member>,
    /// Between each two members, in the direction in which one connects to the other as its leader.
    links: BTreeMap<(usize, usize), Proxy>,
    settings: Vec<String>,
    folder: TempDir,
}

#[derive(Debug)]
struct Member {
    client: Port,
    quorum: Port,
    election: Port,
    running: Mutex<Option<Running>>,
}

impl ZooKeeperCluster {
    pub(crate) fn programs(&self) -> &ZooKeeperPrograms {
        &self.programs
    }

    /// Kills a member, as when its machine stops.
    pub fn kill(&self, member: usize) {
        self.end(member);
    }

    /// Holds what a member and its leader send to each other, until they are [joined](ZooKeeperCluster::join) again. Elections
    /// are not disturbed.
    pub fn separate(&self, one: usize, other: usize) {
        for way in [(one, other), (other, one)] {
            self.links.get(&way).into_iter().for_each(|link| link.hold(Way::Both));
        }
    }

    /// Delivers what was held between these members, and all that follows.
    pub fn join(&self, one: usize, other: usize) {
        for way in [(one, other), (other, one)] {
            self.links.get(&way).into_iter().for_each(Proxy::heal);
        }
    }

    /// Returns the member that leads.
    ///
    /// # Errors
    ///
    /// If no member says so.
    pub async fn leader(&self) -> io::Result<usize> {
        for member in 0..self.members.len() {
            let reply = reply(self.address(member)).await.unwrap_or_default();
            if self.pid(member).is_some() && reply.contains("Mode: leader") {
                return Ok(member);
            }
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "no member says that it leads"))
    }

    /// Copies the data of all members, which must not run, and returns where. [`restore`](ZooKeeperCluster::restore) puts them
    /// back.
    ///
    /// # Errors
    ///
    /// If that fails.
    pub fn backup(&self) -> io::Result<PathBuf> {
        let backup = self.folder.path().join("backup");
        for member in 0..self.members.len() {
            copy(&self.data(member), &backup.join(member.to_string()))?;
        }
        Ok(backup)
    }

    /// Puts a backup in the place of the data, while no member runs. Start them afterwards.
    ///
    /// # Errors
    ///
    /// If that fails.
    pub fn restore(&self, backup: &Path) -> io::Result<()> {
        for member in 0..self.members.len() {
            fs::remove_dir_all(self.data(member))?;
            copy(&backup.join(member.to_string()), &self.data(member))?;
        }
        Ok(())
    }

    fn data(&self, member: usize) -> PathBuf {
        self.folder.path().join(format!("m{member}"))
    }

    /// Returns the lines that name the members, as this one is to reach them.
    fn servers(&self, by: usize) -> Vec<String> {
        if self.members.len() < 2 {
            return Vec::new();
        }
        let line = |(member, ports): (usize, &Member)| {
            let quorum = self.links.get(&(by, member)).map_or(ports.quorum.address(), Proxy::address);
            format!("server.{}=127.0.0.1:{}:{}", member + 1, quorum.port(), ports.election.address().port())
        };
        self.members.iter().enumerate().map(line).collect()
    }

    fn start(&self, member: usize) -> io::Result<()> {
        let (data, client) = (self.data(member), self.address(member));
        fs::create_dir_all(&data)?;
        fs::write(data.join("myid"), (member + 1).to_string())?;
        let mut lines = self.settings.clone();
        lines.extend(self.servers(member));
        lines.push(format!("dataDir={}", data.display()));
        lines.push(format!("clientPort={}\nclientPortAddress={}", client.port(), client.ip()));
        let config = self.folder.path().join(format!("m{member}.cfg"));
        fs::write(&config, lines.join("\n"))?;
        let mut command = self.programs.java(None);
        // Members that start together miss each other's first votes, and repeat them after up to a minute unless told otherwise.
        command.args(["-Dzookeeper.fastleader.maxNotificationInterval=1000", "-Dzookeeper.cnxTimeout=2000"]);
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(config);
        self.run(member, command)
    }
}

cluster_of_processes!(ZooKeeperCluster, "zookeeper", "ZooKeeper", patience(), serves);

async fn serves(address: SocketAddr) -> bool {
    reply(address).await.is_ok_and(|reply| reply.contains("Mode: "))
}

/// What a member says of itself. One that is just starting may accept a connection and never answer it.
async fn reply(address: SocketAddr) -> io::Result<String> {
    const LIMIT: Duration = Duration::from_secs(1);
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"srvr").await?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await?;
        Ok(reply)
    };
    within(&SystemClock::default(), LIMIT, asked).await.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
