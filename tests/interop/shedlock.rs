//! A client of `ShedLock` and clients of ours on one table: both increment the number in a file, not
//! atomically. The tests of `quorlock-postgres` and `quorlock-mysql` provide the servers.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "it is part of tests, which fail by panicking"
)]

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quorlock::{
    Coordinator, Fencing, RestartGuard, Wait,
    node::NodeKind,
    runtime::{Clock as _, SystemClock},
};

/// The total number of critical sections.
pub const TOTAL: usize = 2000;
/// Their threads, and our clients with as many tasks each.
const THREADS: usize = 2;
/// The pause between a release and the next attempt of the same thread or task.
const PAUSE: Duration = Duration::from_millis(5);

/// How often each side entered, and the number in the file.
#[derive(Debug)]
pub struct Outcome {
    pub ours: usize,
    pub theirs: usize,
    pub number: usize,
}

/// The class path of their client; `None`, with a message, if it is not installed.
pub fn jars() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/interop/java");
    let why = match fs::read_to_string(built.join("skipped")) {
        Ok(reason) => reason.trim().to_owned(),
        Err(_) if built.join("built").exists() => return Some(built.join("jars/*")),
        Err(_) => "its driver was not built; run scripts/interop --build".to_owned(),
    };
    // Not with `eprintln`, which the harness captures while a test passes.
    drop(writeln!(io::stderr(), "skipped: interoperability with ShedLock: {why}"));
    None
}

/// Runs both, theirs `locked` or `unlocked`, until the number is the total.
pub async fn run<K: NodeKind + Copy>(
    jars: PathBuf,
    kind: K,
    url: &str,
    jdbc: &str,
    theirs: &'static str,
) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("number");
    fs::write(&file, "0").unwrap();
    let child = Command::new("java")
        .arg("-cp")
        .arg(jars)
        .args(["ShedLock", jdbc, "job"])
        .arg(&file)
        .args([TOTAL.to_string(), THREADS.to_string(), theirs.to_owned()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
    let sections = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for _ in 0..THREADS {
        let builder = Coordinator::builder().kind(kind).restart_guard(RestartGuard::Off);
        let coordinator = builder.nodes([url]).build().unwrap();
        for _ in 0..THREADS {
            let lock = coordinator.lock("job").fencing(Fencing::Off).wait(Wait::Forever);
            let (file, sections, clock) = (file.clone(), Arc::clone(&sections), SystemClock::default());
            tasks.push(tokio::spawn(async move {
                let mut more = true;
                while more {
                    let lease = lock.acquire().await.unwrap();
                    more = section(&file, &sections);
                    lease.release().await.unwrap();
                    // Like theirs: retrying without a pause would starve it.
                    clock.sleep_until(clock.now() + PAUSE).await;
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    let ended = ended.await.unwrap();
    let output =
        [ended.stdout, ended.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    let count = output.lines().find_map(|line| line.strip_prefix("sections ")?.parse().ok());
    assert!(ended.status.success(), "their client output: {output}");
    let outcome = Outcome {
        ours: sections.load(Ordering::Relaxed),
        theirs: count.unwrap(),
        number: fs::read_to_string(&file).unwrap().parse().unwrap_or_default(),
    };
    println!("{outcome:?}");
    outcome
}

/// Reads and writes the number, not atomically. Returns whether there is more to do.
fn section(file: &Path, sections: &AtomicUsize) -> bool {
    let number: usize = fs::read_to_string(file).unwrap().parse().unwrap_or_default();
    // If increments are lost, the number may never reach the total.
    if number >= TOTAL || sections.load(Ordering::Relaxed) >= TOTAL {
        return false;
    }
    std::thread::yield_now();
    fs::write(file, (number + 1).to_string()).unwrap();
    sections.fetch_add(1, Ordering::Relaxed);
    true
}

/// Whether the number differs from the count of increments: some were lost or overwritten.
pub fn is_wrong(outcome: &Outcome) {
    assert_ne!(outcome.number, outcome.ours + outcome.theirs, "{outcome:?}");
}

/// Both sides entered, and no increment was lost.
pub fn none_lost(outcome: &Outcome) {
    assert!(outcome.ours > 0 && outcome.theirs > 0, "{outcome:?}");
    assert_eq!((outcome.number, outcome.ours + outcome.theirs), (TOTAL, TOTAL), "{outcome:?}");
}
