//! Curator's `InterProcessMutex`, kazoo's `Lock` and this library in one queue.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use quorlock::Wait;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock_testkit::ZooKeeperCluster;

use crate::foreign::{Foreign, dir};
use crate::queue::process;
use crate::support::programs;

const NAME: &str = "jobs/together";
/// Of Curator and of ours; of kazoo a quarter of that, at most 200. `QUORLOCK_SECTIONS=2000` for a longer run.
const SECTIONS: usize = 200;

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

/// Adds one to a number in a file, by reading and writing it, and writes down the number of its place.
async fn section(folder: &Path, foreign: &Foreign) {
    let counter = folder.join("counter");
    let number: usize = fs::read_to_string(&counter).unwrap().trim().parse().unwrap();
    fs::write(&counter, (number + 1).to_string()).unwrap();
    let first = foreign.places(&dir(NAME)).await.unwrap().remove(0);
    let mut log = fs::File::options().append(true).open(folder.join("log")).unwrap();
    writeln!(log, "{} ours", &first[first.len() - 10..]).unwrap();
}

/// Runs this number of sections in a few processes, each of which has one place as a session of Curator's has, and returns how
/// long each has waited.
async fn ours(cluster: &ZooKeeperCluster, folder: &Path, sections: usize) -> Vec<Duration> {
    const TASKS: usize = 4;
    let clock = SystemClock::default();
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let (lock, foreign) = (process(cluster).lock(NAME).wait(Wait::Forever), Foreign::of(cluster).await);
        let (folder, times) = (folder.to_owned(), sections / TASKS + usize::from(task < sections % TASKS));
        tasks.push(tokio::spawn(async move {
            let mut waited = Vec::new();
            for _ in 0..times {
                let asked = clock.now();
                let lease = lock.acquire().await.unwrap();
                waited.push(clock.now().since(asked));
                section(&folder, &foreign).await;
                lease.release().await.unwrap();
            }
            waited
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    all
}

/// Returns a Python that has kazoo, if there is one.
fn python() -> Option<PathBuf> {
    let found = [root().join(".tools/zookeeper/python/bin/python"), PathBuf::from("python3")];
    found.into_iter().find(|python| {
        Command::new(python).args(["-c", "import kazoo"]).output().is_ok_and(|done| done.status.success())
    })
}

/// What the clients count and write down.
struct Counted {
    folder: tempfile::TempDir,
}

impl Counted {
    fn new() -> Counted {
        let counted = Counted { folder: tempfile::tempdir().unwrap() };
        fs::write(counted.file("counter"), "0").unwrap();
        fs::write(counted.file("log"), "").unwrap();
        counted
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `program` with what it is to count.
    fn run(&self, mut program: Command, connect: &str, middle: &[&str], last: &[&str]) -> Child {
        program.arg(connect).arg(dir(NAME)).args(middle);
        program.args([self.file("counter"), self.file("log")]).args(last);
        program.stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Expects that none of this number of sections was lost, and that their places have the order of their numbers.
    fn check(&self, sections: usize) {
        let counter = fs::read_to_string(self.file("counter")).unwrap();
        assert_eq!(counter.trim(), sections.to_string(), "a section was lost");
        let log = fs::read_to_string(self.file("log")).unwrap();
        let sequences: Vec<u64> =
            log.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
        assert_eq!(sequences.len(), sections);
        assert!(sequences.is_sorted(), "not in the order of the numbers");
    }
}

/// Waits for a program, and returns what it has printed.
async fn ended(program: Child) -> String {
    let ended = tokio::task::spawn_blocking(|| program.wait_with_output().unwrap()).await.unwrap();
    assert!(ended.status.success(), "{}", ended.status);
    String::from_utf8_lossy(&ended.stdout).trim().to_owned()
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
    let sections = std::env::var("QUORLOCK_SECTIONS").ok().and_then(|number| number.parse().ok());
    let sections: usize = sections.unwrap_or(SECTIONS);
    let of_kazoo = (sections / 4).min(200);
    // Curator and kazoo have no second try for a session that ends while they start.
    let cluster = programs.start_with(3, &["tickTime=700"]).await.unwrap();
    // A member for each kind of client.
    let [second, third] = [1, 2].map(|member| cluster.address(member).to_string());
    let kazoo = |counted: &Counted, named: &str| {
        let mut kazoo = Command::new(python.as_ref()?);
        kazoo.args(["-c", KAZOO]);
        Some(counted.run(kazoo, &third, &[&of_kazoo.to_string()], &[named]))
    };
    let counted = Counted::new();
    if let Some(kazoo) = kazoo(&counted, "as-itself") {
        ours(&cluster, counted.folder.path(), of_kazoo).await;
        ended(kazoo).await;
        counted.check(of_kazoo * 2);
    }
    let counted = Counted::new();
    let curator = {
        let mut curator = programs.java(Some(&classes));
        curator.arg("Sections");
        counted.run(curator, &second, &["4", &sections.to_string()], &[])
    };
    let kazoo = kazoo(&counted, "as-curator");
    let mut waited = ours(&cluster, counted.folder.path(), sections).await;
    let curator = ended(curator).await;
    let mut all = sections * 2;
    if let Some(kazoo) = kazoo {
        ended(kazoo).await;
        all += of_kazoo;
    }
    counted.check(all);
    waited.sort_unstable();
    let at = |part: usize| waited[waited.len() * part / 100];
    println!("{all} sections; ours waited {:?}, at most {:?} in 99 of 100", at(50), at(99));
    println!("Curator: sections, and the same in µs: {curator}");
}
