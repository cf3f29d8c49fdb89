//! RheaKV as a node, by the gateway in Java, beside RheaKV's own `DistributedLock`; skipped where `scripts/rheakv` was not run.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{Request, Seams, Vote, ask};
use quorlock::protocol::{Claim, Token};
use quorlock::runtime::SystemClock;
use quorlock::{Coordinator, RestartGuard, Wait};
use quorlock_exec::{ExecKind, ExecNode};
use quorlock_testkit::contract::{ByRequests, check_contract};
use quorlock_testkit::patience;
use tempfile::TempDir;

/// How often each program counts. `SECTIONS=2000` for more.
const TIMES: usize = 30;
/// What RheaKV needs of Java 17.
const OPENS: [&str; 4] = ["java.lang", "java.util", "java.nio", "sun.nio.ch"];

/// Three stores in one process, which also is a Java program that locks.
struct Stores {
    process: Child,
    stdin: ChildStdin,
    reply: BufReader<ChildStdout>,
    url: String,
    _folder: TempDir,
}

impl Drop for Stores {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn java() -> Option<Vec<String>> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/rheakv");
    let Ok(built) =
        built.canonicalize().and_then(|built| built.join("classes").canonicalize().map(|_| built))
    else {
        eprintln!("skipped: no RheaKV; `scripts/rheakv` gets it, with Java and Maven");
        return None;
    };
    let mut words: Vec<String> =
        OPENS.iter().map(|package| format!("--add-opens=java.base/{package}=ALL-UNNAMED")).collect();
    words.extend(["-Xmx256m".to_owned(), "-cp".to_owned()]);
    words.push(format!("{0}/lib/*:{0}/classes", built.display()));
    Some(words)
}

impl Stores {
    fn start() -> Option<Stores> {
        let java = java()?;
        let folder = tempfile::tempdir().unwrap();
        let sockets: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<_> =
            sockets.iter().map(|socket| socket.local_addr().unwrap().port().to_string()).collect();
        drop(sockets);
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new("java");
        command.args(&java).arg("Stores").arg(folder.path()).arg(ports.join(","));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let (stdin, stdout) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let servers = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join("%2C");
        let arguments: Vec<_> =
            java.iter().map(|word| format!("arg={}&", word.replace(',', "%2C"))).collect();
        let arguments = arguments.concat();
        let url = format!("exec:java?{arguments}arg=Gateway&arg=quorlock&arg={servers}&cluster=yes");
        let mut stores = Stores { process, stdin, reply: BufReader::new(stdout), url, _folder: folder };
        stores.says("serving");
        Some(stores)
    }

    /// Waits for a line.
    fn says(&mut self, wanted: &str) {
        let mut line = String::new();
        while line.trim() != wanted {
            line.clear();
            assert!(self.reply.read_line(&mut line).unwrap() > 0, "the stores have ended");
        }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }
}

fn acquire(random: u128) -> (Arc<Claim>, Request) {
    let claim = Arc::new(Claim::new("lost".into(), Token::new(random, "anna:1")));
    (Arc::clone(&claim), Request::Acquire { claim, ttl: Duration::from_secs(20), fence_hint: None })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_rheakv_is_one_with_its_own_and_keeps_the_contract() {
    let Some(mut stores) = Stores::start() else { return };
    let node = ExecNode::new(&stores.url, &Seams::default()).unwrap();
    if let Err(breach) = check_contract(&node, &ByRequests(node.clone()), &SystemClock::default()).await {
        panic!("{breach}");
    }
    // An answer that was lost does not lock its owner out (the second try has no number of RheaKV's), nor does a cancel.
    let (claim, request) = acquire(1);
    for _ in 0..2 {
        assert_eq!(ask(&node, request.clone()).await.unwrap().vote, Vote::Granted);
    }
    let cancel = Request::Cancel { claim, linger: Duration::from_secs(5) };
    assert_eq!(ask(&node, cancel).await.unwrap().vote, Vote::Granted);
    assert_eq!(ask(&node, request).await.unwrap().vote, Vote::Free, "late requests are refused");
    assert_eq!(ask(&node, acquire(2).1).await.unwrap().vote, Vote::Granted);

    let builder = Coordinator::builder().kind(ExecKind::new()).nodes([stores.url.as_str()]);
    let client = builder.restart_guard(RestartGuard::Off).ttl(Duration::from_secs(10)).build().unwrap();
    // Its own lock excludes ours, and says who holds it.
    stores.send("hold jobs/a");
    stores.says("held");
    let lock = client.lock("jobs/a").wait(Wait::Never);
    assert!(lock.acquire().await.is_err());
    let seen = lock.inspect().await.unwrap();
    let holder = String::from_utf8_lossy(seen.holder().unwrap().token.as_bytes()).into_owned();
    assert!(holder.contains("the Java program"), "{holder}");
    stores.send("release");
    stores.says("released");

    let folder = tempfile::tempdir().unwrap();
    let counter: PathBuf = folder.path().join("counter");
    fs::write(&counter, "0").unwrap();
    let times = std::env::var("SECTIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(TIMES);
    stores.send(&format!("count sections {} {times}", counter.display()));
    let lock = client.lock("sections").wait(Wait::UpTo(patience() * 10));
    let mut token = 0;
    for _ in 0..times {
        let lease = lock.acquire().await.unwrap();
        let number = lease.fencing_token().get();
        assert!(number > token);
        token = number;
        let count: usize = fs::read_to_string(&counter).unwrap().trim().parse().unwrap();
        fs::write(&counter, (count + 1).to_string()).unwrap();
        lease.release().await.unwrap();
    }
    stores.says("counted");
    assert_eq!(fs::read_to_string(&counter).unwrap(), (2 * times).to_string(), "an increment is lost");
}
