//! Makes a function of each block of Rust in the pages, for `tests/book/snippets.rs`.
//!
//! Variables that a block uses but does not declare, such as `coordinator`, are provided by
//! `tests/book/snippets/given.rs`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs, io};

#[expect(dead_code, unreachable_pub, reason = "the module belongs to the library, which uses all of it")]
#[path = "src/block.rs"]
mod block;
#[expect(dead_code, unreachable_pub, reason = "the same")]
#[path = "src/page.rs"]
mod page;

use block::{Block, blocks};

/// The variables that a block may use without declaring them.
const GIVEN: [&str; 6] = ["coordinator", "lock", "lease", "election", "nodes", "servers"];

fn main() -> io::Result<()> {
    let (mut functions, mut list) = (String::new(), String::new());
    for page in page::pages()? {
        let is_rust = |block: &&Block| block.language.split(',').next() == Some("rust");
        for block in blocks(&page.text).iter().filter(is_rust) {
            add(&page.path.display().to_string(), block, &mut functions, &mut list);
        }
    }
    // With everything in the folder.
    println!("cargo::rerun-if-changed=../../docs\ncargo::rerun-if-changed=../../README.md");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("snippets.rs");
    fs::write(out, format!("{functions}\npub(crate) const SNIPPETS: &[Snippet] = &[\n{list}];\n"))
}

/// Adds the function for `block`, and its entry in the list.
fn add(page: &str, block: &Block, functions: &mut String, list: &mut String) {
    let place = format!("{page}:{}", block.line);
    let name: String =
        place.chars().map(|letter| if letter.is_alphanumeric() { letter } else { '_' }).collect();
    let name = name.to_lowercase();
    let code = with_real_nodes(&block.text);
    let mut write = |text: String| functions.push_str(&text);
    let run = if code.contains("fn main()") {
        let code = code.replace("async fn main()", "fn main()").replace("fn main()", "pub fn main()");
        let code = code.replace("#[tokio::main]\npub fn", "#[tokio::main]\npub async fn");
        write(format!("// {place}\nmod {name} {{\n{code}\n}}\n\n"));
        format!("Run::Program(|| ended({name}::main()))")
    } else if code.contains("#[test]") || code.contains("#[tokio::test") {
        write(format!("// {place}\nmod {name} {{\n{code}\n}}\n\n"));
        // The test harness runs it.
        return;
    } else if code.contains("await") {
        let given = given(&code, "");
        write(format!("// {place}\nasync fn {name}() -> Outcome {{\n{given}{code}\nOk(())\n}}\n\n"));
        if block.language.contains("no_run") {
            return;
        }
        format!("Run::Async(|| Box::pin({name}()))")
    } else {
        let given = given(&code, "blocking_");
        write(format!("// {place}\nfn {name}() -> Outcome {{\n{given}{code}\nOk(())\n}}\n\n"));
        format!("Run::Program({name})")
    };
    // A loop that follows a state never ends.
    let endless = code.contains("loop {") || code.contains("while let");
    let _ = writeln!(list, "    Snippet {{ place: {place:?}, endless: {endless}, run: {run} }},");
}

/// Replaces the nodes of the page by those of the test, and turns off the restart guard, since they have just
/// started.
fn with_real_nodes(code: &str) -> String {
    let mut real = String::new();
    let mut rest = code;
    while let Some(start) = rest.find("\"redis://10.") {
        let (before, from) = rest.split_at(start);
        let end = from.get(1..).and_then(|text| text.find('"')).map_or(from.len(), |end| end + 2);
        let (address, after) = from.split_at(end);
        let _ = write!(real, "{before}crate::snippets::given::node({address})");
        rest = after;
    }
    real.push_str(rest);
    real = real.replace("std::env::var(", "crate::snippets::given::variable(");
    for build in [".build()", ".build_blocking()"] {
        real = real.replace(build, &format!(".restart_guard(quorlock::RestartGuard::Off){build}"));
    }
    real
}

/// Returns a declaration for each variable that `code` uses but does not declare.
fn given(code: &str, prefix: &str) -> String {
    let mut lines = String::new();
    for name in GIVEN {
        let made = [format!("let {name}"), format!("let mut {name}"), format!("|{name}|")];
        if names(code, name) && !made.iter().any(|made| code.contains(made)) {
            let wait = if prefix.is_empty() { ".await" } else { "" };
            let _ = writeln!(lines, "let {name} = crate::snippets::given::{prefix}{name}(){wait};");
        }
    }
    lines
}

/// Returns whether `code` uses `name` as a variable: not as a method, and not in a string or comment.
fn names(code: &str, name: &str) -> bool {
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.lines().any(|line| {
        let line = line.split("//").next().unwrap_or_default();
        // Every second part is a string.
        line.split('"').step_by(2).any(|part| {
            part.match_indices(name).any(|(start, _)| {
                let before = part.get(..start).and_then(|before| before.chars().next_back());
                let after = part.get(start + name.len()..).and_then(|after| after.chars().next());
                !before.is_some_and(|before| is_letter(before) || before == '.')
                    && !after.is_some_and(|after| is_letter(after) || after == '(')
            })
        })
    })
}
