//! The tests named in `docs/comparison.md` and `docs/rules.md` exist.

use std::fs;
use std::path::{Path, PathBuf};

const COMPARISON: &str = "docs/comparison.md";
const RULES: &str = "docs/rules.md";

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The cells of all table rows in a document, without the headers.
pub(crate) fn rows(document: &str) -> Vec<Vec<String>> {
    rows_of(&fs::read_to_string(root().join(document)).unwrap())
}

/// The rows of the section `heading` of a document.
pub(crate) fn rows_in(document: &str, heading: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let is_it = |section: &&str| section.strip_prefix(heading).is_some_and(|rest| rest.starts_with('\n'));
    let section = text.split("\n## ").find(is_it);
    rows_of(section.unwrap_or_else(|| panic!("{document} has no section `{heading}`")))
}

fn defects() -> Vec<Vec<String>> {
    rows_in(COMPARISON, "Defects")
}

fn rows_of(text: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    let lines: Vec<&str> = text.lines().collect();
    let is_ruler = |line: &str| line.starts_with("|---");
    let is_head = |index: usize| lines.get(index + 1).is_some_and(|next| is_ruler(next));
    let body = lines
        .iter()
        .enumerate()
        .filter(|(index, line)| line.starts_with('|') && !is_ruler(line) && !is_head(*index));
    body.map(|(_, line)| cells(line)).collect()
}

/// The names in backticks that have a path.
pub(crate) fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).filter(|name| name.contains("::")).collect()
}

/// A package's folder of tests, and the folders of its test programs in it.
fn programs(package: &Path) -> Vec<PathBuf> {
    let tests = package.join("tests");
    let inside = fs::read_dir(&tests).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut folders: Vec<_> = inside.filter(|path| path.is_dir()).collect();
    folders.push(tests);
    folders
}

/// The files that may contain the test `name`, with the rest of the name within each: the test
/// `rivals::table::f` is in `tests/memory/rivals/table.rs`, and `fencing::m::f` in `tests/memory/fencing.rs`.
fn files(name: &str) -> Vec<(PathBuf, String)> {
    let (target, rest) = name.split_once("::").unwrap();
    let mut folders = programs(root());
    for member in fs::read_dir(root().join("crates")).unwrap() {
        folders.extend(programs(&member.unwrap().path()));
    }
    let mut candidates = Vec::new();
    for folder in folders {
        candidates.push((folder.join(format!("{target}.rs")), rest.to_owned()));
        candidates.push((folder.join(target).join("main.rs"), rest.to_owned()));
        if let Some((module, rest)) = rest.split_once("::") {
            candidates.push((folder.join(target).join(format!("{module}.rs")), rest.to_owned()));
        }
    }
    if let ("contract", Some((module, rest))) = (target, rest.split_once("::")) {
        let checks = root().join("crates/quorlock-testkit/src/contract");
        candidates.push((checks.join(format!("{module}.rs")), rest.to_owned()));
    }
    // `postgres::node::f` is in `node.rs` of a test program of `crates/quorlock-postgres`.
    if let Some((module, rest)) = rest.split_once("::") {
        for folder in programs(&root().join(format!("crates/quorlock-{target}"))) {
            candidates.push((folder.join(format!("{module}.rs")), rest.to_owned()));
        }
    }
    // `model::lock::f` is a case of the model `lock`.
    if let ("model", Some((module, case))) = (target, rest.split_once("::")) {
        let model = root().join("crates/quorlock-model/src").join(module);
        candidates.push((model.with_extension("rs"), case.to_owned()));
        candidates.push((model.join("cases.rs"), case.to_owned()));
    }
    // A unit test of the library or its protocol crate, by its module path.
    if let Some((modules, test)) = name.rsplit_once("::") {
        for folder in [root().join("src"), root().join("crates/quorlock-protocol/src")] {
            let file = folder.join(modules.replace("::", "/")).with_extension("rs");
            candidates.push((file, test.to_owned()));
            if let Some(file) = modules.strip_suffix("::tests") {
                let file = folder.join(file.replace("::", "/")).with_extension("rs");
                candidates.push((file, format!("tests::{test}")));
            }
        }
    }
    candidates.retain(|(file, _)| file.exists());
    candidates
}

/// The tests in a source, checks of the contract suite, and cases of a model.
fn tests(source: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if line.starts_with("holds ") || line.starts_with("violated ") {
            found.extend(line.split(' ').find_map(|word| word.strip_suffix(':')).map(str::to_owned));
        }
        let Some((before, after)) = line.split_once("fn ") else { continue };
        let attributes = lines[..index].iter().rev().take_while(|above| above.starts_with("#["));
        let is_test = attributes.into_iter().any(|above| above.contains("test]") || above.contains("test("));
        if is_test || before.starts_with("pub(super)") {
            found.extend(after.split(['(', '<']).next().map(str::to_owned));
        }
    }
    found
}

/// Whether there is a test of this name, in which `…` matches anything.
pub(crate) fn exists(name: &str) -> bool {
    // `python::test_locks::test_f` is in `python/tests/test_locks.py`.
    if let Some((module, test)) = name.strip_prefix("python::").and_then(|rest| rest.split_once("::")) {
        let source = fs::read_to_string(root().join(format!("python/tests/{module}.py"))).unwrap_or_default();
        return source.contains(&format!("def {test}("));
    }
    files(name).into_iter().any(|(file, rest)| {
        let source = fs::read_to_string(&file).unwrap();
        let (modules, test) = rest.rsplit_once("::").unwrap_or(("", &rest));
        let (begin, end) = test.split_once('…').unwrap_or((test, test));
        let is_it = |found: &String| found.starts_with(begin) && found.ends_with(end);
        let has_modules = modules.split("::").all(|module| source.contains(&format!("mod {module}")));
        (modules.is_empty() || has_modules) && tests(&source).iter().any(is_it)
    })
}

#[test]
fn every_test_that_the_tables_name_exists() {
    let mut missing = Vec::new();
    for (document, rows) in [(COMPARISON, defects()), (RULES, rows(RULES))] {
        for row in rows {
            let named = names(row.last().unwrap()).into_iter().filter(|name| !exists(name));
            missing.extend(named.map(|name| format!("{document}: {name}")));
        }
    }
    assert!(missing.is_empty(), "no such tests:\n{}", missing.join("\n"));
}

/// The names in backticks after *model*: tests without a path.
fn names_in_the_model(cell: &str) -> Vec<&str> {
    let after = cell.split_once("model: ").map_or("", |(_, after)| after);
    after.split('`').skip(1).step_by(2).filter(|name| !name.contains("::")).collect()
}

#[test]
fn every_test_of_the_model_that_the_rules_name_exists() {
    let named: Vec<String> = rows(RULES)
        .iter()
        .flat_map(|row| {
            names_in_the_model(row.last().unwrap()).into_iter().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    assert!(named.len() > 25, "{} were found", named.len());
    let cases = ["lock", "fence", "shared", "permits", "several", "first_come", "offer", "real"];
    let is_missing = |name: &&String| !cases.iter().any(|case| exists(&format!("model::{case}::{name}")));
    let missing: Vec<_> = named.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "no such tests of the model: {missing:?}");
}

#[test]
fn every_rule_has_a_number_of_its_own() {
    let rows = rows(RULES);
    let mut numbers: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    numbers.sort_unstable();
    let twice: Vec<_> = numbers.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    assert!(
        numbers.len() > 100 && twice.is_empty(),
        "{} rules, these numbers twice: {twice:?}",
        numbers.len()
    );
}

#[test]
fn every_defect_has_a_test() {
    let rows = defects();
    assert!(rows.len() > 40, "{} rows were read", rows.len());
    for row in rows {
        let [_, _, known, tested] = &row[..] else { panic!("four cells: {row:?}") };
        assert!(["run", "read", "reported"].iter().any(|word| known.starts_with(word)), "{row:?}");
        assert!(!names(tested).is_empty(), "{row:?}");
    }
}

#[test]
fn a_name_that_is_wrong_anywhere_is_missed() {
    assert!(exists("rivals::table::a_name_that_is_wrong_anywhere_is_missed"));
    assert!(exists("rivals::table::a_name_that_is_wrong_…"));
    assert!(exists("model::lock::no_two_hold_the_lock_together"));
    assert!(exists("python::test_locks::test_the_readme_s_example_works"));
    assert!(exists("fencing::after_data_loss::clocks_that_agree_within_half_of_max_ttl_keep_the_order"));
    for name in [
        "rivals::table::a_name_that_is_wrong_anywhere",
        "rivals::waiting::a_name_that_is_wrong_anywhere_is_missed",
        "rivals::a_name_that_is_wrong_anywhere_is_missed",
        "nowhere::a_name_that_is_wrong_anywhere_is_missed",
        "rivals::table::exists",
        "python::test_locks::test_the_readme_s_example",
        "python::nowhere::test_the_readme_s_example_works",
        "model::fence::no_two_hold_the_lock_together",
        "fencing::before_data_loss::clocks_that_agree_within_half_of_max_ttl_keep_the_order",
    ] {
        assert!(!exists(name), "{name}");
    }
}
