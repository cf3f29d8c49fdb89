//! The book, and what it says: its links, commands, blocks of Rust, settings and jobs.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod book;
mod commands;
mod jobs;
mod languages;
mod masters;
mod nightly;
mod questions;
mod snippets;

use std::io::Write as _;
use std::path::{Path, PathBuf};

fn skip(reason: &str) {
    // `eprintln` would be captured by the test harness.
    drop(writeln!(std::io::stderr(), "skipped: {reason}"));
}

/// Returns the folder of the built programs.
fn target() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().and_then(Path::parent).unwrap().to_owned();
    for program in ["quorlock", "quorlock-chaos"] {
        let built = target.join(program);
        assert!(built.exists(), "{} is not built; run `cargo build --all-features`", built.display());
    }
    target
}
