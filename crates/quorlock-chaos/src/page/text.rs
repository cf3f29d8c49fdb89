//! Text as the page shows it.

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

/// The line ends that JavaScript once knew and JSON did not, and whatever changes the direction of text.
fn breaks_lines_or_turns_them(character: char) -> bool {
    matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
