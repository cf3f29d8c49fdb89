//! Fencing tokens, and the counters from which nodes draw them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::Quorum;

/// A number that only grows from one holder of a lock to the next, for the guarded resource to
/// check: it refuses whoever comes with a smaller one than it has seen (see `quorlock::fence`).
///
/// Microseconds since 1970 or a little more, as a rule; but nothing may be read from it except
/// which of two is larger. At most 2^53 - 1, so that every language and database has it exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The largest: Lua's numbers are exact up to here, and a counter that stands here draws no more.
    pub const MAX: FencingToken = FencingToken((1 << 53) - 1);

    /// Less than every number that is handed out: where a counter starts.
    pub const ZERO: FencingToken = FencingToken(0);

    /// The number, unless it is larger than [`FencingToken::MAX`].
    #[must_use]
    #[inline]
    pub fn new(number: u64) -> Option<FencingToken> {
        (number <= FencingToken::MAX.0).then_some(FencingToken(number))
    }

    /// As a plain number.
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

/// For how long a node keeps a counter: until its wall clock is this far past the counter's number
/// ([`FencingToken::counter_ends`], rule F-9). What stays on a node is so bounded by the locks used within some
/// minutes.
///
/// It is also how far the clock of a client may be behind a node's, where the node has no counter (rule F-10): five
/// minutes, as in Kerberos.
pub const FENCE_COUNTER_LIFE: Duration = Duration::from_secs(5 * 60);

impl FencingToken {
    /// The largest number that a counter may have had which is gone, at a node whose wall clock shows this.
    #[must_use]
    #[inline]
    pub fn forgotten(wall: Duration) -> FencingToken {
        FencingToken::capped(wall.saturating_sub(FENCE_COUNTER_LIFE).as_micros())
    }

    /// When a counter that stands at this number may end, by the wall clock of its node: in whole milliseconds,
    /// since that is what servers count in (rule F-9).
    #[must_use]
    #[inline]
    pub fn counter_ends(self) -> Duration {
        Duration::from_millis(self.0.div_ceil(1000)).saturating_add(FENCE_COUNTER_LIFE)
    }
}

/// Why a node draws no number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoNumber {
    /// The counter stands at [`FencingToken::MAX`].
    #[error("the counter of fencing tokens is at its end")]
    AtEnd,
    /// The node has no counter, and what it had may have been above the hint (rule F-10).
    #[error(
        "the client's clock is more than five minutes behind the node's, which has no counter of fencing tokens: \
         set the clocks, by NTP for instance"
    )]
    ClientClockBehind,
}

/// The text is no fencing token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a fencing token: it is a whole number from 0 to {}", FencingToken::MAX)]
#[non_exhaustive]
pub struct FencingTokenError;

impl FromStr for FencingToken {
    type Err = FencingTokenError;

    fn from_str(text: &str) -> Result<FencingToken, FencingTokenError> {
        // Digits only: a sign or a space would come from somewhere else.
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits);
        number.and_then(FencingToken::new).ok_or(FencingTokenError)
    }
}

/// How each node is to draw its number for an attempt (rule F-1).
///
/// A node keeps a counter for each lock, and draws one more than the larger of counter and hint. The
/// hint is the asker's wall clock, and so the same for all nodes: where no counter is ahead of it,
/// all draw the same number, and one round trip is enough. The counters alone keep the order; the
/// clock keeps it when nodes have forgotten theirs, and lets counters that nobody uses expire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FenceHint {
    /// The numbers are larger than this.
    pub hint: FencingToken,
    /// No hint may be further ahead of a node's own clock: one client with a wrong clock would
    /// otherwise put the counters ahead for everybody.
    pub lead: Duration,
    /// Whether others want the lock as well: then a node is asked in the way that costs least where it
    /// refuses, and else in the way that costs least where it grants.
    pub contended: bool,
}

impl FenceHint {
    /// At the time `wall` on the asker's clock, by somebody who has `seen` numbers of this lock.
    #[must_use]
    #[inline]
    pub fn at(wall: Duration, seen: Option<FencingToken>, lead: Duration) -> FenceHint {
        let hint = FencingToken::capped(wall.as_micros()).max(seen.unwrap_or(FencingToken::ZERO));
        let contended = seen.is_some();
        FenceHint { hint: hint.min(FencingToken(FencingToken::MAX.0 - 1)), lead, contended }
    }

    /// What every node draws whose counter is not ahead of the hint, nor its clock behind it by more than
    /// the lead.
    #[must_use]
    #[inline]
    pub fn usual(self) -> FencingToken {
        FencingToken(self.hint.0 + 1)
    }

    /// Whether the hint is no further ahead of a node's wall clock than it may be (rule F-7).
    #[must_use]
    #[inline]
    pub fn is_within(self, wall: Duration) -> bool {
        self.hint <= FencingToken::capped(wall.saturating_add(self.lead).as_micros())
    }

    /// Whether the hint is no further behind a node's wall clock than it may be where there is no counter (rule
    /// F-10): what it leads to is then above every number of a counter that is gone.
    #[must_use]
    #[inline]
    pub fn is_recent(self, wall: Duration) -> bool {
        self.hint >= FencingToken::forgotten(wall)
    }

    /// What a node draws whose counter and wall clock stand at these; [`FencingToken::ZERO`] is no counter.
    ///
    /// # Errors
    ///
    /// [`NoNumber`], if none may be drawn.
    #[inline]
    pub fn from(self, counter: FencingToken, wall: Duration) -> Result<FencingToken, NoNumber> {
        if counter == FencingToken::ZERO && !self.is_recent(wall) {
            return Err(NoNumber::ClientClockBehind);
        }
        let latest = FencingToken::capped(wall.saturating_add(self.lead).as_micros());
        FencingToken::new(counter.max(self.hint.min(latest)).0 + 1).ok_or(NoNumber::AtEnd)
    }
}

/// What the nodes have drawn for one attempt.
///
/// The attempt's fencing token is the largest number among the votes that it counts. It may be
/// handed out once a quorum carries it: then every later holder meets one of these nodes, whose
/// counter only grows, and draws a larger one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FenceVotes {
    token: FencingToken,
    carried_by: usize,
}

impl FenceVotes {
    /// From the numbers of the granted votes that count; `None` without any.
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

    /// The largest.
    #[must_use]
    #[inline]
    pub fn token(self) -> FencingToken {
        self.token
    }

    /// Whether a quorum carries it. If not, it has to be written back: at a quorum of nodes the key
    /// must still be the attempt's own and the counter [not ahead](FencingToken::may_follow).
    #[must_use]
    #[inline]
    pub fn stands(self, quorum: Quorum) -> bool {
        self.carried_by >= quorum.needed()
    }
}

impl FencingToken {
    /// Whether a node whose counter and wall clock stand at these may be raised to this number, for the client
    /// that holds its key. A counter that is ahead has drawn a larger number for a vote that was not
    /// counted: to confirm the smaller one there would let it be handed out twice. One that is gone may have been
    /// ahead of what is too old.
    #[must_use]
    #[inline]
    pub fn may_follow(self, counter: FencingToken, wall: Duration) -> bool {
        let ahead = if counter == FencingToken::ZERO { FencingToken::forgotten(wall) } else { counter };
        ahead <= self
    }
}

/// As a `BIGINT` of SQL. Every fencing token fits.
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
