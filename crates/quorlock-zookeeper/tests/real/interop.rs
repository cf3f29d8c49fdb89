//! Curator's `InterProcessMutex`, kazoo's `Lock` and this library in one queue.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use quorlock::{Coordinator, Lease, RestartGuard};
use quorlock_testkit::ZooKeeperCluster;

use crate::foreign::{Foreign, dir};
use crate::ordered::{Counted, Program as _, sections};
use crate::support::{node, programs};

const NAME: &str = "jobs/together";

/// kazoo's lock. Beside ours it has to know the names that we give; beside Curator's its own names have to be such that Curator
/// knows them.
const KAZOO: &str = r"
import sys
from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock

class CuratorLock(Lock):
    _NODE_NAME = '-lock-'
    _EXCLUDE_NAMES = ['-lock-']

connect, path, sections, counter, log, named = sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:]
client = KazooClient(hosts=connect)
client.start()
for _ in range(sections):
    if named == 'as-curator':
        lock = CuratorLock(client, path)
    else:
        lock = Lock(client, path, extra_lock_patterns=['-lock-'])
    with lock:
        number = int(open(counter).read())
        open(counter, 'w').write(str(number + 1))
        open(log, 'a').write(lock.node[-10:] + ' kazoo\n')
client.stop()
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns a Python that has kazoo, if there is one.
fn python() -> Option<PathBuf> {
    let found = [root().join(".tools/zookeeper/python/bin/python"), PathBuf::from("python3")];
    found.into_iter().find(|python| {
        Command::new(python).args(["-c", "import kazoo"]).output().is_ok_and(|done| done.status.success())
    })
}

/// A program that ends with its test: without its servers it would wait for them.
struct Running(Option<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut program) = self.0.take() {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

/// Runs `program` with what it is to count.
fn run(counted: &Counted, mut program: Command, connect: &str, middle: &[&str], last: &[&str]) -> Running {
    program.arg(connect).arg(dir(NAME)).args(middle).args([counted.counter(), counted.log()]).args(last);
    Running(Some(program.stdout(Stdio::piped()).spawn().unwrap()))
}

/// Waits for a program, and returns what it has printed.
async fn ended(mut program: Running) -> String {
    let program = program.0.take().unwrap();
    let ended = tokio::task::spawn_blocking(|| program.wait_with_output().unwrap()).await.unwrap();
    assert!(ended.status.success(), "{}", ended.status);
    String::from_utf8_lossy(&ended.stdout).trim().to_owned()
}

/// One of our processes, whose sessions outlive a disk that is busy for some seconds, as those of the others do.
fn patient(cluster: &ZooKeeperCluster) -> Coordinator {
    let builder = Coordinator::builder().custom_nodes([node(cluster)]).restart_guard(RestartGuard::Off);
    builder.ttl(Duration::from_secs(12)).build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_clients_of_zookeeper_stand_in_one_queue() {
    let Some(programs) = programs() else { return };
    let classes = root().join(".tools/zookeeper/classes");
    if !classes.join("Sections.class").is_file() {
        return eprintln!("skipped: Curator's part was not compiled; `scripts/zookeeper` does");
    }
    let python = python();
    if python.is_none() {
        eprintln!("skipped: kazoo is not installed; `scripts/zookeeper` does");
    }
    // Of Curator and of ours; of kazoo a quarter of that, at most 200.
    let sections = sections(200);
    let of_kazoo = (sections / 4).min(200);
    // Curator and kazoo have no second try for a session that ends while they start.
    let cluster = programs.start_with(3, &["tickTime=700"]).await.unwrap();
    // A member for each kind of client.
    let [second, third] = [1, 2].map(|member| cluster.address(member).to_string());
    let kazoo = |counted: &Counted, named: &str| {
        let mut kazoo = Command::new(python.as_ref()?);
        kazoo.args(["-c", KAZOO]);
        Some(run(counted, kazoo, &third, &[&of_kazoo.to_string()], &[named]))
    };
    let foreign = Foreign::of(&cluster).await;
    let place = async |_: &Lease| {
        let first = foreign.standing(NAME).await.remove(0);
        first[first.len() - 10..].parse().unwrap()
    };
    let counted = Counted::new();
    if let Some(kazoo) = kazoo(&counted, "as-itself") {
        counted.ours(|| patient(&cluster), NAME, of_kazoo, &place).await;
        ended(kazoo).await;
        counted.check(of_kazoo * 2);
    }
    let counted = Counted::new();
    let curator = {
        let mut curator = programs.java(Some(&classes));
        curator.arg("Sections");
        run(&counted, curator, &second, &["4", &sections.to_string()], &[])
    };
    let kazoo = kazoo(&counted, "as-curator");
    counted.ours(|| patient(&cluster), NAME, sections, &place).await;
    let curator = ended(curator).await;
    let mut all = sections * 2;
    if let Some(kazoo) = kazoo {
        ended(kazoo).await;
        all += of_kazoo;
    }
    counted.check(all);
    println!("Curator: sections, and the same in µs: {curator}");
}
