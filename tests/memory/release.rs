//! What visitors of crates.io and docs.rs see.

use toml::{Table, Value};

const MANIFEST: &str = include_str!("../../Cargo.toml");
const LIBRARY: &str = include_str!("../../src/lib.rs");
const README: &str = include_str!("../../README.md");
const CHANGELOG: &str = include_str!("../../CHANGELOG.md");

fn manifest() -> Table {
    MANIFEST.parse().unwrap()
}

#[test]
fn each_feature_is_documented_for_docs_rs_and_no_other() {
    let manifest = manifest();
    let mut features: Vec<&str> =
        manifest["features"].as_table().unwrap().keys().map(String::as_str).collect();
    features.retain(|feature| *feature != "default");
    let section = LIBRARY.split("//! # Features\n").nth(1).expect("a section on features");
    let section = section.split("//! # ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("//! | `"));
    let mut documented: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    features.sort_unstable();
    documented.sort_unstable();
    assert_eq!(documented, features, "the table in src/lib.rs, and [features] in Cargo.toml");
}

#[test]
fn no_feature_is_on_by_default() {
    assert_eq!(manifest()["features"]["default"], Value::Array(Vec::new()));
}

#[test]
fn docs_rs_shows_all_features() {
    assert_eq!(manifest()["package"]["metadata"]["docs"]["rs"]["all-features"], Value::Boolean(true));
}

#[test]
fn the_readme_names_the_declared_minimum_rust() {
    let manifest = manifest();
    let least = manifest["workspace"]["package"]["rust-version"].as_str().unwrap();
    assert!(README.contains(&format!("Rust {least}")), "the README must name Rust {least}");
}

#[test]
fn the_changelog_keeps_its_form() {
    let headings: Vec<&str> = CHANGELOG.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let (first, released) = headings.split_first().expect("a section");
    assert_eq!(*first, "Unreleased");
    let dated = |heading: &&&str| {
        let parts = heading.strip_prefix('[').and_then(|rest| rest.split_once("] - "));
        parts.is_some_and(|(version, date)| version.split('.').count() == 3 && date.split('-').count() == 3)
    };
    assert_eq!(
        released.iter().filter(dated).count(),
        released.len(),
        "as `[1.2.3] - 2026-01-31`: {released:?}"
    );
    let kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Known limits"].map(Some);
    for kind in CHANGELOG.lines().filter_map(|line| line.strip_prefix("### ")) {
        assert!(kinds.contains(&Some(kind)), "`{kind}` is no kind of change");
    }
}
