//! Builds the book and checks that it is complete and that all links have a target.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use quorlock_book::link::{anchors, links, normal};
use quorlock_book::page::{page, pages, root};
use quorlock_book::render::build;
use regex::Regex;

#[test]
fn every_page_is_in_the_summary() {
    let summary = page("docs/SUMMARY.md").unwrap();
    let listed: BTreeSet<PathBuf> =
        links(&summary.text).iter().map(|link| link.resolve(&summary.path).0).collect();
    for page in pages().unwrap().iter().filter(|page| page.path.starts_with("docs")) {
        assert!(listed.contains(&page.path), "{} is not in docs/SUMMARY.md", page.path.display());
    }
}

#[test]
fn the_current_checkout_is_built_into_its_target_folder() {
    let folder = tempfile::tempdir().unwrap();
    // The folder for temporary files may be a symbolic link.
    let checkout = folder.path().canonicalize().unwrap();
    fs::create_dir_all(checkout.join("docs/adr")).unwrap();
    fs::write(checkout.join("book.toml"), "[book]\nsrc = \"docs\"\n[build]\nbuild-dir = \"target/book\"\n")
        .unwrap();
    fs::write(checkout.join("docs/SUMMARY.md"), "[Only here](only.md)\n").unwrap();
    fs::write(checkout.join("docs/only.md"), "# Only here\n").unwrap();
    let built = Command::new(env!("CARGO_BIN_EXE_quorlock-book"))
        .current_dir(checkout.join("docs/adr"))
        .output()
        .unwrap();
    let printed = String::from_utf8(built.stdout).unwrap();
    assert_eq!(Path::new(printed.trim_end()), checkout.join("target/book/index.html"), "{:?}", built.stderr);
    assert!(checkout.join("target/book/only.html").is_file(), "the book of another checkout: {printed}");
}

#[test]
fn every_link_of_a_page_has_a_file_and_a_heading() {
    let mut pages = pages().unwrap();
    for path in [
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "compose/README.md",
        "docs/SUMMARY.md",
    ] {
        pages.push(page(path).unwrap());
    }
    let mut count = 0;
    for page in &pages {
        for link in links(&page.text) {
            let (path, heading) = link.resolve(&page.path);
            let here = format!("{}: the link {}", page.path.display(), link.target);
            let file = root().join(&path);
            assert!(file.exists(), "{here}: no such file");
            if let Some(heading) = heading {
                let text = fs::read_to_string(file).unwrap();
                assert!(anchors(&text).iter().any(|anchor| anchor == heading), "{here}: no such heading");
            }
            count += 1;
        }
    }
    assert!(count > 100, "{count} links were found");
}

#[test]
fn every_file_that_a_page_for_contributors_names_exists() {
    let mut files = Vec::new();
    for entry in fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path()) {
        let is_built =
            entry.ends_with("target") || entry.file_name().unwrap().to_string_lossy().starts_with('.');
        if entry.is_dir() && !is_built {
            find(&entry, &mut files);
        }
    }
    let named = Regex::new(r"`([A-Za-z0-9_./-]+(?:\.(?:rs|lua|sql)|/))`").unwrap();
    let pages = pages().unwrap().into_iter().filter(|page| page.path.starts_with("docs/adr"));
    let mut count = 0;
    for page in ["ARCHITECTURE.md", "docs/rules.md"].map(|path| page(path).unwrap()).into_iter().chain(pages)
    {
        for [place] in named.captures_iter(&page.text).map(|found| found.extract().1) {
            let is_there = |file: &PathBuf| file.ancestors().any(|path| path.ends_with(place));
            assert!(files.iter().any(is_there), "{} names {place}: no such file", page.path.display());
            count += 1;
        }
    }
    assert!(count > 100, "{count} names were found");
}

#[test]
fn every_link_in_the_built_book_has_a_target() {
    let folder = tempfile::tempdir().unwrap();
    let book = build(Some(folder.path().to_owned())).unwrap();
    let mut files = Vec::new();
    find(&book, &mut files);
    let html: Vec<&PathBuf> =
        files.iter().filter(|file| file.extension().is_some_and(|it| it == "html")).collect();
    for page in pages().unwrap().iter().filter(|page| page.path.starts_with("docs")) {
        let name = page.path.strip_prefix("docs").unwrap().with_extension("html");
        let name = if name.ends_with("README.html") { name.with_file_name("index.html") } else { name };
        assert!(book.join(&name).is_file(), "{} is not in the book", page.path.display());
    }

    let (href, id) =
        (Regex::new(r#"(?:href|src)="([^"]*)""#).unwrap(), Regex::new(r#"\bid="([^"]*)""#).unwrap());
    let texts: HashMap<&PathBuf, String> =
        html.iter().map(|file| (*file, fs::read_to_string(file).unwrap())).collect();
    let mut count = 0;
    for (file, text) in &texts {
        for target in href.captures_iter(text).map(|found| found.get(1).unwrap().as_str()) {
            if target.contains("://") || target.starts_with("data:") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let led =
                if path.is_empty() { (*file).clone() } else { normal(&file.parent().unwrap().join(path)) };
            let here = format!("{}: {target}", file.strip_prefix(&book).unwrap().display());
            assert!(led.is_file(), "{here}: no such file");
            if let Some(text) = texts.get(&led).filter(|_| !anchor.is_empty()) {
                let found = id.captures_iter(text).any(|found| &found[1] == anchor);
                assert!(found, "{here}: no such heading");
            }
            count += 1;
        }
    }
    assert!(count > 1000, "{count} links were found in {} pages", texts.len());
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find(&path, files);
        } else {
            files.push(path);
        }
    }
}

#[test]
fn every_link_of_the_pages_on_docs_rs_has_a_target() {
    let guide = page("src/guide.rs").unwrap().text;
    let there = page("src/guide/links.md").unwrap().text;
    let included = Regex::new(r#"include_str!\("\.\./(docs/[^"]+)"\)"#).unwrap();
    let mut count = 0;
    for found in included.captures_iter(&guide) {
        let page = page(&found[1]).unwrap();
        // A heading of the same page has the same anchor there.
        for link in links(&page.text).into_iter().filter(|link| !link.target.starts_with('#')) {
            let defined = there.contains(&format!("\n[{}]: ", link.target))
                || there.starts_with(&format!("[{}]: ", link.target));
            assert!(defined, "{}: [{}] is not in src/guide/links.md", page.path.display(), link.target);
            // rustdoc can only redirect reference links.
            let inline = format!("]({})", link.target);
            assert!(
                !page.text.contains(&inline),
                "{}: write [{}] for {inline}",
                page.path.display(),
                link.target
            );
            count += 1;
        }
    }
    assert!(count > 10, "{count} links were found");
}
