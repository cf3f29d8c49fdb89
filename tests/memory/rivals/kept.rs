//! What the column "kept in" of `docs/rules.md` names exists in the sources.

use std::path::{Path, PathBuf};

use super::table::{rows, sources};

const PAGE: &str = "docs/rules.md";

/// The words before a name that declare it, in Rust, Lua and SQL.
const KEYWORDS: [&str; 11] =
    ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "function", "local", "FUNCTION"];

/// A file and its text.
type Source = (PathBuf, String);

/// The sources of the workspace without their tests, which may keep a name that the code has lost.
fn code() -> Vec<Source> {
    let is_code = |(path, _): &Source| {
        let has = |word: &str| path.iter().any(|part| part == word);
        has("src") && !has("tests") && !has("tests.rs")
    };
    sources(&["rs", "lua", "sql"]).into_iter().filter(is_code).collect()
}

/// The words of a line of code. The schema of PostgreSQL, which begins each name there, is not one of them.
fn words(line: &str) -> Vec<&str> {
    let line = line.trim();
    if line.starts_with("//") || line.starts_with("--") {
        return Vec::new();
    }
    let is_between = |char: char| !char.is_alphanumeric() && char != '_';
    line.split(is_between).filter(|word| !word.is_empty() && *word != "rules").collect()
}

fn declares(line: &str, name: &str) -> bool {
    line.contains(name) && words(line).windows(2).any(|pair| KEYWORDS.contains(&pair[0]) && pair[1] == name)
}

/// Whether a line opens a block of `owner`: `impl Owner {`, `impl Trait for Owner {`, `trait Owner {`.
fn opens_block(line: &str, owner: &str) -> bool {
    let words = if line.contains(owner) { words(line) } else { Vec::new() };
    let is_block = words.contains(&"impl") || words.contains(&"trait");
    is_block && words.contains(&owner) && !line.ends_with('}')
}

/// Whether `owner` is this file's module or has a block here, and `name` is declared there.
fn has_member((path, text): &Source, owner: &str, name: &str) -> bool {
    if !text.contains(name) {
        return false;
    }
    let lines: Vec<&str> = text.lines().collect();
    let is_module = path.file_stem().is_some_and(|stem| stem == owner);
    if is_module && lines.iter().any(|line| declares(line, name)) {
        return true;
    }
    let mut blocks = lines.iter().enumerate().filter(|(_, line)| opens_block(line, owner));
    blocks.any(|(index, line)| {
        let end = format!("{}}}", " ".repeat(line.len() - line.trim_start().len()));
        let mut inside = lines[index + 1..].iter().take_while(|line| **line != end);
        inside.any(|line| declares(line, name))
    })
}

/// Whether a file whose path ends with `within` is the one that is named, or declares what is named: a member
/// of a type or module, or anything else.
fn exists(name: &str, within: &Path, sources: &[Source]) -> bool {
    let is_within = |source: &&Source| within.as_os_str().is_empty() || source.0.ends_with(within);
    let mut sources = sources.iter().filter(is_within);
    if [".rs", ".lua", ".sql"].iter().any(|kind| name.ends_with(kind)) {
        return sources.any(|(path, _)| path.ends_with(name));
    }
    match name.rsplit_once("::") {
        Some((owner, member)) => sources.any(|source| has_member(source, owner, member)),
        None => sources.any(|(_, text)| text.lines().any(|line| declares(line, name))),
    }
}

/// The names in backticks in a cell that do not exist. A name `in` a file has to be declared there. A command
/// line is no name.
fn missing<'a>(cell: &'a str, sources: &[Source]) -> Vec<&'a str> {
    let pieces: Vec<&str> = cell.split('`').collect();
    let is_missing = |index: &usize| {
        let name = pieces[*index];
        let is_in_file = pieces.get(index + 1) == Some(&" in ");
        let within = if is_in_file { pieces[index + 2] } else { "" };
        !name.contains(' ') && !exists(name, Path::new(within), sources)
    };
    (1..pieces.len()).step_by(2).filter(is_missing).map(|index| pieces[index]).collect()
}

#[test]
fn all_that_keeps_a_rule_exists() {
    let (rows, sources) = (rows(PAGE), code());
    assert!(rows.len() > 80, "{} rows were read", rows.len());
    let mut wrong = Vec::new();
    for row in &rows {
        let [rule, _, kept, _] = &row[..] else { panic!("four cells: {row:?}") };
        wrong.extend(missing(kept, &sources).into_iter().map(|name| format!("{rule}: {name}")));
    }
    assert!(wrong.is_empty(), "{PAGE} names what does not exist:\n{}", wrong.join("\n"));
}

#[test]
fn a_name_that_the_code_has_lost_is_missed() {
    let rust = [
        "impl Drop for Round {",
        "    fn drop(&mut self) {}",
        "}",
        "// fn gone() {}",
        "impl Other {",
        "    fn start() {}",
        "}",
    ];
    let sources = [
        ("src/quorum/round.rs", rust.join("\n")),
        ("src/redis/scripts/queue.lua", "local function tell(inbox)\nend".to_owned()),
        ("src/redis/scripts/other.lua", "local mark = 1".to_owned()),
        ("crates/a/src/schema.sql", "CREATE FUNCTION rules.known_since(here text)".to_owned()),
    ]
    .map(|(path, text)| (PathBuf::from(path), text));
    for name in ["Round::drop", "round::start", "quorum/round.rs", "known_since", "tell", "quorlock doctor"] {
        assert!(missing(&format!("`{name}` (there)"), &sources).is_empty(), "{name}");
    }
    assert!(missing("`tell` in `queue.lua`", &sources).is_empty());
    for name in ["Round::start", "gone", "start_anew", "redis/round.rs", "Other::drop", "round.lua"] {
        assert_eq!(missing(&format!("`Round::drop`, `{name}`"), &sources), [name]);
    }
    assert_eq!(missing("`mark` in `queue.lua`", &sources), ["mark"]);
}
