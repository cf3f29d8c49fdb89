use super::names::{Claim, Sibling};

/// Whom a claim excludes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[expect(clippy::exhaustive_enums, reason = "complete: alone, or together with others of the kind")]
pub enum Mode {
    /// Everybody: a writer.
    #[default]
    Exclusive,
    /// Everybody but those who share it, too: a reader.
    Shared,
}

/// What stands under the key of a lock while readers hold it. No token: those of ours begin with
/// random digits, and so do those of all Redlock clients.
///
/// It keeps every writer out that asks for a free key, of whatever program.
pub const SHARED_MARKER: &str = "quorlock:shared";

/// The key in which a node keeps those who share the lock at `key`: one member for each, with an
/// end of its own (rule S-2).
#[must_use]
pub fn readers_key(key: &str) -> String {
    readers_sibling(key).to_string()
}

pub(crate) fn readers_sibling(key: &str) -> Sibling<'_> {
    Sibling::new("shared", key, "readers")
}

/// The key in which a node keeps the writers that wait for those who share the lock at `key` (rule
/// S-5).
#[must_use]
pub fn intents_key(key: &str) -> String {
    intents_sibling(key).to_string()
}

pub(crate) fn intents_sibling(key: &str) -> Sibling<'_> {
    Sibling::new("shared", key, "writers")
}

impl Claim {
    /// The same claim by somebody who shares the lock from now on.
    #[must_use]
    pub fn shared(mut self) -> Claim {
        self.mode = Mode::Shared;
        self
    }

    /// Whom it excludes.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::{Token, fence_counter};
    use super::*;

    #[test]
    fn the_marker_is_no_token_and_is_shown_as_readers() {
        let marker = Token::found(SHARED_MARKER.as_bytes());
        assert_eq!((marker.context(), marker.is_marker()), (None, true));
        assert_eq!(marker.to_string(), "readers");
        assert!(!Token::new(7, SHARED_MARKER).is_marker());
    }

    #[test]
    fn siblings_of_one_lock_are_different_keys() {
        let mut keys = vec![readers_key("a"), intents_key("a"), fence_counter("a")];
        keys.dedup();
        assert_eq!(keys.len(), 3, "{keys:?}");
    }
}
