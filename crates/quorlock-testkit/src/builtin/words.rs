//! The words of commands and replies.

use std::time::Duration;

use quorlock::node::Expiry;

use crate::resp::Resp;

/// Whether the word is this one, in any case.
pub(super) fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// Parses a number of milliseconds in decimal digits.
pub(super) fn millis(digits: &[u8]) -> Option<Duration> {
    std::str::from_utf8(digits).ok()?.parse().ok().map(Duration::from_millis)
}

pub(super) fn not_an_integer() -> Resp {
    Resp::Error("ERR value is not an integer or out of range".to_owned())
}

/// Encodes the result as Redis does: -2 for a missing key, -1 for a key without expiry.
pub(super) fn pttl(expiry: Option<Expiry>) -> i64 {
    match expiry {
        None => -2,
        Some(Expiry::Never) => -1,
        Some(Expiry::In(left)) => i64::try_from(left.as_millis()).unwrap_or(i64::MAX),
    }
}

/// The name of the channel of an inbox, before its number.
pub(super) const INBOX: &[u8] = b"quorlock:inbox:";

/// Returns the inbox of a channel, which is named with the prefix of a client's locks before it.
pub(super) fn inbox_of(channel: &[u8]) -> Option<&[u8]> {
    let at = channel.windows(INBOX.len()).rposition(|window| window == INBOX)?;
    channel.get(at + INBOX.len()..)
}
