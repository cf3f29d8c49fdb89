//! Locks that several hold at once.

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
