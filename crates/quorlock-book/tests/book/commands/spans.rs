//! Checks command lines in inline code: their subcommands and options exist.

use std::process::Command;

use super::pages;
use crate::target;
use quorlock_book::block::{blocks, spans};

/// They are not run, because they depend on their context.
#[test]
fn every_subcommand_and_option_in_the_text_exists() {
    let target = target();
    let mut count = 0;
    for page in pages().unwrap() {
        let mut lines = spans(&page.text);
        // Examples from the help.
        for block in blocks(&page.text).into_iter().filter(|block| block.language == "text") {
            for line in block.text.lines() {
                let mut span = block.clone();
                line.trim().clone_into(&mut span.text);
                lines.push(span);
            }
        }
        for mut span in lines {
            if let Some(inside) = span.text.strip_prefix("docker-compose exec client ") {
                span.text = inside.to_owned();
            }
            let program = span.text.split(' ').next().unwrap_or_default();
            if !["quorlock", "quorlock-chaos"].contains(&program)
                || span.text.contains('…')
                || program == span.text
            {
                continue;
            }
            let words = words(&span.text);
            if words.iter().any(|word| word.contains(['[', '<'])) {
                continue;
            }
            let mut quorlock = Command::new(target.join(program));
            let ended = quorlock.args(words.iter().skip(1)).arg("--help").output().unwrap();
            let errors = String::from_utf8_lossy(&ended.stderr);
            assert!(
                ended.status.success(),
                "{}:{}: `{}`: {errors}",
                page.path.display(),
                span.line,
                span.text
            );
            count += 1;
        }
    }
    assert!(count > 20, "{count} were found");
}

/// The words for `quorlock` itself: up to those of another command, and to what the shell acts on.
pub(crate) fn words(line: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for letter in line.chars() {
        match (letter, quote) {
            (' ', None) => words.push(String::new()),
            (';' | '|' | '>' | '&' | '#', None) => break,
            ('"' | '\'', None) => quote = Some(letter),
            (_, Some(open)) if letter == open => quote = None,
            _ => words.last_mut().unwrap().push(letter),
        }
    }
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.truncate(end);
    words.retain(|word| !word.is_empty());
    words
}
