//! The public interface of `quorlock` is stored in `api/`, so that changes to it are visible in review. Types of
//! other libraries are part of it, and of those of the other crates, only if listed here with a reason.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a syntax tree has many kinds, and few concern an interface"
)]

mod blocking;
mod listing;
mod names;
mod shorten;
mod source;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;

use listing::Listing;
use source::Library;

const WRITE: &str = "QUORLOCK_API=write cargo test -p quorlock --test api";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn quorlock() -> Library {
    Library::read("quorlock", root())
}

fn protocol() -> Library {
    Library::read("quorlock_protocol", &root().join("crates/quorlock-protocol"))
}

/// What starts servers, and the test kit, which exports it.
fn for_tests() -> [Library; 2] {
    ["quorlock_servers", "quorlock_testkit"].map(read)
}

fn read(name: &'static str) -> Library {
    Library::read(name, &root().join("crates").join(name.replace('_', "-")))
}

/// The kinds of node that have a package of their own.
fn kinds() -> [Library; 6] {
    [
        "quorlock_postgres",
        "quorlock_sqlite",
        "quorlock_mysql",
        "quorlock_etcd",
        "quorlock_zookeeper",
        "quorlock_exec",
    ]
    .map(read)
}

/// The difference from the stored text, as removed and added lines.
fn difference(known: &str, text: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (known.lines().collect(), text.lines().collect());
    let same = before.iter().zip(&after).take_while(|(one, other)| one == other).count();
    let rest = before[same..].iter().rev().zip(after[same..].iter().rev());
    let tail = rest.take_while(|(one, other)| one == other).count();
    let gone = before[same..before.len() - tail].iter().map(|line| format!("- {line}"));
    let come = after[same..after.len() - tail].iter().map(|line| format!("+ {line}"));
    gone.chain(come).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_interface_matches_its_listing() {
    let file = root().join("api/quorlock.txt");
    let head =
        format!("// The public interface of `quorlock`, with all features. Written by\n//     {WRITE}\n");
    let text = head + &Listing::of(&quorlock()).text;
    if env::var_os("QUORLOCK_API").is_some_and(|value| value == "write") {
        fs::write(&file, &text).unwrap();
    }
    let known = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        known == text,
        "the public interface changed. If this is intended, regenerate the listing and note it in CHANGELOG.md:\n    {WRITE}\n{}:\n{}",
        file.display(),
        difference(&known, &text),
    );
}

/// Items of other libraries that are part of the interface, and why.
const FOREIGN: &[(&str, &str)] = &[
    ("tokio::io::AsyncRead", "connections are opened and read within tokio only"),
    ("tokio::io::AsyncWrite", "the same"),
];

/// Additional ones of the servers.
const FOREIGN_IN_TESTS: &[(&str, &str)] =
    &[("tokio::net::TcpListener", "the built-in server listens within tokio only")];

#[test]
fn the_interface_has_no_foreign_types_without_a_reason() {
    let names =
        |list: &[(&str, &str)]| list.iter().map(|(name, _)| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(Listing::of(&protocol()).foreign, BTreeSet::new(), "of quorlock-protocol");
    let mut of_quorlock = Listing::of(&quorlock()).foreign;
    of_quorlock.retain(|name| !name.starts_with("quorlock_protocol"));
    assert_eq!(of_quorlock, names(FOREIGN), "of quorlock");
    let allowed = names(&[FOREIGN, FOREIGN_IN_TESTS].concat());
    for library in for_tests() {
        let mut foreign = Listing::of(&library).foreign;
        foreign.retain(|name| !name.starts_with("quorlock::") && !name.starts_with("quorlock_servers"));
        assert!(foreign.is_subset(&allowed), "of {}: {:?}", library.name, &foreign - &allowed);
    }
    for kind in kinds() {
        let mut foreign = Listing::of(&kind).foreign;
        foreign.retain(|name| !name.starts_with("quorlock::"));
        assert_eq!(foreign, BTreeSet::new(), "of {}", kind.name);
    }
}

#[test]
fn private_hidden_and_test_items_are_not_listed() {
    let text = Listing::of(&Library::read("sample", &root().join("tests/api/sample"))).text;
    assert_eq!(text, include_str!("sample/expected.txt"));
}
