//! Curator's `InterProcessMutex`, kazoo's `Lock` and this library in one queue.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use quorlock::Wait;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock_testkit::ZooKeeperCluster;

use crate::foreign::{Foreign, dir};
use crate::queue::process;
use crate::support::{common, programs};

const NAME: &str = "jobs/together";
/// Of Curator and of ours; of kazoo a quarter of that, at most 200. `QUORLOCK_SECTIONS=2000` for a longer run.
const SECTIONS: usize = 200;

/// kazoo, told of the names that the others give.
const KAZOO: &str = r"
import sys
from kazoo.client import KazooClient
connect, path, sections, counter, log = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5]
client = KazooClient(hosts=connect)
client.start()
for _ in range(sections):
    lock = client.Lock(path, extra_lock_patterns=['-lock-'])
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

#[tokio::test(flavor = "multi_thread")]
async fn all_clients_of_zookeeper_stand_in_one_queue() {
    let (Some(programs), Some(cluster)) = (programs(), common().await) else { return };
    let classes = root().join(".tools/zookeeper/classes");
    if !classes.join("Sections.class").is_file() {
        return eprintln!("skipped: Curator's part was not compiled; `scripts/zookeeper` does");
    }
    let sections = std::env::var("QUORLOCK_SECTIONS").ok().and_then(|number| number.parse().ok());
    let sections: usize = sections.unwrap_or(SECTIONS);
    let folder = tempfile::tempdir().unwrap();
    let [counter, log] = ["counter", "log"].map(|name| folder.path().join(name));
    fs::write(&counter, "0").unwrap();
    fs::write(&log, "").unwrap();
    // A member for each kind of client.
    let [second, third] = [1, 2].map(|member| cluster.address(member).to_string());
    let mut curator = programs.java(Some(&classes));
    curator.args(["Sections", &second, &dir(NAME), "4", &sections.to_string()]).args([&counter, &log]);
    let curator = curator.stdout(Stdio::piped()).spawn().unwrap();
    let of_kazoo = (sections / 4).min(200);
    let kazoo = python().map(|python| {
        let mut kazoo = Command::new(python);
        kazoo.args(["-c", KAZOO, &third, &dir(NAME), &of_kazoo.to_string()]).args([&counter, &log]);
        kazoo.spawn().unwrap()
    });
    if kazoo.is_none() {
        eprintln!("skipped: kazoo is not installed; `scripts/zookeeper` does");
    }
    let mut waited = ours(cluster, folder.path(), sections).await;
    let of_kazoo = if kazoo.is_some() { of_kazoo } else { 0 };
    let ended = tokio::task::spawn_blocking(move || {
        let kazoo = kazoo.map(|mut kazoo| kazoo.wait().unwrap());
        (kazoo, curator.wait_with_output().unwrap())
    });
    let (kazoo, curator) = ended.await.unwrap();
    assert!(curator.status.success() && kazoo.is_none_or(|kazoo| kazoo.success()));
    let all = sections * 2 + of_kazoo;
    assert_eq!(fs::read_to_string(&counter).unwrap().trim(), all.to_string(), "a section was lost");
    let log = fs::read_to_string(&log).unwrap();
    let sequences: Vec<u64> =
        log.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(sequences.len(), all);
    assert!(sequences.is_sorted(), "not in the order of the numbers");
    waited.sort_unstable();
    let at = |part: usize| waited[waited.len() * part / 100];
    println!("{all} sections; ours waited {:?}, at most {:?} in 99 of 100", at(50), at(99));
    println!("Curator: sections, and the same in µs: {}", String::from_utf8_lossy(&curator.stdout).trim());
}
