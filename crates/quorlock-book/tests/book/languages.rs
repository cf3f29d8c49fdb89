//! The small clients of `docs/languages.md`, each where its language is installed, all under one lock.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use quorlock_testkit::Servers;

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

fn block<'a>(page: &'a str, language: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("```{language}\n")).expect("the page has a client");
    rest.split_once("\n```").expect("its block ends").0
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
    command.spawn().map_err(|_| skip(&format!("{program} is not installed: {file} was not run"))).ok()
}

#[tokio::test]
async fn a_lock_holds_between_programs_in_all_languages() {
    let Ok(servers) = Servers::start(3).await else { return skip("no server starts") };
    let nodes = servers.iter().map(quorlock_testkit::Server::url).collect::<Vec<_>>().join(",");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/languages.md");
    let page = fs::read_to_string(page).unwrap();
    let folder = tempfile::tempdir().unwrap();
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
    for (language, words, name) in CLIENTS {
        fs::write(folder.path().join(name), block(&page, language)).unwrap();
        clients.extend(start(folder.path(), words, name, &arguments, &nodes).map(|client| (name, client)));
    }
    assert!(!clients.is_empty(), "not even a shell is installed");
    let count = clients.len() * times;
    for (name, mut client) in clients {
        assert!(client.wait().unwrap().success(), "{name} failed");
    }
    assert_eq!(fs::read_to_string(&counter).unwrap().trim(), count.to_string(), "an increment is lost");
}
