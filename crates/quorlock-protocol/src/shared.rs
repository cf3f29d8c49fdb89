//! Locks with several holders at the same time.

/// Which other claims a claim excludes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[expect(clippy::exhaustive_enums, reason = "complete: alone, or together with others of the kind")]
pub enum Mode {
    /// All others: a writer.
    #[default]
    Exclusive,
    /// All but shared ones: a reader.
    Shared,
}

/// The value under the key of a lock while readers hold it. It is no token: ours begin with random
/// digits, and so do those of all Redlock clients.
///
/// It excludes every writer that needs a free key, of any program.
pub const SHARED_MARKER: &str = "quorlock:shared";
