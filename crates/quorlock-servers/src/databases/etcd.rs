//! Clusters of etcd on this machine.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use quorlock::runtime::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use links::Links;

use super::missing;
use super::processes::{Running, cluster_of_processes, not_running, succeed};
use crate::folder::private;
use crate::servers::Port;
use crate::wait::{self, pause, within};

mod links;

/// For how long a member may take to answer.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The programs of an etcd that this machine can run.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// match quorlock_servers::EtcdPrograms::find() {
///     Ok(programs) => println!("{programs} at {}", programs.start(3).await?.url()),
///     Err(reason) => println!("skipped: {reason}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdPrograms {
    folder: PathBuf,
    version: String,
}

impl EtcdPrograms {
    /// Finds `etcd` and `etcdctl` in the folder that `QUORLOCK_ETCD` names, or in one on the `PATH`.
    ///
    /// # Errors
    ///
    /// If they are not found.
    pub fn find() -> io::Result<EtcdPrograms> {
        let named = std::env::var_os("QUORLOCK_ETCD").map(PathBuf::from);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places: Vec<PathBuf> =
            named.map_or_else(|| std::env::split_paths(&path).collect(), |named| vec![named]);
        let found = places.iter().find_map(|place| EtcdPrograms::at(place).ok());
        found.ok_or_else(|| {
            missing("etcd is not installed: `etcd` and `etcdctl` were not found; `scripts/etcd` builds or downloads them")
        })
    }

    /// Returns the programs in this folder.
    ///
    /// # Errors
    ///
    /// If one is missing.
    pub fn at(folder: &Path) -> io::Result<EtcdPrograms> {
        if !folder.join("etcdctl").is_file() {
            return Err(missing(&format!("no etcdctl in {}", folder.display())));
        }
        let output = Command::new(folder.join("etcd")).arg("--version").output()?;
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = output.lines().find_map(|line| line.strip_prefix("etcd Version: "));
        let version = version.unwrap_or("of an unknown version").trim().to_owned();
        Ok(EtcdPrograms { folder: folder.canonicalize()?, version })
    }

    /// Returns the version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the path of one of the programs.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Starts a new cluster on ports of the loopback interface, and waits until all members answer.
    ///
    /// # Errors
    ///
    /// If one does not answer within a minute; with the end of its log.
    pub async fn start(&self, members: usize) -> io::Result<EtcdCluster> {
        self.start_with(members, &[]).await
    }

    /// The same, with further options of each member.
    ///
    /// # Errors
    ///
    /// As [`start`](EtcdPrograms::start).
    pub async fn start_with(&self, members: usize, options: &[&str]) -> io::Result<EtcdCluster> {
        self.start_of(members, options, false).await
    }

    /// The same as [`start`](EtcdPrograms::start), with members that can be [cut off](EtcdCluster::cut_off) from the others.
    ///
    /// # Errors
    ///
    /// As [`start`](EtcdPrograms::start).
    pub async fn start_linked(&self, members: usize) -> io::Result<EtcdCluster> {
        self.start_of(members, &[], true).await
    }

    async fn start_of(&self, members: usize, options: &[&str], linked: bool) -> io::Result<EtcdCluster> {
        let folder = private("quorlock-etcd-", &std::env::temp_dir())?;
        let mut all = Vec::new();
        for _ in 0..members {
            let (client, peer) = (Port::reserve(u16::MAX)?, Port::reserve(u16::MAX)?);
            all.push(Member { client, peer, running: Mutex::default(), delaying: Mutex::default() });
        }
        let peers: Vec<_> = all.iter().map(|member| member.peer.address()).collect();
        let links = if linked { Some(Links::start(&peers).await?) } else { None };
        let options = options.iter().map(ToString::to_string).collect();
        let token = "quorlock".to_owned();
        let cluster = EtcdCluster { programs: self.clone(), members: all, options, token, links, folder };
        cluster.start_all().await?;
        Ok(cluster)
    }
}

impl fmt::Display for EtcdPrograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd {}", self.version)
    }
}

/// A cluster that was started here. Dropping it ends it.
#[derive(Debug)]
pub struct EtcdCluster {
    programs: EtcdPrograms,
    members: Vec<Member>,
    options: Vec<String>,
    /// Of which the ID of the cluster is made.
    token: String,
    links: Option<Links>,
    folder: TempDir,
}

#[derive(Debug)]
struct Member {
    client: Port,
    peer: Port,
    running: Mutex<Option<Running>>,
    /// What delays its writes to disk.
    delaying: Mutex<Option<Delaying>>,
}

/// A tracer that delays the writes of a member to disk. Dropping it ends it.
#[derive(Debug)]
struct Delaying(Child);

impl Drop for Delaying {
    fn drop(&mut self) {
        // It detaches from what it traces, which SIGKILL would not let it do.
        if let Ok(pid) = i32::try_from(self.0.id())
            && let Some(pid) = Pid::from_raw(pid)
        {
            let _ = kill_process(pid, Signal::TERM);
        }
        drop(self.0.wait());
    }
}

impl EtcdCluster {
    pub(crate) fn programs(&self) -> &EtcdPrograms {
        &self.programs
    }

    /// Kills a member, as when its machine stops.
    pub fn kill(&self, member: usize) {
        self.free_disk(member);
        self.end(member);
    }

    /// Cuts a member off from the others, or joins it again. Clients reach it all the time.
    ///
    /// # Errors
    ///
    /// If the cluster was not started by [`start_linked`](EtcdPrograms::start_linked).
    pub fn cut_off(&self, member: usize, is_off: bool) -> io::Result<()> {
        let unlinked = || io::Error::new(io::ErrorKind::Unsupported, "the members are not linked by proxies");
        self.links.as_ref().ok_or_else(unlinked)?.cut_off(member, is_off);
        Ok(())
    }

    /// Delays each write of a member to its disk by `time`, with `strace`, until [`free_disk`](EtcdCluster::free_disk).
    ///
    /// # Errors
    ///
    /// If it does not run, or `strace` is missing or not permitted to trace it.
    pub async fn hang_disk(&self, member: usize, time: Duration) -> io::Result<()> {
        let pid = self.pid(member).ok_or_else(not_running)?;
        let inject = format!("inject=fdatasync,fsync:delay_enter={}", time.as_micros());
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-e", "trace=fdatasync,fsync", "-e", &inject, "-p", &pid.to_string()]);
        let log = File::create(self.folder.path().join("strace.log"))?;
        strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut delaying = Delaying(strace.spawn()?);
        let is_traced = || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
        };
        let failed = |error| io::Error::other(format!("strace does not trace etcd: {error}"));
        let ended = |child: &mut Child| matches!(child.try_wait(), Ok(Some(_)));
        let traced = async {
            while !is_traced() && !ended(&mut delaying.0) {
                pause().await;
            }
            Ok(())
        };
        within("a tracer", START_LIMIT, traced).await?;
        if ended(&mut delaying.0) {
            let output = std::fs::read_to_string(self.folder.path().join("strace.log")).unwrap_or_default();
            return Err(failed(output));
        }
        if let Some(member) = self.members.get(member) {
            *member.delaying.lock() = Some(delaying);
        }
        Ok(())
    }

    /// Ends the delay of the writes of a member.
    pub fn free_disk(&self, member: usize) {
        drop(self.members.get(member).and_then(|member| member.delaying.lock().take()));
    }

    /// Runs `etcdctl` on the whole cluster.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn ctl(&self, arguments: &[&str]) -> io::Result<Output> {
        self.ctl_command(arguments).output()
    }

    /// Returns a call of `etcdctl` on the whole cluster, which waits for a busy machine.
    #[must_use]
    pub fn ctl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.programs.program("etcdctl"));
        command.env("ETCDCTL_API", "3").args(["--dial-timeout=1m", "--command-timeout=1m", "--endpoints"]);
        command.arg(self.endpoints()).args(arguments);
        command
    }

    /// Returns the member that leads.
    ///
    /// # Errors
    ///
    /// If no member says so.
    pub fn leader(&self) -> io::Result<usize> {
        for member in 0..self.members.len() {
            if self.pid(member).is_none() {
                continue;
            }
            let endpoint = self.address(member).to_string();
            let asked =
                ["endpoint", "status", "-w", "fields", "--endpoints", &endpoint, "--command-timeout=1s"];
            let mut command = Command::new(self.programs.program("etcdctl"));
            let output = command.env("ETCDCTL_API", "3").args(asked).output()?;
            let output = String::from_utf8_lossy(&output.stdout).into_owned();
            let field =
                |name: &str| output.lines().find_map(|line| line.strip_prefix(&format!("\"{name}\" : ")));
            if field("MemberID").is_some() && field("MemberID") == field("Leader") {
                return Ok(member);
            }
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "no member says that it leads"))
    }

    /// Saves a snapshot of the data in a file of the cluster's folder, and returns its path.
    ///
    /// # Errors
    ///
    /// If that fails.
    pub fn snapshot(&self) -> io::Result<PathBuf> {
        let file = self.folder.path().join("snapshot.db");
        let endpoint = self.address(0).to_string();
        let mut command = Command::new(self.programs.program("etcdctl"));
        command.env("ETCDCTL_API", "3").args(["--endpoints", &endpoint, "snapshot", "save"]).arg(&file);
        succeed(&mut command)?;
        Ok(file)
    }

    /// Ends the members, and puts the data of a snapshot in the place of the present ones. With a new `token` it is
    /// another cluster, with another ID, as an operator should do it. `options` are further ones of the tool.
    ///
    /// # Errors
    ///
    /// If that fails.
    pub fn restore(&mut self, snapshot: &Path, token: &str, options: &[&str]) -> io::Result<()> {
        (0..self.members.len()).for_each(|member| self.kill(member));
        token.clone_into(&mut self.token);
        // Before 3.5, etcdctl itself restored.
        let tool = self.programs.program("etcdutl");
        let tool = if tool.is_file() { tool } else { self.programs.program("etcdctl") };
        for member in 0..self.members.len() {
            let data = self.folder.path().join(format!("m{member}"));
            std::fs::remove_dir_all(&data)?;
            let mut command = Command::new(&tool);
            command
                .env("ETCDCTL_API", "3")
                .args(["snapshot", "restore"])
                .arg(snapshot)
                .arg("--data-dir")
                .arg(&data);
            command.args(["--name", &format!("m{member}"), "--initial-cluster", &self.initial()]);
            command.args([
                "--initial-advertise-peer-urls",
                &self.peer(member),
                "--initial-cluster-token",
                token,
            ]);
            command.args(options);
            succeed(&mut command)?;
        }
        Ok(())
    }

    /// Where the others reach a member.
    fn peer(&self, member: usize) -> String {
        let linked = self.links.as_ref().and_then(|links| links.address(member));
        let own = || self.members.get(member).map(|member| member.peer.address());
        linked.or_else(own).map_or_else(String::new, |address| format!("http://{address}"))
    }

    fn initial(&self) -> String {
        let all = (0..self.members.len()).map(|member| format!("m{member}={}", self.peer(member)));
        all.collect::<Vec<_>>().join(",")
    }

    fn start(&self, member: usize) -> io::Result<()> {
        let name = format!("m{member}");
        let client = format!("http://{}", self.address(member));
        let mut command = Command::new(self.programs.program("etcd"));
        command.args(["--name", &name, "--data-dir"]).arg(self.folder.path().join(&name));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        let listens =
            self.members.get(member).map_or_else(String::new, |member| member.peer.address().to_string());
        command.args(["--listen-peer-urls", &format!("http://{listens}")]);
        command.args(["--initial-advertise-peer-urls", &self.peer(member)]);
        command.args(["--initial-cluster", &self.initial(), "--initial-cluster-token", &self.token]);
        command.args(["--initial-cluster-state", "new", "--logger", "zap", "--log-level", "warn"]);
        command.args(&self.options);
        self.run(member, command)
    }
}

cluster_of_processes!(EtcdCluster, "etcd", "etcd", START_LIMIT, is_healthy);

async fn is_healthy(address: SocketAddr) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").await?;
        let mut output = String::new();
        stream.read_to_string(&mut output).await?;
        io::Result::Ok(output)
    };
    asked.await.is_ok_and(|output| output.contains("\"health\":\"true\""))
}
