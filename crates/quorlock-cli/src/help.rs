//! How the help is laid out: clap wraps what is its own, and of the texts that follow it each line alone.

use std::env;
use std::io;

use clap::{Command, CommandFactory as _};

use crate::args::Args;
use crate::width::{self, wrapped};

/// The widest lines.
const WIDEST: usize = 100;

/// Returns the definition of the command line for showing help: the texts after it fit the terminal.
pub(crate) fn command() -> Command {
    let columns = || env::var("COLUMNS").ok()?.parse().ok();
    let width = width::of(io::stdout()).or_else(columns).map_or(WIDEST, |width| width.min(WIDEST));
    let fitting = |command: Command| {
        let [short, long] = [command.get_after_help(), command.get_after_long_help()]
            .map(|text| text.map(|text| laid_out(&text.to_string(), width)));
        let command = command.term_width(width);
        let command = if let Some(short) = short { command.after_help(short) } else { command };
        if let Some(long) = long { command.after_long_help(long) } else { command }
    };
    fitting(Args::command()).mut_subcommands(fitting)
}

/// Lays out paragraphs, which begin at the left edge, and indented lines, which are items of their own.
fn laid_out(text: &str, width: usize) -> String {
    let (mut lines, mut paragraph): (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let is_item = line.is_empty() || line.starts_with(' ');
        if !is_item {
            paragraph.push(line);
            continue;
        }
        lines.extend(wrapped(&paragraph.join(" "), width));
        paragraph.clear();
        lines.extend(item(line, width));
    }
    lines.extend(wrapped(&paragraph.join(" "), width));
    lines.join("\n")
}

/// Wraps an indented line that does not fit. What follows two spaces is a second column, and stays in it.
fn item(line: &str, width: usize) -> Vec<String> {
    const LEAST_FOR_WORDS: usize = 32;
    if line.chars().count() <= width {
        return vec![line.to_owned()];
    }
    let words = line.trim_start();
    let indent = line.len() - words.len();
    let (first, second) = words.split_once("  ").unwrap_or(("", words));
    let column = line.len() - second.trim_start().len();
    let hangs = if column + LEAST_FOR_WORDS > width { indent + 4 } else { column };
    let mut lines = wrapped(second.trim_start(), width.saturating_sub(hangs));
    for line in &mut lines {
        line.insert_str(0, &" ".repeat(hangs));
    }
    if !first.is_empty() {
        let first = format!("{}{first}", " ".repeat(indent));
        match lines.first_mut() {
            Some(line) if hangs == column => line.replace_range(..first.len(), &first),
            _ => lines.insert(0, first),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_wrapped_once_and_stays_in_its_column() {
        let text = "\
Words that were wrapped
already are joined, and wrapped again.

Codes:
  0   yes
  75  another client holds the lock, and another one
  a-long-name-of-a-command  # says what it does";
        let laid = "\
Words that were wrapped already are joined,
and wrapped again.

Codes:
  0   yes
  75  another client holds the lock, and
      another one
  a-long-name-of-a-command
      # says what it does";
        assert_eq!(laid_out(text, 44), laid);
    }

    #[test]
    fn no_line_of_the_help_is_wider_than_the_terminal() {
        for verb in command().get_subcommands() {
            let text = verb.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            for width in [80, WIDEST] {
                let laid = laid_out(&text, width);
                let too_wide = laid.lines().find(|line| line.chars().count() > width);
                assert_eq!(too_wide, None, "{}", verb.get_name());
                // So clap leaves it alone.
                let help = verb.clone().term_width(width).after_long_help(&laid).render_long_help();
                assert!(help.to_string().contains(laid.trim_end()), "{}: {help}", verb.get_name());
            }
        }
    }
}
