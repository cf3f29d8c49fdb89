//! The commands and files of a page.

use quorlock_book::block::{Block, blocks};
use quorlock_book::page::Page;

use super::exceptions::EXCEPTIONS;

/// One step in the session of a page.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Writes a file: a block whose first line is its name, as a comment.
    File { name: String, text: String },
    /// Runs a command, and compares its output if the page shows it.
    Command { line: usize, text: String, prints: Option<String> },
}

/// Returns the steps of `page` without the exceptions.
pub(crate) fn steps(page: &Page) -> Vec<Step> {
    let exceptions: Vec<_> =
        EXCEPTIONS.iter().filter(|exception| page.path.to_str() == Some(exception.page)).collect();
    let mut steps = all_steps(page);
    steps.retain(|step| !exceptions.iter().any(|exception| exception.is_of(step)));
    if steps.iter().any(|step| matches!(step, Step::Command { .. })) { steps } else { Vec::new() }
}

/// Returns the steps of `page`.
pub(crate) fn all_steps(page: &Page) -> Vec<Step> {
    let mut steps = Vec::new();
    for block in blocks(&page.text) {
        match &*block.language {
            "sh" => steps.extend(commands(&block, false)),
            "console" => steps.extend(commands(&block, true)),
            // python/tests/test_docs.py runs the first, tests/book/languages.rs the next five, tests/book/jobs the last six.
            // `bash` is for root as well. tests/memory/fence and tests/real/fence run what is in Lua.
            "python" | "go" | "java" | "js" | "php" | "ruby" | "text" | "" | "sql" | "lua" | "ini"
            | "crontab" | "systemd" | "env" | "yaml" | "dockerfile" | "bash" => {}
            language if language.split(',').next() == Some("rust") => steps.extend(file(&block)),
            "toml" | "conf" => steps.extend(file(&block)),
            other => panic!("{}:{}: no test knows `{other}`", page.path.display(), block.line),
        }
    }
    steps
}

/// Returns the file with the name in the first line, such as `# ours.toml` or `// src/main.rs`.
pub(crate) fn name(block: &Block) -> Option<&str> {
    let first = block.text.lines().next()?;
    let name = first.strip_prefix("# ").or_else(|| first.strip_prefix("// "))?;
    let is_name = name.contains('.') && !name.contains(' ') && !name.ends_with('.');
    is_name.then_some(name)
}

fn file(block: &Block) -> Option<Step> {
    Some(Step::File { name: name(block)?.to_owned(), text: block.text.clone() })
}

fn commands(block: &Block, shows_output: bool) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut until: Option<String> = None;
    let mut goes_on = false;
    for (number, line) in block.text.lines().enumerate() {
        let command = match (shows_output, line.strip_prefix("$ ")) {
            (true, Some(command)) => Some(command),
            (true, None) => None,
            (false, _) => Some(line).filter(|line| !line.trim_start().starts_with('#') || until.is_some()),
        };
        if until.is_some() || goes_on {
            let line = if shows_output { line.strip_prefix("> ").unwrap_or(line) } else { line };
            let Some(Step::Command { text, .. }) = steps.last_mut() else { unreachable!("one is open") };
            text.push('\n');
            text.push_str(line);
            goes_on = until.is_none() && line.ends_with('\\');
            until = until.filter(|end| line != end);
            continue;
        }
        match command {
            Some("") => {}
            Some(command) => {
                until =
                    command.split_once("<<'").and_then(|(_, rest)| Some(rest.split_once('\'')?.0.to_owned()));
                goes_on = command.ends_with('\\');
                let prints = shows_output.then(String::new);
                steps.push(Step::Command { line: block.line + 1 + number, text: command.to_owned(), prints });
            }
            None => {
                if let Some(Step::Command { prints: Some(prints), .. }) = steps.last_mut() {
                    prints.push_str(line);
                    prints.push('\n');
                }
            }
        }
    }
    // The output is compared only if the page shows one.
    for step in &mut steps {
        if let Step::Command { prints, .. } = step {
            *prints = prints.take().filter(|prints| !prints.trim().is_empty());
        }
    }
    steps
}
