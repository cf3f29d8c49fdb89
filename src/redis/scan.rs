//! The answer to `SCAN`.

use redis::Value;

use super::connection::text;
use super::error::{Peer, SCAN, SentCommand, refused, unexpected};
use crate::node::NodeError;

/// Returns the next cursor, and the keys. A key that is not UTF-8 is none of this library.
pub(super) fn page(answer: Value, user: &str) -> Result<(String, Vec<String>), NodeError> {
    let strange = || unexpected("unexpected answer to SCAN");
    if let Value::ServerError(error) = answer {
        let asked = SentCommand { command: SCAN, key: "", user, peer: Peer::Server };
        return Err(refused(&error, asked));
    }
    let Value::Array(parts) = answer else { return Err(strange()) };
    let Ok([cursor, Value::Array(keys)]) = <[Value; 2]>::try_from(parts) else { return Err(strange()) };
    let cursor = text(cursor).ok_or_else(strange)?;
    Ok((cursor, keys.into_iter().filter_map(text).collect()))
}
