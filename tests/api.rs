//! The public interface of `quorlock` and of its crate of rules, which it exports, is stored in `api/` as
//! `cargo public-api` lists it, so that changes to it are visible in review. Types of other libraries are part of it, and of those of the other crates, only if
//! listed here with a reason.
//!
//! The tool needs nightly Rust, and takes minutes: `scripts/nightly interface` compares. Here the stored listing is read.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const WRITE: &str = "QUORLOCK_API=write cargo test -p quorlock --test api";

/// Items of other libraries that are part of the interface, and why.
const FOREIGN: [(&str, &str); 4] = [
    ("futures_core::future::BoxFuture", "another name of a type of the standard library"),
    ("tokio::io::async_read::AsyncRead", "connections are opened and read within tokio only"),
    ("tokio::io::async_write::AsyncWrite", "the same"),
    (
        "tokio::net::tcp::listener::TcpListener",
        "the built-in server of the test kit listens within tokio only",
    ),
];

/// Crates of ours and of the language, and its types.
const OWN: [&str; 9] = ["core", "alloc", "std", "quorlock", "bool", "i64", "str", "u64", "u128"];

/// What else has an interface that programs compile against, beside the kinds of node.
const CRATES: [&str; 4] = ["quorlock-protocol", "quorlock-servers", "quorlock-testkit", "quorlock-kinds"];

/// The packages whose interface is stored.
const STORED: [&str; 2] = ["quorlock", "quorlock-protocol"];

fn place(package: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("api/{package}.txt"))
}

fn stored() -> String {
    fs::read_to_string(place("quorlock")).unwrap()
}

/// Runs the tool, if that is wanted and it is installed.
fn listing(package: &str) -> Option<String> {
    // `eprintln` would be captured by the test harness.
    let skip =
        |reason: &str| drop(writeln!(std::io::stderr(), "skipped: the interface of {package}: {reason}"));
    if env::var_os("QUORLOCK_API").is_none() {
        skip("`scripts/nightly interface` compares it");
        return None;
    }
    let mut tool = Command::new("cargo");
    tool.args(["+nightly", "public-api", "--all-features", "-sss", "--package", package]);
    // That of this test would be of another toolchain.
    tool.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").current_dir(env!("CARGO_MANIFEST_DIR"));
    tool.env("CARGO_TARGET_DIR", Path::new(env!("CARGO_MANIFEST_DIR")).join("target/interface"));
    let output = tool.output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    if message.contains("no such command") || message.contains("is not installed") {
        skip("`cargo install --locked cargo-public-api` and nightly Rust are missing");
        return None;
    }
    assert!(output.status.success(), "{message}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_interface_matches_its_listing() {
    for package in STORED {
        let Some(now) = listing(package) else { return };
        if env::var_os("QUORLOCK_API").is_some_and(|value| value == "write") {
            fs::write(place(package), &now).unwrap();
        }
        let stored = fs::read_to_string(place(package)).unwrap();
        let [before, after]: [BTreeSet<&str>; 2] = [&stored, &now].map(|text| text.lines().collect());
        let gone: Vec<_> = before.difference(&after).collect();
        let come: Vec<_> = after.difference(&before).collect();
        assert!(
            gone.is_empty() && come.is_empty(),
            "the public interface of {package} changed. If this is intended, note it in CHANGELOG.md and run\n    {WRITE}\ngone: {gone:#?}\ncome: {come:#?}",
        );
    }
}

/// The paths of items of other libraries in a listing.
fn foreign(listing: &str) -> BTreeSet<&str> {
    let is_part = |character: char| character.is_alphanumeric() || matches!(character, '_' | ':');
    let words = listing.split(|character| !is_part(character)).map(|word| word.trim_matches(':'));
    words
        .filter(|path| {
            let first = path.split_once("::").map_or("", |(first, _)| first);
            // A parameter of a type, such as `K::Token`, begins with a capital.
            first.starts_with(|letter: char| letter.is_ascii_lowercase())
                && !OWN.contains(&first)
                && !first.starts_with("quorlock_")
        })
        .collect()
}

#[test]
fn the_interface_has_no_foreign_types_without_a_reason() {
    let allowed: BTreeSet<&str> = FOREIGN.into_iter().map(|(path, _)| path).collect();
    let stored = stored();
    let found = foreign(&stored);
    assert!(found.is_subset(&allowed), "of quorlock: {:?}", &found - &allowed);
    let kinds =
        quorlock_kinds::KINDS.iter().map(|kind| kind.package).filter(|package| *package != "quorlock");
    for package in CRATES.into_iter().chain(kinds) {
        let Some(listing) = listing(package) else { continue };
        let found = foreign(&listing);
        assert!(found.is_subset(&allowed), "of {package}: {:?}", &found - &allowed);
    }
}

#[test]
fn a_foreign_type_is_found_wherever_it_stands() {
    let listing = "pub fn quorlock::Lock::until(&self, core::option::Option<tokio_util::sync::Token>) -> K::Token\n\
                   impl core::convert::From<url::parser::ParseError> for quorlock_protocol::Resource";
    assert_eq!(foreign(listing), BTreeSet::from(["tokio_util::sync::Token", "url::parser::ParseError"]));
}

/// The public functions of each type in a listing, without the parameters of types.
fn functions(listing: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut functions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in listing.lines() {
        let Some((_, signature)) = line.split_once("fn quorlock::") else { continue };
        let (mut path, mut depth) = (String::new(), 0_u32);
        for character in signature.chars() {
            match character {
                '<' => depth += 1,
                '>' => depth -= 1,
                '(' if depth == 0 => break,
                _ if depth == 0 => path.push(character),
                _ => {}
            }
        }
        let Some((of, function)) = path.rsplit_once("::") else { continue };
        functions.entry(of.to_owned()).or_default().insert(function.to_owned());
    }
    functions
}

/// Functions that only async programs have, and why.
const ASYNC_ONLY: [(&str, &str, &str); 3] = [
    ("Coordinator", "builder", "the builder is the same, and has `build_blocking`"),
    ("Lease", "run_until_lost", "a thread cannot be cancelled from outside"),
    ("LeaseWatch", "run_until_lost", "the same"),
];

#[test]
fn each_blocking_type_has_every_method_of_its_async_type() {
    let stored = stored();
    let functions = functions(&stored);
    // Implementations of traits, such as `fmt` and `clone`.
    let derived = ["fmt", "clone", "from", "drop"];
    let (mut lacking, mut compared) = (BTreeSet::new(), BTreeSet::new());
    for (path, of_async) in functions.iter().filter(|(path, _)| !path.starts_with("blocking::")) {
        let name = path.rsplit("::").next().unwrap();
        let Some(of_threads) = functions.get(&format!("blocking::{name}")) else { continue };
        compared.insert(name);
        let missing =
            of_async.difference(of_threads).filter(|function| !derived.contains(&function.as_str()));
        lacking.extend(missing.map(|function| (name, function.as_str())));
    }
    assert_eq!(lacking, ASYNC_ONLY.iter().map(|(name, function, _)| (*name, *function)).collect());
    assert_eq!(compared.len(), 10, "exactly the types that wait: {compared:?}");
}
