//! Each promise in `docs/trust.md` has a page and tests that exist, and each assumption has tests in which it is broken.

use std::fs;

use super::table::{exists, names, root, rows_in};

const PAGE: &str = "docs/trust.md";

/// The rows of what is promised, and of what is not.
fn promises() -> Vec<Vec<String>> {
    [rows_in(PAGE, "Promised"), rows_in(PAGE, "Not promised")].concat()
}

/// The links in a cell, `[text](target)` or `[text][target]`: the file, and the heading in it. Without a file it is a
/// heading of the same page.
fn links(cell: &str) -> Vec<(String, Option<String>)> {
    let ends = [("](", ')'), ("][", ']')];
    let targets = ends
        .into_iter()
        .flat_map(|(begin, end)| cell.split(begin).skip(1).filter_map(move |rest| rest.split_once(end)));
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
    let rows = promises();
    assert!(rows.len() > 15, "{} rows were read", rows.len());
    let mut wrong = Vec::new();
    for row in &rows {
        let [promise, cells @ ..] = &row[..] else { panic!("a row without cells") };
        let pages: Vec<_> = cells.iter().flat_map(|cell| links(cell)).collect();
        if pages.is_empty() {
            wrong.push(format!("no page: {promise}"));
        }
        for (file, heading) in pages {
            let path = if file.is_empty() { root().join(PAGE) } else { root().join("docs").join(&file) };
            let text = fs::read_to_string(path).unwrap_or_default();
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

/// Whether there is a test or a scenario of `quorlock-chaos` of this name.
fn breaks(name: &str) -> bool {
    let scenario =
        name.strip_prefix("chaos::").map(|file| format!("crates/quorlock-chaos/scenarios/{file}.toml"));
    scenario.is_some_and(|file| {
        fs::read_to_string(root().join(file)).is_ok_and(|text| text.contains("violations = [\""))
    }) || exists(name)
}

#[test]
fn every_test_of_a_broken_assumption_exists() {
    let rows = rows_in(PAGE, "What it rests on");
    let named: Vec<_> = rows.iter().flat_map(|row| names(row.last().unwrap())).collect();
    assert!(named.len() > 15, "{} were read", named.len());
    let missing: Vec<_> = named.iter().filter(|name| !breaks(name)).collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
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
    let rows = promises();
    let explained = leads(rows.iter().map(|row| row[0].as_str()));
    for promise in promised {
        assert!(explained.contains(&promise), "README.md promises `{promise}`, which {PAGE} lacks");
    }
}
