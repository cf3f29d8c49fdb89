//! Offers: a holder gives the lock to the first waiter in the queue, in the step that releases it
//! (rules O-1 to O-9).

use std::fmt;
use std::time::Duration;

use crate::claim::tombstone_sibling;
use crate::printable::printable;
use crate::sibling::SECRET_KEY;
use crate::token::{RANDOM_DIGITS, SHOWN};
use crate::waiter::hex;
use crate::{FencingToken, Sibling, Token, WaiterId};

/// The name of the channel on which a process receives messages from nodes without a request.
///
/// Each [`Token`] of the process contains it, so that a node can notify a holder of a waiter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InboxId(u64);

/// Digits of the random part that are the token's own; the inbox follows.
const OWN_DIGITS: usize = 16;

impl InboxId {
    /// Creates the inbox of this random number.
    #[must_use]
    pub const fn new(random: u64) -> InboxId {
        InboxId(random)
    }

    /// Returns the inbox of the process that created the token.
    #[must_use]
    pub fn of(token: &Token) -> Option<InboxId> {
        hex(token.random_part().get(OWN_DIGITS..RANDOM_DIGITS)?).map(InboxId)
    }

    /// Returns the random part of a token of this process, half of which is the inbox.
    #[must_use]
    pub const fn mark(self, random: u128) -> u128 {
        (random & !(u64::MAX as u128)) | self.0 as u128
    }

    /// Returns the name of the channel, on a server that has channels, of a process whose locks have this prefix.
    #[must_use]
    pub fn channel(self, prefix: &str) -> String {
        format!("{prefix}quorlock:inbox:{self}")
    }

    /// Returns the name of the key, on such a server, with the secret that proves messages to clients with this prefix:
    /// see [`prove`].
    #[must_use]
    pub fn secret_key(prefix: &str) -> String {
        format!("{prefix}{SECRET_KEY}")
    }
}

/// Returns the message with the proof that it was sent by a script of a server with this secret (rule O-11).
///
/// A user without the right to the key prefix may still be able to publish on each channel of a server, and to listen
/// there, but not to read the key with the secret. Each server has its own, so that its messages prove nothing elsewhere.
#[must_use]
pub fn prove(secret: &[u8], message: &[u8]) -> Vec<u8> {
    [proof_of(secret, message).as_bytes(), b" ", message].concat()
}

/// Returns the message without its proof, unless that is wrong.
#[must_use]
pub fn proven<'a>(secret: &[u8], signed: &'a [u8]) -> Option<&'a [u8]> {
    let message = unproven(signed)?;
    signed.starts_with(proof_of(secret, message).as_bytes()).then_some(message)
}

/// Returns the message without its proof, whether or not that is right: for monitoring programs.
#[must_use]
pub fn unproven(signed: &[u8]) -> Option<&[u8]> {
    signed.get(PROOF_DIGITS..)?.strip_prefix(b" ")
}

/// The length of a SHA-1 in hexadecimal: the only hash that scripts have.
const PROOF_DIGITS: usize = 40;

/// Hashed twice, so that a proof of a message is not the beginning of one of a longer message.
fn proof_of(secret: &[u8], message: &[u8]) -> String {
    let hash = |text: &[u8]| sha1_smol::Sha1::from([secret, text].concat()).digest().to_string();
    hash(hash(message).as_bytes())
}

/// Sixteen hexadecimal digits.
impl fmt::Display for InboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The terms on which a waiter accepts an offer, as sent in each request for a place in the queue.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete: it is stored at nodes and read by other clients")]
pub struct OfferTerms {
    /// The inbox for offers.
    pub inbox: InboxId,
    /// The length of the waiter's key prefix in bytes. The lock's key begins with it, and so does the inbox's channel.
    pub prefix_len: usize,
    /// How long each node stores the offer, in whole milliseconds.
    pub life: Duration,
    /// Whether a fencing token is drawn for it.
    pub fenced: bool,
    /// The token to store. Each request has its own, so that the token identifies the request.
    pub token: Token,
}

impl OfferTerms {
    /// Returns the terms as nodes store them.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let OfferTerms { inbox, prefix_len, life, fenced, token } = self;
        // It would look shorter than what the waiter expects, which gives such an offer back.
        debug_assert_eq!(life.subsec_nanos() % 1_000_000, 0, "a node stores an offer for whole milliseconds");
        let fenced = if *fenced { 'f' } else { 'p' };
        let mut bytes = format!("{inbox} {prefix_len} {} {fenced} ", life.as_millis()).into_bytes();
        bytes.extend_from_slice(token.as_bytes());
        bytes
    }

    /// Parses stored terms; `None` if they are not valid.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<OfferTerms> {
        let [inbox, prefix_len, life, fenced, token] = words(bytes)?;
        let prefix_len = decimal(prefix_len)?.try_into().ok()?;
        let life = Duration::from_millis(decimal(life)?);
        let fenced = match fenced {
            b"f" => true,
            b"p" => false,
            _ => return None,
        };
        (!token.is_empty()).then_some(())?;
        Some(OfferTerms { inbox: InboxId(hex(inbox)?), prefix_len, life, fenced, token: Token::found(token) })
    }

    /// Returns the key that says, at a node, that the token was withdrawn, for an offer of the lock at `key` (rule O-6).
    #[must_use]
    pub fn tombstone_key<'a>(&'a self, key: &'a str) -> Sibling<'a> {
        tombstone_sibling(key, &self.token)
    }

    /// Returns the name of the inbox's channel, for an offer of the lock at `key`.
    #[must_use]
    pub fn channel(&self, key: &str) -> String {
        self.inbox.channel(key.get(..self.prefix_len).unwrap_or_default())
    }
}

/// Returns what a node stores for a waiter in its queue: the terms on which it accepts an offer, if
/// it does, or the context of its tokens.
#[must_use]
pub fn queue_entry(terms: Option<&OfferTerms>, context: &str) -> Vec<u8> {
    terms.map_or_else(|| format!("1 {context}").into_bytes(), OfferTerms::to_bytes)
}

/// Returns the context of the waiter of a [`queue_entry`], shortened and [`printable`] like a
/// displayed [`Token`]. Empty if there is none.
#[must_use]
pub fn entry_context(entry: &[u8]) -> String {
    let context = match OfferTerms::parse(entry) {
        Some(terms) => terms.token.context().unwrap_or_default(),
        None => String::from_utf8_lossy(entry.strip_prefix(b"1 ").unwrap_or_default()).into_owned(),
    };
    printable(&context).cut(SHOWN).to_string()
}

/// The first waiter in the queue of a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete: read from what nodes store")]
pub struct NextWaiter {
    /// Its name in the queue.
    pub waiter: WaiterId,
    /// The terms on which it accepts an offer.
    pub terms: OfferTerms,
}

/// A message from a node to the inbox of a process. Each message is self-contained.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: others are skipped")]
pub enum InboxMessage<'a> {
    /// The node has stored an offer: this is its vote for the token.
    Offered {
        /// The random part of the token, which is unique.
        token: &'a [u8],
        /// The fencing token that was drawn for it.
        number: Option<FencingToken>,
        /// How long it is stored.
        life: Duration,
    },
    /// Another process is first in the queue of a lock that this process holds, or is about to
    /// hold.
    Next {
        /// The key of the lock.
        key: &'a str,
        /// The lease that it concerns: the random part of its token, or the waiter whose turn it
        /// is.
        to: &'a [u8],
        /// The first waiter.
        next: NextWaiter,
        /// Whether a waiter has recently seen a holder that is not in the queue: see
        /// [`releases_openly`].
        others_seen: bool,
    },
    /// The process is second in the queue, and soon first.
    Soon {
        /// The random part of the token in its request.
        token: &'a [u8],
    },
}

impl InboxMessage<'_> {
    /// Parses a payload: an offer, a next waiter, or both.
    pub fn parse(payload: &[u8]) -> impl Iterator<Item = InboxMessage<'_>> {
        let (first, rest) = match payload {
            [b'o', ..] => {
                let end = payload.iter().position(|byte| *byte == b'\n').unwrap_or(payload.len());
                let (first, rest) = payload.split_at(end);
                (offered(first), rest.get(1..).unwrap_or_default())
            }
            [b's', b' ', token @ ..] => (Some(InboxMessage::Soon { token }), &[][..]),
            _ => (None, payload),
        };
        first.into_iter().chain(next(rest))
    }
}

/// Parses `o token number life`.
fn offered(message: &[u8]) -> Option<InboxMessage<'_>> {
    let [_, token, number, life] = words(message)?;
    let number = FencingToken::new(decimal(number)?)?;
    Some(InboxMessage::Offered {
        token,
        number: (number > FencingToken::ZERO).then_some(number),
        life: Duration::from_millis(decimal(life)?),
    })
}

/// Parses `n others to waiter length key terms`, where `others` is 1 or 0.
fn next(message: &[u8]) -> Option<InboxMessage<'_>> {
    let [b'n', b' ', others @ (b'0' | b'1'), b' ', message @ ..] = message else { return None };
    let mut parts = message.splitn(3, |byte| *byte == b' ');
    let (to, waiter, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let space = rest.iter().position(|byte| *byte == b' ')?;
    let (length, rest) = (rest.get(..space)?, rest.get(space + 1..)?);
    let (key, rest) = rest.split_at_checked(usize::try_from(decimal(length)?).ok()?)?;
    let (b" ", terms) = rest.split_at_checked(1)? else { return None };
    let next = NextWaiter { waiter: WaiterId::parse(waiter)?, terms: OfferTerms::parse(terms)? };
    Some(InboxMessage::Next { key: str::from_utf8(key).ok()?, to, next, others_seen: *others == b'1' })
}

/// Splits into four words. The last one extends to the end, and may contain spaces.
fn words<const N: usize>(bytes: &[u8]) -> Option<[&[u8]; N]> {
    let words: Vec<_> = bytes.splitn(N, |byte| *byte == b' ').collect();
    words.try_into().ok()
}

fn decimal(digits: &[u8]) -> Option<u64> {
    str::from_utf8(digits)
        .ok()
        .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?
        .parse()
        .ok()
}

/// The longest time for which an offer is stored. A waiter that was stopped or cut off just before a release holds up the
/// others for as long, since no node can tell it from one that is slow. One that takes the offer up renews soon (rule O-12).
const OFFER_LIFE: Duration = Duration::from_millis(1_200);
/// An accepted offer must have at least this fraction (a tenth) of its life left, or three round
/// trips, so that it can be renewed.
const LEAST_LEFT: u32 = 10;

/// Returns how long an offer is stored, in whole milliseconds, for a waiter that wants the lock for `ttl`: 1.2 s, and no
/// longer than the TTL and half of `max_ttl`. The latter is the limit of attempts that draw a fencing token, as restarted
/// nodes do not vote for `max_ttl`.
#[must_use]
pub fn offer_life(ttl: Duration, max_ttl: Duration) -> Duration {
    let longest = ttl.min(max_ttl / 2).min(OFFER_LIFE);
    Duration::from_millis(u64::try_from(longest.as_millis()).unwrap_or(u64::MAX))
}

/// Returns how much of an offer with this `life` must be left to accept it.
#[must_use]
pub fn least_left(life: Duration, round_trip: Duration) -> Duration {
    (life / LEAST_LEFT).max(round_trip.saturating_mul(3))
}

/// The first renewal of a lease from an offer waits for this fraction (a thirtieth) of what is left of it: the cost of a renewal
/// matters only to holders that are done within a few milliseconds.
const TAKE_UP: u32 = 30;
/// It is sent immediately if it would wait for less: little is left.
const LEAST_WAIT: Duration = Duration::from_millis(10);

/// Returns how long the first renewal of a lease from an offer waits that has this much `left` (rule O-12): up to 40 ms. A
/// lock that is released before was never renewed, which saves a request to each node.
#[must_use]
pub fn take_up_after(left: Duration) -> Duration {
    let wait = left / TAKE_UP;
    if wait < LEAST_WAIT { Duration::ZERO } else { wait }
}

/// Returns the longest pause before the first two waiters in the queue ask again if they accept offers of this `life`.
#[must_use]
pub fn offer_heartbeat(life: Duration) -> Duration {
    life / 2
}

/// Returns after how long a waiter names a new token when it asks again. An offer counts from the request that first
/// named its token (rule O-3). That is older than the last request by this at most, and the last request is no older than
/// what the holder knows of it ([`is_fresh`]): so a quarter of an offer is left when it is made, usually more than half.
#[must_use]
pub fn offer_renamed_after(life: Duration) -> Duration {
    life / 8
}

/// Returns whether a holder may still offer the lock to a waiter whose terms it has known for this
/// long: longer than a heartbeat and its way.
#[must_use]
pub fn is_fresh(known_for: Duration, life: Duration) -> bool {
    known_for < life * 5 / 8
}

/// One of this many releases is open: the lock is free for a moment, for clients outside the queue.
const OPEN_ONE_OF: u64 = 8;

/// How long every release is open after a holder outside the queue was seen. It is seen again when
/// it next has the lock.
pub const OTHERS_FOR: Duration = Duration::from_secs(2);

/// Returns whether to release the lock openly, although the next waiter is known. `random` is
/// uniform over all of `u64`.
#[must_use]
pub const fn releases_openly(random: u64, others_seen: bool) -> bool {
    others_seen || random.is_multiple_of(OPEN_ONE_OF)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> OfferTerms {
        let token = Token::new(InboxId(0xab).mark(7 << 64), "db-7:41 nightly job");
        OfferTerms {
            inbox: InboxId(0xab),
            prefix_len: 2,
            life: Duration::from_millis(1_200),
            fenced: true,
            token,
        }
    }

    #[test]
    fn a_token_contains_its_process_inbox() {
        assert_eq!(InboxId::of(&terms().token), Some(InboxId(0xab)));
        assert_eq!(InboxId::of(&Token::found(b"another program's")), None);
        assert_eq!(InboxId(0xab).mark(u128::MAX), (u128::from(u64::MAX) << 64) | 0xab);
    }

    #[test]
    fn o11_a_message_counts_only_with_the_proof_of_its_node() {
        let proof = prove(b"secret", b"o 0123 42 1000");
        assert_eq!(proven(b"secret", &proof), Some(&b"o 0123 42 1000"[..]));
        assert_eq!(proven(b"another node's", &proof), None);
        let mut changed = proof.clone();
        *changed.last_mut().unwrap() = b'1';
        for forged in [&changed[..], &proof[..30], b"o 0123 42 1000", b"", &[&proof[..], b"\nn"].concat()] {
            assert_eq!(proven(b"secret", forged), None, "{}", String::from_utf8_lossy(forged));
        }
        assert_eq!(unproven(&changed), Some(&b"o 0123 42 1001"[..]));
    }

    #[test]
    fn terms_are_read_as_they_were_written() {
        let terms = terms();
        assert_eq!(OfferTerms::parse(&terms.to_bytes()), Some(terms));
        for other in [
            "1",
            "",
            "00000000000000ab 0 1200 f ",
            "00000000000000ab 0 1200 x t",
            "ab 0 1200 f t",
            "g 0 1 f t",
        ] {
            assert_eq!(OfferTerms::parse(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_queue_entry_names_the_waiter() {
        for terms in [Some(&terms()), None] {
            assert_eq!(entry_context(&queue_entry(terms, "db-7:41 nightly job")), "db-7:41 nightly job");
        }
        assert_eq!(entry_context(b"another program's"), "");
        assert_eq!(
            entry_context(b"1 db-7:41 a\n\x1b[2Jb"),
            r"db-7:41 a\n\u{1b}[2Jb",
            "hidden characters are escaped"
        );
    }

    #[test]
    fn a_message_has_an_offer_and_the_next_waiter() {
        let terms = terms();
        let key = "a key with spaces";
        let next = |head: &str| {
            [
                head.as_bytes(),
                format!("n 1 4567 0000000000000009 {} {key} ", key.len()).as_bytes(),
                &terms.to_bytes(),
            ]
            .concat()
        };
        let is_next = InboxMessage::Next {
            key,
            to: b"4567",
            next: NextWaiter { waiter: WaiterId::new(9), terms: terms.clone() },
            others_seen: true,
        };
        assert!(InboxMessage::parse(&next("")).eq([is_next.clone()]));
        let is_offered = InboxMessage::Offered {
            token: b"0123",
            number: FencingToken::new(42),
            life: Duration::from_secs(1),
        };
        let both = next("o 0123 42 1000\n");
        assert_eq!(InboxMessage::parse(&both).collect::<Vec<_>>(), [is_offered.clone(), is_next]);
        assert_eq!(InboxMessage::parse(b"o 0123 42 1000").collect::<Vec<_>>(), [is_offered]);
        assert_eq!(InboxMessage::parse(b"s 01").collect::<Vec<_>>(), [InboxMessage::Soon { token: b"01" }]);
        for other in [
            "",
            "o",
            "o 1 2",
            "o 1 -2 3",
            "n",
            "n 1 2 3",
            "x 1 2 3",
            "n 2 7 0000000000000009 1 a b",
            "n 0 7 0000000000000009 99 a b",
        ] {
            assert_eq!(InboxMessage::parse(other.as_bytes()).next(), None, "{other}");
        }
    }
}
