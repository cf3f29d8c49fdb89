//! The tests named in `docs/comparison.md` and `docs/rules.md` exist.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

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

/// The files with one of these endings below `src` and `tests` of all packages, each with its path and its text.
pub(crate) fn sources(endings: &[&str]) -> Vec<(PathBuf, String)> {
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|member| member.unwrap().path());
    let packages = crates.chain([root().to_owned(), root().join("python")]);
    let mut folders: Vec<_> =
        packages.flat_map(|package| ["src", "tests"].map(|part| package.join(part))).collect();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if endings.iter().any(|ending| path.extension().is_some_and(|found| found == *ending)) {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(root()).unwrap().to_owned(), text));
            }
        }
    }
    found
}

/// A file of tests: the folders and the file on the way to it, as names of tests begin with them, and its text.
struct Tests {
    place: Vec<String>,
    text: String,
}

/// All files of tests. `postgres::node::f` is in `crates/quorlock-postgres/tests/real/node.rs`, `model::lock::f` is a
/// case in `crates/quorlock-model/src/lock/cases.rs`, `rivals::table::f` is in this file.
static TESTS: LazyLock<Vec<Tests>> = LazyLock::new(|| {
    let tests = sources(&["rs", "py"]).into_iter().map(|(path, text)| {
        let words = path.with_extension("");
        let words =
            words.iter().map(|word| word.to_str().unwrap().trim_start_matches("quorlock-").to_owned());
        let place = words.filter(|word| !["main", "cases"].contains(&word.as_str())).collect();
        Tests { place, text }
    });
    tests.collect()
});

impl Tests {
    /// Whether these modules lead to this file, or to one in it.
    fn are_in(&self, modules: &[&str]) -> bool {
        (1..=modules.len()).any(|count| {
            let (outer, inner) = modules.split_at(count);
            let (mut outer, mut place) = (outer.iter().rev(), self.place.iter().rev().map(String::as_str));
            let is_here = outer.next().copied() == place.next();
            is_here
                && outer.all(|module| place.any(|word| word == *module))
                && inner.iter().all(|module| self.text.contains(&format!("mod {module} {{")))
        })
    }
}

/// The tests in a source, checks of the contract suite, and cases of a model.
fn tests(source: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if line.starts_with("holds ") || line.starts_with("violated ") {
            found.extend(line.split(' ').find_map(|word| word.strip_suffix(':')).map(str::to_owned));
        }
        // Of Python.
        let defined = line.strip_prefix("async ").unwrap_or(line).strip_prefix("def ");
        found.extend(defined.and_then(|rest| rest.split('(').next()).map(str::to_owned));
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
    let (modules, test) = name.rsplit_once("::").unwrap_or_default();
    let modules: Vec<&str> = modules.split("::").collect();
    let (begin, end) = test.split_once('…').unwrap_or((test, test));
    let is_it = |found: &String| found.starts_with(begin) && found.ends_with(end);
    TESTS.iter().any(|file| file.are_in(&modules) && tests(&file.text).iter().any(is_it))
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
