//! Text and figures as the page shows them.

use std::fmt::{self, Write as _};

/// Text that may hold any characters, as HTML: between tags, and in quoted attributes.
#[derive(Clone, Copy)]
pub(super) struct Text<'a>(pub(super) &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => f.write_char(character)?,
                // No replacement is as bad as a sentence that reads as its opposite.
                control if control.is_control() || breaks_lines_or_turns_them(control) => {
                    f.write_char('\u{fffd}')?;
                }
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// JSON as it may stand in a `<script>`. Nothing but a string can hold these characters, and there
/// JSON knows another way to write them.
pub(super) fn embedded(json: &str) -> String {
    let mut script = String::with_capacity(json.len());
    for character in json.chars() {
        if matches!(character, '<' | '>') || breaks_lines_or_turns_them(character) {
            let escaped = format!("\\u{:04x}", u32::from(character));
            script.push_str(&escaped);
        } else {
            script.push(character);
        }
    }
    script
}

/// A length of time with three digits, such as `870 µs`, `3.42 ms` or `12.4 s`.
pub(super) fn span(micros: u64) -> String {
    match micros {
        0 => "0 s".to_owned(),
        1..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{} ms", three_digits(micros, 1_000)),
        _ => format!("{} s", three_digits(micros, 1_000_000)),
    }
}

/// A time in the run, such as `12.340 s`.
pub(super) fn at(micros: u64) -> String {
    format!("{}.{:03} s", micros / 1_000_000, micros / 1_000 % 1_000)
}

/// A share in percent. It is never rounded up: 100% are all.
pub(super) fn share(part: u64, whole: u64) -> String {
    if part == whole {
        return "100%".to_owned();
    }
    let hundredths = u128::from(part) * 10_000 / u128::from(whole.max(1));
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}

/// A number with its thousands set apart: `12,345`.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// [`number`], of things that are counted by [`usize`].
pub(super) fn count(count: usize) -> String {
    number(u64::try_from(count).unwrap_or(u64::MAX))
}

/// `1 fault`, `2 faults`.
pub(super) fn counted(how_many: usize, what: &str) -> String {
    format!("{} {what}{}", count(how_many), if how_many == 1 { "" } else { "s" })
}

fn three_digits(value: u64, unit: u64) -> String {
    let (whole, rest) = (value / unit, value % unit);
    match whole {
        0..10 => format!("{whole}.{:02}", rest * 100 / unit),
        10..100 => format!("{whole}.{}", rest * 10 / unit),
        _ => number(whole),
    }
}

/// The line ends that JavaScript once knew and JSON did not, and whatever changes the direction of text.
fn breaks_lines_or_turns_them(character: char) -> bool {
    matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
