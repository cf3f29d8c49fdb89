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
fn the_changelog_begins_with_this_version() {
    let manifest = manifest();
    let version = manifest["workspace"]["package"]["version"].as_str().unwrap();
    let mut headings = CHANGELOG.lines().filter_map(|line| line.strip_prefix("## "));
    let latest = headings.find(|heading| *heading != "Unreleased").expect("a section of a version");
    assert!(latest.starts_with(version), "`{latest}` is not a section of {version}");
}
