//! Text from outside, as people and programs may see it: names, owners, labels, and what servers say.
//!
//! Whoever may name a lock chooses what others read about it. A newline in a name forges a row of a
//! table, an escape sequence rules the terminal, a right-to-left override swaps what is read, and
//! two names that differ in a character without width look the same. So such characters are
//! escaped, visibly, because it matters which name is meant: by [`printable`] for people, and by
//! [`printable_json`] in JSON, where they stay the same text. There is no third way out.
//!
//! `printable` does not escape the backslash: text may go through it twice, in an error of the
//! library and where that is printed. So a name with `\n` in two characters reads like one with a
//! newline; JSON tells them apart.

use std::fmt::{self, Write as _};

/// Returns `text` to be shown to people, on one line, with hidden characters escaped as in Rust:
/// `\n`, `\u{202e}`.
///
/// # Examples
///
/// ```
/// use quorlock_protocol::printable;
///
/// assert_eq!(printable("job\n\u{1b}[2J \u{202e}é").to_string(), r"job\n\u{1b}[2J \u{202e}é");
/// assert_eq!(printable("orders\n/42").cut(7).to_string(), "orders", "no escape is cut");
/// ```
#[must_use]
pub fn printable(text: &str) -> Printable<'_> {
    Printable { text, longest: usize::MAX }
}

/// Text that hides nothing: see [`printable`].
#[derive(Clone, Copy, Debug)]
pub struct Printable<'a> {
    text: &'a str,
    longest: usize,
}

impl Printable<'_> {
    /// Cuts what is shown to `longest` characters.
    #[must_use]
    pub fn cut(self, longest: usize) -> Self {
        Printable { longest, ..self }
    }
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.longest;
        for letter in self.text.chars() {
            let escape = is_hidden(letter).then(|| letter.escape_default());
            match left.checked_sub(escape.as_ref().map_or(1, ExactSizeIterator::len)) {
                Some(rest) => left = rest,
                None => break,
            }
            match escape {
                Some(escape) => write!(f, "{escape}")?,
                None => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// Escapes hidden characters in JSON, as `\u202e`. Serializers escape only those below U+0020, and
/// strings are the only place for others.
#[must_use]
pub fn printable_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for letter in json.chars() {
        if (letter.is_ascii() && letter != DELETE) || !is_hidden(letter) {
            shown.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            // Writing to a string does not fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    shown
}

const DELETE: char = '\u{7f}';

/// Whether a terminal obeys the character or shows nothing for it: controls, separators of lines and
/// paragraphs, annotations, and what Unicode calls `Default_Ignorable_Code_Point`, among which are
/// those that change the direction and those without width.
fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hidden_character_is_escaped_for_people_and_in_json() {
        for (letter, shown, json) in [
            ('\n', r"\n", "\n"),
            ('\u{1b}', r"\u{1b}", "\u{1b}"),
            ('\u{7f}', r"\u{7f}", r"\u007f"),
            ('\u{9b}', r"\u{9b}", r"\u009b"),
            ('\u{202e}', r"\u{202e}", r"\u202e"),
            ('\u{200b}', r"\u{200b}", r"\u200b"),
            ('\u{2029}', r"\u{2029}", r"\u2029"),
            ('\u{e0041}', r"\u{e0041}", r"\udb40\udc41"),
            ('\\', "\\", "\\"),
            ('日', "日", "日"),
        ] {
            assert_eq!(printable(&letter.to_string()).to_string(), shown);
            // Those below U+0020 are the serializer's, or space between values.
            assert_eq!(printable_json(&letter.to_string()), json);
        }
    }

    #[test]
    fn what_is_shown_is_shown_the_same_again() {
        let once = printable("a\n\u{202e}\\n").to_string();
        assert_eq!(printable(&once).to_string(), once);
    }

    #[test]
    fn hidden_text_is_no_longer_than_other_text_after_a_cut() {
        let shown = printable(&"\u{202e}".repeat(1000)).cut(100).to_string();
        assert_eq!((shown.len(), shown.replace(r"\u{202e}", "")), (96, String::new()));
    }
}
