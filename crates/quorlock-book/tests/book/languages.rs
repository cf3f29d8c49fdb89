//! The small clients of `docs/languages.md`, each where its language is installed, all under one lock.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use quorlock_testkit::{Servers, until, watched_group};
use tempfile::TempDir;

use crate::{skip, target};

/// How often each counts. `QUORLOCK_SECTIONS=2000` for more.
const TIMES: usize = 25;

/// The block of the page in a language, the program that runs its file, and the name of that.
const CLIENTS: &[(&str, &[&str], &str)] = &[
    ("bash", &["bash"], "lock.sh"),
    ("go", &["go", "run"], "lock.go"),
    ("java", &["java"], "Lock.java"),
    ("js", &["node"], "lock.js"),
    ("php", &["php"], "lock.php"),
    ("ruby", &["ruby"], "lock.rb"),
    ("python", &["python3"], "lock.py"),
];

/// `quorlock run` beside them.
const RUN: &str = r#"
name=$1 file=$2 i=0
while [ $i -lt "$3" ]; do
    quorlock run "$name" -- sh -c 'echo $(($(cat "$0") + 1)) >"$0"' "$file" || exit
    i=$((i + 1))
done
"#;

/// Writes the programs of the page into a folder.
fn write(folder: &Path) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/languages.md");
    let page = fs::read_to_string(page).unwrap();
    for (language, _, name) in CLIENTS {
        let (_, rest) = page.split_once(&format!("```{language}\n")).expect("the page has a client");
        fs::write(folder.join(name), rest.split_once("\n```").expect("its block ends").0).unwrap();
    }
}

fn start(folder: &Path, words: &[&str], file: &str, arguments: &[&str], nodes: &str) -> Option<Child> {
    let (program, options) = words.split_first()?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.args(options).arg(folder.join(file)).args(arguments).current_dir(folder).stdin(Stdio::null());
    command.env("PATH", format!("{}:{path}", target().display())).env("QUORLOCK_NODES", nodes);
    command
        .env("QUORLOCK_WAIT", "forever")
        .env("QUORLOCK_RESTART_GUARD", "off")
        .env("GOFLAGS", "-mod=mod")
        .env("GOTOOLCHAIN", "local");
    // If the test fails, it ends with this process.
    command
        .process_group(watched_group())
        .spawn()
        .map_err(|_| skip(&format!("{program} is not installed: {file} was not run")))
        .ok()
}

/// Starts servers, and returns them with their addresses and a folder with the programs of the page.
async fn world() -> Option<(Servers, String, TempDir)> {
    let Ok(servers) = Servers::start(3).await else {
        skip("no server starts");
        return None;
    };
    let (nodes, folder) = (servers.urls().join(","), tempfile::tempdir().unwrap());
    write(folder.path());
    Some((servers, nodes, folder))
}

#[tokio::test]
async fn a_lock_holds_between_programs_in_all_languages() {
    let Some((_servers, nodes, folder)) = world().await else { return };
    let counter = folder.path().join("counter");
    fs::write(&counter, "0").unwrap();
    let times = std::env::var("QUORLOCK_SECTIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(TIMES);
    let (number, file) = (times.to_string(), counter.display().to_string());
    let arguments = ["languages", file.as_str(), number.as_str()];
    let mut clients = Vec::new();
    fs::write(folder.path().join("run.sh"), RUN).unwrap();
    clients.extend(
        start(folder.path(), &["sh"], "run.sh", &arguments, &nodes).map(|client| (&"run.sh", client)),
    );
    for (_, words, name) in CLIENTS {
        clients.extend(start(folder.path(), words, name, &arguments, &nodes).map(|client| (name, client)));
    }
    assert!(!clients.is_empty(), "not even a shell is installed");
    let count = clients.len() * times;
    for (name, mut client) in clients {
        assert!(client.wait().unwrap().success(), "{name} failed");
    }
    assert_eq!(fs::read_to_string(&counter).unwrap().trim(), count.to_string(), "an increment is lost");
}

/// The counter is a pipe: a program that has the lock waits there for its count.
#[tokio::test]
async fn a_program_in_any_language_fails_if_its_lock_was_lost() {
    let Some((_servers, nodes, folder)) = world().await else { return };
    let mut clients = Vec::new();
    for (language, words, name) in CLIENTS {
        let counter = folder.path().join(format!("{language}.count"));
        mkfifo(&counter, Mode::S_IRWXU).unwrap();
        let arguments = [language, counter.to_str().unwrap(), "1"];
        let client = start(folder.path(), words, name, &arguments, &nodes);
        clients.extend(client.map(|client| (language, counter, client)));
    }
    for (language, counter, mut client) in clients {
        let open = |options: &mut OpenOptions| options.custom_flags(OFlag::O_NONBLOCK.bits()).open(&counter);
        let mut count = None;
        until("a program that reads", async || {
            assert!(client.try_wait().unwrap().is_none(), "{language} has ended");
            count = open(OpenOptions::new().write(true)).ok();
            count.is_some()
        })
        .await;
        let mut release = Command::new(target().join("quorlock"));
        release.args(["release", "--force", "--yes", language]).env("QUORLOCK_NODES", &nodes);
        assert!(release.env("QUORLOCK_RESTART_GUARD", "off").output().unwrap().status.success());
        // The program writes its count there.
        let _reader = open(OpenOptions::new().read(true)).unwrap();
        count.unwrap().write_all(b"0").unwrap();
        assert!(!client.wait().unwrap().success(), "{language} succeeds without its lock");
    }
}
