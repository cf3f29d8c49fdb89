//! The log of a lock: the holds that have ended, as each client writes them to the nodes and reads them there.
//!
//! It decides nothing. A node keeps the latest holds of each lock, as many as the client that writes asks for, and
//! for [`LOG_EXPIRY`] after the latest.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::{Claim, FencingToken, Mode, Token};

/// The most holds of one lock that a client may ask a node to keep: a node sends them in one response, of 120 KB at most.
pub const MOST_LOGGED: usize = 200;

/// How long a node keeps a log after its latest entry: long enough to ask on Monday, or after a holiday, what happened
/// before, and not for ever, because names such as `orders/42` never come again.
pub const LOG_EXPIRY: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The last second of the year 9999: what is later is no time.
const LAST_SECOND: u64 = 253_402_300_799;

/// The digits of a token that identify a hold. They do not release the lock.
const ID_DIGITS: usize = 16;
/// The most characters of a context that are kept.
const LONGEST_CONTEXT: usize = 120;
/// What the text of an entry begins with. Entries with another version are skipped.
const VERSION: &str = "1";

/// A hold of a lock that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LoggedHold {
    /// The first digits of the token. Leases that were handed over within a process share a token.
    pub id: String,
    /// The name of the holder: `host:pid` and a label.
    pub context: String,
    /// Whether others could share the lock when the hold ended.
    pub mode: Mode,
    /// The fencing token, if the lease had one.
    pub fencing_token: Option<FencingToken>,
    /// When the lock was acquired, since 1970, by the wall clock of the holder.
    pub acquired: Duration,
    /// For how long it was held, by the monotonic clock of the holder: to the end of its validity at most, however late the
    /// holder noticed that.
    pub held_for: Duration,
    /// How the hold ended.
    pub end: HoldEnd,
}

/// How a hold ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum HoldEnd {
    /// The holder released the lock, or no quorum has confirmed that it was left taken.
    Released,
    /// The holder gave it up, and the next waiter of its process got it without another client in between.
    PassedOn,
    /// The holder ended, and left the lock taken, as a quorum has confirmed.
    Retained,
    /// The lease was lost: its validity ended before a quorum had renewed it.
    Expired,
    /// The lease was lost: too many nodes had lost its key.
    QuorumLost,
    /// It was held for as long as its limit allows.
    MaxHold,
    /// The coordinator of the holder was closed.
    Closed,
}

impl HoldEnd {
    const ALL: [HoldEnd; 7] = [
        HoldEnd::Released,
        HoldEnd::PassedOn,
        HoldEnd::Retained,
        HoldEnd::Expired,
        HoldEnd::QuorumLost,
        HoldEnd::MaxHold,
        HoldEnd::Closed,
    ];

    /// Returns the stable word for it, for programs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            HoldEnd::Released => "released",
            HoldEnd::PassedOn => "passed_on",
            HoldEnd::Retained => "retained",
            HoldEnd::Expired => "expired",
            HoldEnd::QuorumLost => "quorum_lost",
            HoldEnd::MaxHold => "max_hold",
            HoldEnd::Closed => "closed",
        }
    }
}

/// For people, in a few words.
impl fmt::Display for HoldEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            HoldEnd::Released => "released",
            HoldEnd::PassedOn => "passed on",
            HoldEnd::Retained => "left taken",
            HoldEnd::Expired => "lost: not renewed",
            HoldEnd::QuorumLost => "lost: forgotten by nodes",
            HoldEnd::MaxHold => "ended by max_hold",
            HoldEnd::Closed => "ended with its program",
        })
    }
}

impl LoggedHold {
    /// Creates the entry of a hold that began at `acquired`, since 1970, with this claim.
    #[must_use]
    pub fn new(claim: &Claim, acquired: Duration, held_for: Duration, end: HoldEnd) -> LoggedHold {
        LoggedHold {
            id: id_of(claim.token()),
            context: claim.token().context().unwrap_or_default(),
            mode: claim.mode(),
            fencing_token: None,
            acquired,
            held_for,
            end,
        }
    }

    /// Sets the fencing token.
    #[must_use]
    pub fn with_fencing_token(self, fencing_token: Option<FencingToken>) -> LoggedHold {
        LoggedHold { fencing_token, ..self }
    }

    /// Sets how the hold ended.
    #[must_use]
    pub fn ended(self, end: HoldEnd) -> LoggedHold {
        LoggedHold { end, ..self }
    }

    /// Returns when the hold ended, since 1970.
    #[must_use]
    pub fn ended_at(&self) -> Duration {
        self.acquired.saturating_add(self.held_for)
    }

    /// Returns the text that a node stores: a version, the fields, and at last the context, which is cut to 120 characters.
    #[must_use]
    pub fn to_text(&self) -> String {
        let LoggedHold { id, context, mode, fencing_token, acquired, held_for, end } = self;
        let mode = if *mode == Mode::Shared { 's' } else { 'e' };
        let number = fencing_token.map_or(0, FencingToken::get);
        let (acquired, held_for, end) = (acquired.as_micros(), held_for.as_micros(), end.word());
        let context: String = context.chars().take(LONGEST_CONTEXT).collect();
        format!("{VERSION} {id} {mode} {number} {acquired} {held_for} {end} {context}")
    }

    /// Reads a text that a node stores. Returns `None` for what another version, or another program, has written.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<LoggedHold> {
        let text = String::from_utf8_lossy(text);
        let mut parts = text.splitn(8, ' ');
        if parts.next()? != VERSION {
            return None;
        }
        let id = parts.next().filter(|id| is_id(id))?.to_owned();
        let mode = match parts.next()? {
            "e" => Mode::Exclusive,
            "s" => Mode::Shared,
            _ => return None,
        };
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (fencing_token, acquired, held_for) = (number()?, number()?, number()?);
        let fencing_token = FencingToken::new(fencing_token).filter(|_| fencing_token > 0);
        let word = parts.next()?;
        let end = HoldEnd::ALL.into_iter().find(|end| end.word() == word)?;
        let context = parts.next()?.chars().take(LONGEST_CONTEXT).collect();
        let (acquired, held_for) = (Duration::from_micros(acquired), Duration::from_micros(held_for));
        if acquired.max(held_for).as_secs() > LAST_SECOND {
            return None;
        }
        Some(LoggedHold { id, context, mode, fencing_token, acquired, held_for, end })
    }
}

/// Returns what identifies a hold by this token: random digits that are no part of the inbox of its process.
fn id_of(token: &Token) -> String {
    let digits = token.random_part();
    String::from_utf8_lossy(digits.get(..ID_DIGITS).unwrap_or(digits)).into_owned()
}

fn is_id(id: &str) -> bool {
    id.len() == ID_DIGITS && id.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Merges the logs of several nodes: each hold once, with the number of nodes that have it, in the order in which they ended.
///
/// A hold is the same if its token is and it began at the same moment. Clients on other hosts have other wall clocks, so
/// the order of their holds is only as good as these.
#[must_use]
pub fn merge_logs(logs: impl IntoIterator<Item = Vec<LoggedHold>>) -> Vec<(LoggedHold, usize)> {
    let mut holds: BTreeMap<(Duration, String), (LoggedHold, usize)> = BTreeMap::new();
    for log in logs {
        let mut seen: Vec<(Duration, String)> = Vec::new();
        for hold in log {
            let same = (hold.acquired, hold.id.clone());
            let entry = holds.entry(same.clone()).or_insert((hold, 0));
            // A node may have stored a request twice.
            if !seen.contains(&same) {
                entry.1 += 1;
                seen.push(same);
            }
        }
    }
    let mut holds: Vec<_> = holds.into_values().collect();
    holds.sort_by_key(|(hold, _)| hold.ended_at());
    holds
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hold(random: u128, acquired: u64, held: u64) -> LoggedHold {
        let claim = Claim::new("orders/42".into(), Token::new(random << 64, "db-7:4121 nightly"));
        let [acquired, held_for] = [acquired, held].map(Duration::from_secs);
        LoggedHold::new(&claim, acquired, held_for, HoldEnd::Released)
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        for end in HoldEnd::ALL {
            for number in [None, FencingToken::new(42)] {
                let hold = hold(7, 1_700_000_000, 3).with_fencing_token(number).ended(end);
                assert_eq!(LoggedHold::parse(hold.to_text().as_bytes()), Some(hold));
            }
        }
        assert_eq!(
            hold(7, 1_700_000_000, 3).to_text(),
            "1 0000000000000007 e 0 1700000000000000 3000000 released db-7:4121 nightly"
        );
    }

    #[test]
    fn an_entry_does_not_release_the_lock() {
        let token = Token::new(0xfeed_beef_feed_beef_0123_4567_89ab_cdef, "db-7");
        let claim = Claim::new("a".into(), token);
        let text = LoggedHold::new(&claim, Duration::ZERO, Duration::ZERO, HoldEnd::Released).to_text();
        assert!(text.contains("feedbeeffeedbeef") && !text.contains("01234567"), "{text}");
    }

    #[test]
    fn what_others_have_written_is_skipped() {
        for text in [
            "",
            "2 0000000000000007 e 0 1 1 released a",
            "1 7 e 0 1 1 released a",
            "1 \x1b[2J",
            "hello",
            "1 0000000000000007 e 0 18446744073709551615 1 released a",
        ] {
            assert_eq!(LoggedHold::parse(text.as_bytes()), None, "{text}");
        }
        let later = hold(7, 1, 1).to_text().replace("released", "abducted");
        assert_eq!(LoggedHold::parse(later.as_bytes()), None);
    }

    #[test]
    fn holds_on_several_nodes_are_one_in_the_order_of_their_ends() {
        let (long, short, handed_over) = (hold(1, 10, 9), hold(2, 11, 1), hold(1, 20, 1));
        let logs = [
            vec![short.clone(), long.clone(), long.clone(), handed_over.clone()],
            vec![long.clone()],
            vec![],
        ];
        assert_eq!(merge_logs(logs), [(short, 1), (long, 2), (handed_over, 1)]);
    }

    proptest! {
        #[test]
        fn any_text_is_an_entry_or_none(text in proptest::collection::vec(any::<u8>(), 0..80)) {
            drop(LoggedHold::parse(&text));
        }

        #[test]
        fn any_context_is_kept_up_to_its_limit(context in "\\PC{0,400}") {
            let written = LoggedHold { context, ..hold(7, 1, 1) };
            let text = written.to_text();
            prop_assert!(text.chars().count() < LONGEST_CONTEXT + 100);
            let read = LoggedHold::parse(text.as_bytes()).unwrap();
            prop_assert!(written.context.starts_with(&read.context));
        }
    }
}
