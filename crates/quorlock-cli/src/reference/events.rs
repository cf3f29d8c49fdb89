//! The tracing events of the library, of the node kinds and of this program, read from their source.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use quorlock_kinds::KINDS;
use regex::Regex;

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

static MACRO: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)(?:^|[^A-Za-z0-9_])(error|warn|info|debug|trace)(_span)?!\(").expect("a pattern")
});

/// An event, or a span.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    level: usize,
    target: String,
    message: String,
    fields: Vec<String>,
    is_span: bool,
}

pub(super) fn section() -> String {
    let mut section = "
## Log events

Emitted through `tracing`. `quorlock run`, `elect`, `hold` and `wait` show warn and error, with `--json` as \
events `warning`, those about the end of a lease only where they do not report it themselves; other commands and `-q` show error \
only. `-v` adds info and debug, `-vv` trace. In your own program, filter by level and target; `{…}` in a message is a value.

| level | target | message | fields |
|---|---|---|---|
"
    .to_owned();
    for Event { level, target, message, fields, is_span } in events() {
        let fields: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
        let kind = if is_span { "span " } else { "" };
        let level = LEVELS.get(level).copied().unwrap_or_default();
        let _ = writeln!(section, "| {kind}{level} | `{target}` | {message} | {} |", fields.join(", "));
    }
    section
}

fn events() -> Vec<Event> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut events = Vec::new();
    for package in KINDS.iter().map(|kind| kind.package).chain(["quorlock-cli"]) {
        let name = package.replace('-', "_");
        let folder = if package == "quorlock" {
            root.join("src")
        } else {
            root.join("crates").join(package).join("src")
        };
        for file in files(&folder) {
            let path = file.strip_prefix(&folder).unwrap().with_extension("");
            let modules = path.iter().map(|part| part.to_string_lossy().into_owned());
            let target: Vec<String> =
                [name.clone()].into_iter().chain(modules.filter(|module| module != "lib")).collect();
            read(&fs::read_to_string(&file).unwrap(), &target.join("::"), &mut events);
        }
    }
    events.sort_unstable();
    events.dedup();
    events
}

/// Returns the source files in `folder`, without tests.
pub(super) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let skipped = path.file_stem().is_some_and(|name| name == "tests" || name == "reference");
        if path.is_dir() && !skipped {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !skipped {
            found.push(path);
        }
    }
    found
}

/// Adds the events in `code`.
fn read(code: &str, target: &str, events: &mut Vec<Event>) {
    let code = code.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let code = code.lines().filter(is_code).collect::<Vec<_>>().join("\n");
    for found in MACRO.captures_iter(&code) {
        let level = LEVELS.iter().position(|level| *level == &found[1]).unwrap();
        let is_span = found.get(2).is_some();
        let mut fields = Vec::new();
        let mut message = String::new();
        for argument in arguments(&code[found.get(0).unwrap().end()..]) {
            if let Some(text) = argument.strip_prefix('"') {
                if message.is_empty() {
                    message = text.trim_end_matches('"').replace('|', "\\|");
                }
                continue;
            }
            let name =
                argument.split('=').next().unwrap_or_default().trim().trim_start_matches(['%', '?', '&']);
            if !name.contains(':') {
                fields.push(name.rsplit('.').next().unwrap_or_default().to_owned());
            }
        }
        events.push(Event { level, target: target.to_owned(), message, fields, is_span });
    }
}

/// Returns the arguments of a macro call, whose text begins after its parenthesis.
fn arguments(text: &str) -> Vec<String> {
    let (mut arguments, mut argument) = (Vec::new(), String::new());
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for letter in text.chars() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            ')' if depth == 0 => break,
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                arguments.push(std::mem::take(&mut argument).trim().to_owned());
                continue;
            }
            _ => {}
        }
        argument.push(letter);
    }
    arguments.push(argument.trim().to_owned());
    arguments.retain(|argument| !argument.is_empty());
    arguments
}
