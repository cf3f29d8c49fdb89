//! The rules of the lock.

/// The rules of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    Quorlock,
    /// One vote less than a quorum is enough.
    SmallQuorum,
    /// Validity counts from the last vote (rule I-1).
    LateStart,
    /// One process counts for each address that leads to it (I-2).
    TwinsCount,
    /// The second attempt reuses the token of the first, and begins after it has given up (I-4).
    TokenReuse,
    /// A renewal shortens the remaining TTL of the key (I-6).
    Shrinking,
    /// A renewal counts from its last acknowledgement (I-7).
    FromReply,
    /// One acknowledgement is enough for a renewal (I-8).
    MinorityRenews,
    /// Acknowledgements count after the old deadline (I-9).
    LateAcks,
    /// Acknowledgements count after the old deadline, also those that stored the key again.
    LateRepairs,
    /// A key stored again by a renewal counts. This is safe.
    RepairsCount,
    /// It counts even if the process is too young (I-12).
    YoungRepairs,
    /// A lease may be renewed after a check has observed its end (I-10).
    Revival,
    /// Requests in flight when a node restarts are sent again, and count (I-14).
    SilentResend,
    /// A release deletes any key.
    BlindRelease,
    /// The second attempt is a copy of the first's process, and draws the same token at any time (I-42).
    CopiedToken,
    /// A process is as old as its own clock says, whatever clients have noted (I-24).
    NoNote,
    /// A node that declares that it keeps its data has lost it after a restart (I-12).
    FalseMemory,
}
