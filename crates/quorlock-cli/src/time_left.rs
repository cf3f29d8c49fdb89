//! How long a lock stays held.

use quorlock::{duration, node::Expiry};

/// Returns how long a lock stays held, for a sentence.
pub(crate) fn in_words(remaining: Expiry) -> String {
    match remaining {
        Expiry::In(remaining) => format!("for up to {} more", duration::format(remaining)),
        Expiry::Never => "which never expires".to_owned(),
    }
}

/// Returns the same for a cell of a table.
pub(crate) fn in_cell(remaining: Expiry) -> String {
    match remaining {
        Expiry::In(remaining) => duration::format(remaining),
        Expiry::Never => "never".to_owned(),
    }
}
