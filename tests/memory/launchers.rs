//! Servers are started in one place: `quorlock-servers`, with its faults and its cleaning up.

use std::fs;
use std::path::{Path, PathBuf};

const LAUNCHERS: &str = "crates/quorlock-servers/src";
const PROGRAMS: [&str; 8] = [
    "redis-server",
    "valkey-server",
    "initdb",
    "pg_ctl",
    "postgres",
    "mariadbd",
    "mysqld",
    "mariadb-install-db",
];

fn sources(place: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap().to_string_lossy();
        if entry.is_dir() && !["target", "node_modules"].contains(&&*name) && !name.starts_with('.') {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
}

/// The lines that name one of the programs as a command, or as part of a path to it.
fn launches(text: &str) -> impl Iterator<Item = &str> {
    let named = |line: &str, program: &str| {
        let starts = line.contains("Command::new(") || line.contains("program(") || line.contains(".join(");
        starts && line.contains(&format!("\"{program}\"")) || line.contains(&format!("/bin/{program}\""))
    };
    text.lines().filter(move |line| PROGRAMS.iter().any(|program| named(line, program)))
}

#[test]
fn only_the_launchers_start_servers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    sources(root, &mut all);
    let (launchers, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|file| file.starts_with(root.join(LAUNCHERS)));
    assert!(
        launchers.len() > 10 && others.len() > 300,
        "{} and {} were found",
        launchers.len(),
        others.len()
    );
    let mut wrong = Vec::new();
    for file in others {
        let text = fs::read_to_string(&file).unwrap();
        let place = file.strip_prefix(root).unwrap().display();
        wrong.extend(launches(&text).map(|line| format!("{place}: {}", line.trim())));
    }
    assert!(
        wrong.is_empty(),
        "start these by `Servers` or `Engine` of quorlock-servers:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn a_launch_is_found() {
    assert_eq!(launches("Command::new(\"redis-server\")").count(), 1);
    assert_eq!(launches("run(programs.join(\"initdb\"))").count(), 1);
    assert_eq!(launches("\"/usr/lib/postgresql/15/bin/postgres\"").count(), 1);
    assert_eq!(launches("println!(\"install redis-server\")").count(), 0);
}
