//! Any bytes as one word of a line.

use std::fmt::Write as _;

/// The word for what is missing.
pub(super) const MISSING: &str = "-";

/// Encodes any bytes as one word.
pub(super) fn visible(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "%".to_owned();
    }
    bytes.iter().fold(String::with_capacity(bytes.len()), |mut text, byte| {
        if byte.is_ascii_graphic() && *byte != b'%' && (bytes != MISSING.as_bytes()) {
            text.push(char::from(*byte));
        } else {
            let _ = write!(text, "%{byte:02x}");
        }
        text
    })
}

/// Decodes the same. `None` if the word is something else.
pub(super) fn bytes(word: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut left = word.as_bytes();
    if left == b"%" {
        return Some(bytes);
    }
    while let Some((byte, rest)) = left.split_first() {
        left = rest;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let (digits, rest) = left.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?);
        left = rest;
    }
    (!bytes.is_empty()).then_some(bytes)
}
