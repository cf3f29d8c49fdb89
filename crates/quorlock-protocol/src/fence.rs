//! Fencing tokens, and the counters from which nodes draw them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::Quorum;

/// A number that grows from one holder of a lock to the next. The guarded resource rejects requests
/// with a smaller number than it has seen (see `quorlock::fence`).
///
/// Usually microseconds since 1970 or slightly more, but only the order of two tokens means
/// anything. At most 2^53 - 1, which all languages and databases represent exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The largest: Lua's numbers are exact up to here. A counter with this value is exhausted.
    pub const MAX: FencingToken = FencingToken((1 << 53) - 1);

    /// The initial value of a counter, below every token.
    pub const ZERO: FencingToken = FencingToken(0);

    /// Returns the token of this number, unless that is larger than [`FencingToken::MAX`].
    #[must_use]
    #[inline]
    pub fn new(number: u64) -> Option<FencingToken> {
        (number <= FencingToken::MAX.0).then_some(FencingToken(number))
    }

    /// Returns the number.
    #[must_use]
    #[inline]
    pub fn get(self) -> u64 {
        self.0
    }

    fn capped(number: u128) -> FencingToken {
        FencingToken(u64::try_from(number).unwrap_or(u64::MAX).min(FencingToken::MAX.0))
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FencingToken({})", self.0)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> u64 {
        token.0
    }
}

/// 2036, in microseconds: before that, no clock has to be read to know that a number is plausible.
const SURELY_PLAUSIBLE: u64 = 2_082_758_400_000_000;
const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl FencingToken {
    /// Returns whether no clock explains the number, which then is of a counter that was written to, or of a node that lies
    /// (rule F-11): it is more than ten years ahead of `wall`, and of 2026. A resource that has seen it would refuse all
    /// clients until then.
    #[must_use]
    #[inline]
    pub fn is_implausible(self, wall: impl FnOnce() -> Duration) -> bool {
        self.0 > SURELY_PLAUSIBLE && self > FencingToken::capped(wall().saturating_add(TEN_YEARS).as_micros())
    }
}

/// Why a node draws no number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoNumber {
    /// The counter is at [`FencingToken::MAX`].
    #[error("the counter of fencing tokens is at its end")]
    AtEnd,
}

/// The text is not a fencing token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a fencing token: it is a whole number from 0 to {}", FencingToken::MAX)]
#[non_exhaustive]
pub struct FencingTokenError;

impl FromStr for FencingToken {
    type Err = FencingTokenError;

    fn from_str(text: &str) -> Result<FencingToken, FencingTokenError> {
        // Digits only: no sign and no space.
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits);
        number.and_then(FencingToken::new).ok_or(FencingTokenError)
    }
}

/// How each node draws the fencing token of an attempt (rule F-1).
///
/// A node keeps a counter for each hash slot, which all locks of the slot share, and draws one more than
/// the larger of counter and hint. The hint is the client's wall clock, and so the same for all nodes:
/// unless a counter is ahead of it, all draw the same number, and one round trip is enough. The counters
/// alone keep the order; the clock keeps it when nodes have lost their counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FenceHint {
    /// The numbers are larger than this.
    pub hint: FencingToken,
    /// The most that a hint may be ahead of a node's own clock: otherwise one client with a wrong
    /// clock would advance the counters for all clients.
    pub lead: Duration,
    /// Whether others want the lock as well, and it is not this client's turn: a node is then asked in
    /// the form that is cheapest if it refuses, otherwise in the one that is cheapest if it grants.
    pub contended: bool,
}

impl FenceHint {
    /// Creates a hint at time `wall` on the client's clock; `seen` is the largest number seen for
    /// this lock.
    #[must_use]
    #[inline]
    pub fn at(wall: Duration, seen: Option<FencingToken>, lead: Duration) -> FenceHint {
        let hint = FencingToken::capped(wall.as_micros()).max(seen.unwrap_or(FencingToken::ZERO));
        let contended = seen.is_some();
        FenceHint { hint: hint.min(FencingToken(FencingToken::MAX.0 - 1)), lead, contended }
    }

    /// Returns the same for an attempt that all nodes most likely grant: others want the lock, and it is this client's turn.
    #[must_use]
    #[inline]
    pub fn in_turn(self) -> FenceHint {
        FenceHint { contended: false, ..self }
    }

    /// Returns the number drawn by every node whose counter is not ahead of the hint, and whose
    /// clock is not behind it by more than the lead.
    #[must_use]
    #[inline]
    pub fn usual(self) -> FencingToken {
        debug_assert!(self.hint < FencingToken::MAX, "a hint leaves no number above it");
        FencingToken(self.hint.0 + 1)
    }

    /// Returns whether the hint is within the lead of a node's wall clock (rule F-7).
    #[must_use]
    #[inline]
    pub fn is_within(self, wall: Duration) -> bool {
        self.hint <= FencingToken::capped(wall.saturating_add(self.lead).as_micros())
    }

    /// Returns the number drawn by a node with this counter and wall clock. If the hint is further ahead of that
    /// clock than the lead, the clock takes its place: so a client whose clock is wrong does not advance the
    /// counters for others.
    ///
    /// # Errors
    ///
    /// [`NoNumber`], if none may be drawn.
    #[inline]
    pub fn from(self, counter: FencingToken, wall: Duration) -> Result<FencingToken, NoNumber> {
        let hint = if self.is_within(wall) { self.hint } else { FencingToken::capped(wall.as_micros()) };
        let number = FencingToken::new(counter.max(hint).0 + 1).ok_or(NoNumber::AtEnd);
        debug_assert!(!number.is_ok_and(|number| number <= counter), "a node drew a number twice");
        number
    }
}

/// The numbers that the nodes have drawn for one attempt.
///
/// The attempt's fencing token is the largest number among the counted votes, or else the next. It may be handed
/// out once a quorum carries it: every later holder then meets one of these nodes, whose counter only
/// grows, and draws a larger number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FenceVotes {
    token: FencingToken,
    carried_by: usize,
}

impl FenceVotes {
    /// Collects the numbers of the counted votes; `None` if there are none.
    #[must_use]
    pub fn of(votes: impl IntoIterator<Item = FencingToken>) -> Option<FenceVotes> {
        votes.into_iter().fold(None, |drawn, number| match drawn {
            Some(FenceVotes { token, .. }) if number < token => drawn,
            Some(FenceVotes { token, carried_by }) if number == token => {
                Some(FenceVotes { token, carried_by: carried_by + 1 })
            }
            Some(_) | None => Some(FenceVotes { token: number, carried_by: 1 }),
        })
    }

    /// Returns the largest number.
    #[must_use]
    #[inline]
    pub fn token(self) -> FencingToken {
        self.token
    }

    /// Returns the number after it, above everything that the counted nodes have drawn.
    #[must_use]
    #[inline]
    pub fn next(self) -> FencingToken {
        FencingToken(self.token.0.saturating_add(1)).min(FencingToken::MAX)
    }

    /// Returns whether a quorum carries it. If not, the attempt has the [next](FenceVotes::next) number, once the
    /// counters of a quorum were raised to it, from below (rule F-5): so two attempts never have the same number from
    /// one node, whatever became of their keys, and the later has the larger one.
    #[must_use]
    #[inline]
    pub fn stands(self, quorum: Quorum) -> bool {
        self.carried_by >= quorum.needed()
    }
}

/// Converts to a `BIGINT` of SQL, in which every fencing token fits.
///
/// # Examples
///
/// ```
/// use quorlock_protocol::FencingToken;
///
/// assert_eq!(i64::from(FencingToken::MAX), (1 << 53) - 1);
/// ```
impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> i64 {
        token.get().cast_signed()
    }
}
