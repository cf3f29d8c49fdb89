//! Each promise in `docs/promises.md` has a page and tests that exist.

use std::fs;

use super::table::{exists, names, root, rows};

const PAGE: &str = "docs/promises.md";

/// The links in a cell: the file, and the heading in it.
fn links(cell: &str) -> Vec<(String, Option<String>)> {
    let targets = cell.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let split = |(target, _): (&str, &str)| match target.split_once('#') {
        Some((file, heading)) => (file.to_owned(), Some(heading.to_owned())),
        None => (target.to_owned(), None),
    };
    targets.map(split).collect()
}

/// The anchors of a page's headings.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let plain = |line: &str| line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    headings.map(plain).map(|anchor| anchor.replace(['`', ',', ':', '.', '(', ')'], "")).collect()
}

#[test]
fn every_promise_has_a_page_that_exists_and_tests_that_exist() {
    let rows = rows(PAGE);
    assert!(rows.len() > 15, "{} rows were read", rows.len());
    let mut wrong = Vec::new();
    for row in &rows {
        let [promise, cells @ ..] = &row[..] else { panic!("a row without cells") };
        let pages: Vec<_> = cells.iter().flat_map(|cell| links(cell)).collect();
        if pages.is_empty() {
            wrong.push(format!("no page: {promise}"));
        }
        for (file, heading) in pages {
            let text = fs::read_to_string(root().join("docs").join(&file)).unwrap_or_default();
            let is_there = heading.as_ref().is_none_or(|heading| anchors(&text).contains(heading));
            if text.is_empty() || !is_there {
                wrong.push(format!("no such page: {file} {heading:?}"));
            }
        }
        let tests: Vec<_> = cells.iter().flat_map(|cell| names(cell)).collect();
        if tests.is_empty() {
            wrong.push(format!("no test: {promise}"));
        }
        wrong.extend(tests.iter().filter(|name| !exists(name)).map(|name| format!("no such test: {name}")));
        if cells.last().is_none_or(String::is_empty) {
            wrong.push(format!("not broken on purpose: {promise}"));
        }
    }
    assert!(wrong.is_empty(), "{PAGE}:\n{}", wrong.join("\n"));
}

/// The bold text at the beginning of each entry.
fn leads<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    lines.filter_map(|line| line.split("**").nth(1)).map(|lead| lead.trim_end_matches('.')).collect()
}

#[test]
fn each_promise_of_the_readme_is_on_the_page() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let section = readme.split("\n## ").find(|section| section.starts_with("What it promises\n"));
    let section = section.expect("README.md has no section `What it promises`");
    let promised = leads(section.lines().filter(|line| line.starts_with("- **")));
    assert!(promised.len() > 5, "{promised:?}");
    let rows = rows(PAGE);
    let explained = leads(rows.iter().map(|row| row[0].as_str()));
    for promise in promised {
        assert!(explained.contains(&promise), "README.md promises `{promise}`, which {PAGE} lacks");
    }
}
