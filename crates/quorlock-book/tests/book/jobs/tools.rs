//! Python packages with the schemas of other programs.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use quorlock_book::page::root;
use serde_json::Value;

use crate::skip;

/// Returns the folder with the packages, if they are installed.
pub(crate) fn packages(name: &str) -> Option<PathBuf> {
    let folder = root().join(".tools/jobs").join(name);
    if !folder.join("installed").exists() {
        skip(&format!("{name} is not in .tools/jobs: scripts/check installs it where there is Python"));
        return None;
    }
    Some(folder)
}

/// Returns the documents of YAML, without checking them.
pub(crate) fn read(yaml: &str) -> Option<Vec<Value>> {
    checked("none", yaml)
}

/// Checks YAML against the schema of `kind`, and returns its documents.
pub(crate) fn checked(kind: &str, yaml: &str) -> Option<Vec<Value>> {
    let ended = check(kind, yaml)?;
    let output = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{kind}: {output}\n{yaml}");
    let documents: Value = serde_json::from_slice(&ended.stdout).unwrap();
    Some(documents.as_array().unwrap().clone())
}

/// Runs `manifests.py` on YAML.
pub(crate) fn check(kind: &str, yaml: &str) -> Option<Output> {
    let packages = packages("schemas")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/book/jobs/manifests.py");
    let mut python = Command::new("python3");
    python.arg(script).arg(kind).env("PYTHONPATH", packages);
    python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut started = python.spawn().unwrap();
    started.stdin.take().unwrap().write_all(yaml.as_bytes()).unwrap();
    Some(started.wait_with_output().unwrap())
}

/// Returns the strings of a list.
pub(crate) fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().unwrap_or_else(|| panic!("not a list: {value}"));
    items
        .iter()
        .map(|item| item.as_str().unwrap_or_else(|| panic!("not a string: {item}")).to_owned())
        .collect()
}
