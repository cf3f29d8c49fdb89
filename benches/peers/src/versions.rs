//! Versions of the measured software.

use std::process::Command;

/// The commit of this project, with `-dirty` if files differ from it.
pub(crate) fn commit() -> String {
    let described = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let commit = described.ok().filter(|ended| ended.status.success()).map(|ended| ended.stdout);
    let commit = commit.and_then(|commit| String::from_utf8(commit).ok()).unwrap_or_default();
    if commit.is_empty() { "unknown".to_owned() } else { commit.trim().to_owned() }
}

/// `rslock 0.10.0`, as this program was built.
pub(crate) fn of_crate(name: &str) -> String {
    format!("{name} {}", version(include_str!("../Cargo.lock"), name).unwrap_or("of unknown version"))
}

/// The newest, if the lock file has several: the older ones are dependencies of other crates.
fn version<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    lock.split("[[package]]")
        .filter(|package| field(package, "name") == Some(name))
        .filter_map(|package| field(package, "version"))
        .last()
}

fn field<'a>(package: &'a str, field: &str) -> Option<&'a str> {
    package.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(" = \"")?.strip_suffix('"'))
}
