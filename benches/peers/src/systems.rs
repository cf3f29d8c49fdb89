//! Other lock systems, from Debian's packages: started on ports of the loopback interface that the
//! system hands out, with a folder of their own, and ended when they are dropped.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use quorlock_testkit::{Database, Engine, eventually, find_eventually};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::subjects::{MOST_TASKS, postgres};

const START_LIMIT: Duration = Duration::from_secs(30);
/// As many as a consensus system is usually run with.
const MEMBERS: usize = 3;

pub(crate) struct System {
    pub(crate) addresses: Vec<String>,
    pub(crate) version: String,
    members: Vec<Child>,
    goodbye: Signal,
    folder: TempDir,
    /// PostgreSQL.
    database: Option<Database>,
}

impl System {
    fn new(goodbye: Signal) -> Result<System> {
        let folder = tempfile::Builder::new().prefix("quorlock-peers-").tempdir()?;
        let (addresses, version) = (Vec::new(), String::new());
        Ok(System { addresses, version, members: Vec::new(), goodbye, folder, database: None })
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn spawn(&mut self, command: &mut Command) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.folder().join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let name = command.get_program().to_owned();
        self.members.push(command.spawn().with_context(|| format!("cannot start {}", name.display()))?);
        Ok(())
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.folder().join("log")).unwrap_or_default();
        let words: Vec<&str> = log.lines().rev().take(3).collect();
        words.join(" / ")
    }
}

impl Drop for System {
    fn drop(&mut self) {
        // Children that have not been waited for: the ids are theirs.
        for member in &self.members {
            let _ = kill_process(Pid::from_child(member), self.goodbye);
        }
        for member in &mut self.members {
            let _ = member.wait();
        }
    }
}

/// One server that keeps its promises about the disk, with its default configuration.
pub(crate) async fn postgres() -> Result<System> {
    let connections = format!("max_connections={}", 3 * MOST_TASKS);
    // The test kit gives its servers less memory than PostgreSQL does by default.
    let database = Engine::postgres()?.settings(&[&connections, "shared_buffers=128MB"]).start().await?;
    let mut system = System::new(Signal::INT)?;
    let address = database.url();
    system.version = format!("1 × PostgreSQL {}, defaults (fsync on)", postgres::version(&address).await?);
    system.addresses = vec![address];
    system.database = Some(database);
    Ok(system)
}

pub(crate) async fn zookeeper() -> Result<System> {
    const JAR: &str = "/usr/share/java/zookeeper.jar";
    ensure!(Path::new(JAR).exists(), "ZooKeeper is not installed");
    let mut system = System::new(Signal::TERM)?;
    let ports: [u16; 3 * MEMBERS] = free_ports()?;
    let (clients, others) = ports.split_at(MEMBERS);
    let members = others.chunks(2).enumerate().map(|(id, ports)| match ports {
        [quorum, election] => format!("server.{}=127.0.0.1:{quorum}:{election}\n", id + 1),
        _ => String::new(),
    });
    let members: String = members.collect();
    for (id, port) in clients.iter().enumerate() {
        let folder = system.folder().join(format!("member{id}"));
        fs::create_dir(&folder)?;
        fs::write(folder.join("myid"), (id + 1).to_string())?;
        let settings = format!(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
             admin.enableServer=false\n4lw.commands.whitelist=srvr\n{members}",
            folder.display()
        );
        fs::write(folder.join("zoo.cfg"), settings)?;
        system.spawn(
            Command::new("java")
                .args(["-Xmx256m", "-cp", JAR, "org.apache.zookeeper.server.quorum.QuorumPeerMain"])
                .arg(folder.join("zoo.cfg"))
                .current_dir(&folder),
        )?;
    }
    for port in clients {
        let reply = find_eventually("ZooKeeper to answer", START_LIMIT, async || {
            ask(*port, "srvr").await.ok().filter(|reply| reply.contains("Mode: "))
        });
        let reply = reply.await.with_context(|| system.last_words())?;
        let version = reply.split("version: ").nth(1).and_then(|rest| rest.split('-').next()).unwrap_or("?");
        system.version = format!("{MEMBERS} × ZooKeeper {version}, defaults (forceSync on)");
    }
    // The client takes all of them as one word.
    system.addresses =
        vec![clients.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",")];
    Ok(system)
}

pub(crate) async fn etcd() -> Result<System> {
    let Ok(version) = Command::new("etcd").arg("--version").output() else { bail!("etcd is not installed") };
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let version = version.lines().find_map(|line| line.strip_prefix("etcd Version: ")).unwrap_or("?");
    let mut system = System::new(Signal::TERM)?;
    system.version = format!("{MEMBERS} × etcd {version}, defaults (fsync on)");
    let ports: [u16; 2 * MEMBERS] = free_ports()?;
    let (clients, peers) = ports.split_at(MEMBERS);
    let url = |port: &u16| format!("http://127.0.0.1:{port}");
    let members = peers.iter().enumerate().map(|(id, port)| format!("member{id}={}", url(port)));
    let members = members.collect::<Vec<_>>().join(",");
    for (id, (client, peer)) in clients.iter().zip(peers).enumerate() {
        let name = format!("member{id}");
        let folder = system.folder().join(&name);
        system.spawn(
            Command::new("etcd")
                .args(["--name", &name, "--data-dir"])
                .arg(folder)
                .args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)])
                .args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)])
                .args(["--initial-cluster", &members, "--initial-cluster-state", "new"])
                .args(["--logger", "zap", "--log-level", "error"]),
        )?;
    }
    for port in clients {
        let healthy = eventually("etcd to be healthy", START_LIMIT, async || {
            let reply = ask(*port, "GET /health HTTP/1.0\r\n\r\n").await;
            reply.is_ok_and(|reply| reply.contains("\"health\":\"true\""))
        });
        healthy.await.with_context(|| system.last_words())?;
    }
    system.addresses = clients.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    Ok(system)
}

async fn ask(port: u16, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// All of them held at the same time, so that they differ. Another program could take one before it is used; then
/// the system does not start, and that is said.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}
