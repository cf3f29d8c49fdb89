//! `etcdctl lock`, Go's `concurrency.Mutex` and this library in one queue.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use quorlock::Wait;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock_testkit::EtcdCluster;

use crate::queue::process;
use crate::support::newest;

const NAME: &str = "jobs/nightly";
/// Of each mutex; of `etcdctl`, which is a process for each, a tenth. `QUORLOCK_SECTIONS=2000` for a longer run.
const SECTIONS: usize = 80;

/// Adds one to a number in a file, by reading and writing it.
fn section(folder: &Path, revision: u64) {
    let counter = folder.join("counter");
    let number: usize = fs::read_to_string(&counter).unwrap().trim().parse().unwrap();
    fs::write(&counter, (number + 1).to_string()).unwrap();
    let mut log = fs::File::options().append(true).open(folder.join("log")).unwrap();
    writeln!(log, "{revision} ours").unwrap();
}

/// Runs this number of sections in a few processes, each of which has one place as a session of Go's has, and returns how long each
/// has waited.
async fn ours(cluster: &EtcdCluster, folder: &Path, sections: usize) -> Vec<Duration> {
    const TASKS: usize = 4;
    let clock = SystemClock::default();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let lock = process(cluster).lock(NAME).wait(Wait::Forever);
            let (folder, times) =
                (folder.to_owned(), sections / TASKS + usize::from(task < sections % TASKS));
            tokio::spawn(async move {
                let mut waited = Vec::new();
                for _ in 0..times {
                    let asked = clock.now();
                    let lease = lock.acquire().await.unwrap();
                    waited.push(clock.now().since(asked));
                    section(&folder, lease.store_revision().unwrap());
                    lease.release().await.unwrap();
                }
                waited
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn all_clients_of_etcd_stand_in_one_queue() {
    let Some(programs) = newest() else { return };
    let mutex = programs.program("mutex");
    if !mutex.is_file() {
        return eprintln!("skipped: Go's mutex was not built beside {programs}; `scripts/etcd` does");
    }
    let sections = std::env::var("QUORLOCK_SECTIONS").ok().and_then(|number| number.parse().ok());
    let sections: usize = sections.unwrap_or(SECTIONS);
    let cluster = programs.start(3).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [counter, log] = ["counter", "log"].map(|name| folder.path().join(name));
    fs::write(&counter, "0").unwrap();
    fs::write(&log, "").unwrap();
    let mut go = Command::new(mutex);
    go.args([&cluster.endpoints(), NAME, "4", &sections.to_string()]).args([&counter, &log]);
    let go = go.stdout(Stdio::piped()).spawn().unwrap();
    let script = r#"v=$(cat "$1"); echo $((v + 1)) > "$1"
        revision=$("$3" --endpoints "$4" get "$ETCD_LOCK_KEY" -w fields | sed -n 's/^"CreateRevision" : //p')
        echo "$revision etcdctl" >> "$2""#;
    let (ctl, endpoints) = (programs.program("etcdctl"), cluster.endpoints());
    let (count, write) = (counter.clone(), log.clone());
    let ctls = tokio::task::spawn_blocking(move || {
        for _ in 0..sections / 10 {
            let mut lock = Command::new(&ctl);
            lock.env("ETCDCTL_API", "3").args([
                "--endpoints",
                &endpoints,
                "lock",
                NAME,
                "--",
                "sh",
                "-c",
                script,
                "sh",
            ]);
            let done = lock.args([&count, &write, &ctl]).arg(&endpoints).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
    });
    let mut waited = ours(&cluster, folder.path(), sections).await;
    ctls.await.unwrap();
    let go = go.wait_with_output().unwrap();
    assert!(go.status.success());
    let all = sections * 2 + sections / 10;
    assert_eq!(fs::read_to_string(&counter).unwrap().trim(), all.to_string(), "a section was lost");
    let log = fs::read_to_string(&log).unwrap();
    let revisions: Vec<u64> =
        log.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(revisions.len(), all);
    assert!(revisions.is_sorted(), "not in the order of create revisions");
    waited.sort_unstable();
    let at = |part: usize| waited[waited.len() * part / 100];
    println!("ours waited {:?}, at most {:?} in 99 of 100", at(50), at(99));
    println!("Go: sections, and the same in ms: {}", String::from_utf8_lossy(&go.stdout).trim());
}
