//! Which module of the library may use which: the layers of ARCHITECTURE.md.

use std::fs;
use std::path::{Path, PathBuf};

/// From bottom to top. A module uses itself and lower layers, but no module of its own layer. Above all
/// of them are `lib.rs`, with the pages of `guide`, and `blocking`, which uses the public interface.
const LAYERS: [&[&str]; 12] = [
    &["address", "duration", "fence", "forward", "metrics", "runtime"],
    &["transport"],
    &["node"],
    &["doctor", "telemetry"],
    &["quorum", "redis"],
    &["error"],
    &["engine"],
    &["health", "lease"],
    &["lock"],
    &["election", "semaphore"],
    &["coordinator"],
    &["blocking", "guide", "lib"],
];

pub(crate) fn files(place: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            files(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
}

/// The modules that a file names after `crate::`, without comments.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
    let ends = |c: char| !(c.is_alphanumeric() || c == '_');
    code.flat_map(|line| line.split("crate::").skip(1))
        .map(move |rest| rest.split(ends).next().unwrap_or(rest))
}

#[test]
fn no_layer_names_one_above_or_next_to_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    files(&source, &mut all);
    for file in &all {
        let within = file.strip_prefix(&source).unwrap().with_extension("");
        let part = within.iter().next().unwrap().to_str().unwrap();
        let layer = LAYERS.iter().position(|layer| layer.contains(&part));
        let layer = layer.unwrap_or_else(|| panic!("{part} has no layer: give it one here"));
        let below = |name: &str| LAYERS.iter().take(layer).any(|layer| layer.contains(&name));
        // The top layer may use everything, including names from `lib.rs`.
        let is_wrong = |name: &&str| *name != part && !below(name) && layer + 1 < LAYERS.len();
        wrong.extend(
            named(&fs::read_to_string(file).unwrap())
                .filter(is_wrong)
                .map(|name| format!("{within:?} names {name}")),
        );
    }
    assert!(all.len() > 100 && wrong.is_empty(), "{} files: {wrong:#?}", all.len());
}
