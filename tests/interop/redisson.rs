//! Two versions of Redisson and ours in its layout, on the same locks: one master, Sentinels and a Cluster.
//!
//! Each side enters `QUORLOCK_SECTIONS` critical sections, 200 unless set, of each lock.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use quorlock::{
    Coordinator, Fencing, RestartGuard, Wait,
    runtime::{Clock as _, SystemClock},
};
use quorlock_testkit::{Cluster, Servers, Service};

/// The versions of Redisson, and the folders of their packages.
const VERSIONS: [(&str, &str); 2] = [("3.52.0", "jars3.52.0"), ("4.7.0", "jars")];
/// The threads of each version, and our tasks.
const THREADS: usize = 3;

fn sections() -> usize {
    std::env::var("QUORLOCK_SECTIONS").map_or(200, |count| count.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_versions_of_redisson_and_ours_never_meet() {
    let Some(theirs) = programs() else { return };
    let mut theirs: Vec<Theirs> = theirs.into_iter().map(Theirs::start).collect();
    let one = Servers::start(1).await.unwrap();
    let service = Service::start("orders", 1, Servers::setup()).await.unwrap();
    let cluster = Cluster::start(3, 0).await.unwrap();
    for (place, url) in
        [("one master", one[0].url()), ("Sentinel", service.url()), ("Cluster", cluster.url())]
    {
        for kind in ["plain", "fenced"] {
            let folder = tempfile::tempdir().unwrap();
            let files = Files { number: folder.path().join("number"), log: folder.path().join("log") };
            fs::write(&files.number, "0").unwrap();
            let name = format!("jobs:{kind}");
            for their in &mut theirs {
                let count = sections();
                let (number, log) = (files.number.display(), files.log.display());
                writeln!(their.stdin, "{url} {name} {kind} {count} {THREADS} {number} {log}").unwrap();
            }
            for their in &mut theirs {
                assert_eq!(their.answer(), "connected");
            }
            ours(&url, &name, kind, &files).await;
            for their in &mut theirs {
                assert_eq!(their.answer(), "done");
            }
            files.check(&format!("{place}, {kind}"));
        }
    }
}

/// Two clients of ours.
async fn ours(url: &str, name: &str, kind: &str, files: &Files) {
    let fencing = if kind == "fenced" { Fencing::On } else { Fencing::Off };
    let url = format!("{url}{}layout=redisson", if url.contains('?') { '&' } else { '?' });
    let left = Arc::new(AtomicUsize::new(sections()));
    // One section at a time in this process: the number is read and written without another lock.
    let inside = Arc::new(Mutex::new(()));
    let mut tasks = Vec::new();
    for _ in 0..THREADS {
        let builder = Coordinator::builder().restart_guard(RestartGuard::Off);
        let lock = builder.nodes([&url]).build().unwrap().lock(name).fencing(fencing).wait(Wait::Forever);
        let (left, files, inside) = (Arc::clone(&left), files.clone(), Arc::clone(&inside));
        tasks.push(tokio::spawn(async move {
            let more = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            while more().is_ok() {
                let lease = lock.acquire().await.unwrap();
                let token = lease.fencing_token().map_or(0, u64::from);
                {
                    let _alone = inside.try_lock().expect("two of our clients hold the lock");
                    files.section(token);
                }
                lease.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// What all sides write.
#[derive(Clone)]
struct Files {
    number: PathBuf,
    log: PathBuf,
}

/// A section in the log.
struct Section {
    side: String,
    token: u64,
    entered: u64,
    left: u64,
}

impl Files {
    /// As in `Sections.java`.
    fn section(&self, token: u64) {
        let entered = micros();
        let number: u64 = fs::read_to_string(&self.number).unwrap().parse().unwrap();
        std::thread::yield_now();
        fs::write(&self.number, (number + 1).to_string()).unwrap();
        let line = format!("ours {token} {entered} {}\n", micros());
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .unwrap()
            .write_all(line.as_bytes())
            .unwrap();
    }

    /// None was lost, and each token is larger than the one before. Prints the time from one holder to the next.
    fn check(&self, what: &str) {
        let log = fs::read_to_string(&self.log).unwrap();
        let sections: Vec<Section> = log.lines().map(Section::read).collect();
        let number: usize = fs::read_to_string(&self.number).unwrap().parse().unwrap();
        assert_eq!(
            (number, sections.len()),
            ((1 + VERSIONS.len()) * self::sections(), number),
            "{what}: some were lost"
        );
        let mut waits = Vec::new();
        for pair in sections.windows(2) {
            let [one, next] = pair else { panic!("windows of two") };
            assert!(one.left <= next.entered, "{what}: {} met {}", one.side, next.side);
            assert!(next.token == 0 || next.token > one.token, "{what}: {} after {}", next.token, one.token);
            if one.side != next.side {
                let direction = match (&*one.side, &*next.side) {
                    ("ours", _) => "ours to theirs",
                    (_, "ours") => "theirs to ours",
                    _ => "theirs to theirs",
                };
                waits.push((direction, next.entered - one.left));
            }
        }
        println!("{what}: {number} sections, {} changes of side", waits.len());
        for direction in ["ours to theirs", "theirs to ours", "theirs to theirs"] {
            let mut times: Vec<_> =
                waits.iter().filter(|(way, _)| *way == direction).map(|(_, time)| *time).collect();
            times.sort_unstable();
            if let (Some(half), Some(most)) = (times.get(times.len() / 2), times.get(times.len() * 99 / 100))
            {
                println!("  {direction}: {} times, after {half} us (p50), {most} us (p99)", times.len());
            }
        }
    }
}

impl Section {
    fn read(line: &str) -> Section {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |place: usize| words[place].parse().unwrap();
        Section { side: words[0].to_owned(), token: number(1), entered: number(2), left: number(3) }
    }
}

fn micros() -> u64 {
    u64::try_from(SystemClock::default().wall().as_micros()).unwrap()
}

/// The class paths of both versions; `None`, with a message, if they are not installed.
fn programs() -> Option<Vec<(&'static str, PathBuf)>> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/interop/java");
    let there = |(version, jars): (&'static str, &str)| {
        let jars = built.join(jars);
        jars.join("interop-0.jar").exists().then(|| (version, jars.join("*")))
    };
    let programs: Option<Vec<_>> = VERSIONS.into_iter().map(there).collect();
    if programs.is_none() {
        let why = fs::read_to_string(built.join("skipped"))
            .unwrap_or_else(|_| "its driver was not built; run scripts/interop --build".to_owned());
        // Not with `eprintln`, which the harness captures while a test passes.
        drop(writeln!(std::io::stderr(), "skipped: interoperability with Redisson's layout: {}", why.trim()));
    }
    programs
}

/// A process of Redisson, which ends with its stdin.
struct Theirs {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Theirs {
    fn start((version, jars): (&str, PathBuf)) -> Theirs {
        let mut process = Command::new("java")
            .args(["-Xmx192m", "-XX:TieredStopAtLevel=1", "-cp"])
            .arg(jars)
            .arg("Sections")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut theirs = Theirs { process, stdin, stdout: BufReader::new(stdout) };
        let ready = theirs.answer();
        assert_eq!(ready, format!("ready Redisson {version}"));
        theirs
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        // An error means that it has ended already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
