//! The rules of offers.

/// The rules of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    Quorlock,
    /// A node stores an offer even if it has no key. This is safe.
    AbsentToo,
    /// A node stores an offer whatever key it has.
    AnyKey,
    /// Validity counts from the last push instead of the question.
    FromPush,
    /// All questions of a waiter have one token, and validity counts from the last of them.
    OneToken,
    /// A waiter also counts pushes that no node has sent.
    Forged,
    /// A waiter also counts pushes about the tokens of other waiters.
    AnyOffer,
    /// The votes for two tokens of one waiter are added, and validity counts from the newer question.
    TwoTokens,
    /// The holder asserts its lease until its offers are answered.
    UntilAnswered,
    /// A push for a released token counts.
    Reuse,
    /// A renewal counts even if it stored the key again. This alone is safe, as for the lock.
    RestoredCounts,
    /// The same for a lease from an offer, and also after its previous deadline.
    RestoredLate,
    /// Offers by a process that is too young count.
    YoungVotes,
    /// Two pushes of one node are two votes.
    Twice,
    /// One vote less than a quorum is enough.
    Minority,
    /// An offer is taken up without checking the clock.
    NoDeadline,
    /// A node issues the releaser's number plus one, whatever its counter.
    NotRaised,
    /// A node draws above the releaser's number, but does not know the waiter's calendar. The
    /// releaser may date from before others whose numbers a node has lost.
    ReleasersHint,
    /// The largest number is issued, however few nodes carry it.
    NoWriteBack,
    /// A node carries a number whatever key it has.
    AnyKeyCarries,
    /// A node stores the key of a plain request by one command, and draws the number by the next, whatever key it has
    /// by then. This is safe: the library does so where a node may.
    TwoCommands,
}
