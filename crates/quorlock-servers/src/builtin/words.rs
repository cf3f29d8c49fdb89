//! The words of commands and replies.

use std::str::FromStr;

use super::keyspace::Refusal;
use crate::resp::Resp;

/// The reply, or the error.
pub(super) type Reply = Result<Resp, Refusal>;

/// Whether the word is this one, in any case.
pub(super) fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

pub(super) fn number<N: FromStr>(digits: &[u8]) -> Option<N> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

pub(super) fn counted(count: usize) -> Resp {
    Resp::Number(i64::try_from(count).unwrap_or(i64::MAX))
}

pub(super) fn not_an_integer() -> Refusal {
    "ERR value is not an integer or out of range".to_owned()
}
