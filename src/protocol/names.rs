use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::fence::FencingToken;
use super::shared::{Mode, SHARED_MARKER};
use super::slot::{Slot, hash_tag};

/// What is protected. Its name, with the deployment's prefix before it, is the key at the nodes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    name: Arc<str>,
}

impl Resource {
    /// The longest name accepted, in bytes. The name is stored at every node, sent with every
    /// request and shown in every message.
    pub const MAX_LEN: usize = 1024;

    /// Checks a name: not empty and not longer than [`Resource::MAX_LEN`]; any character is fine.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the name.
    pub fn parse(name: &str) -> Result<Resource, ResourceError> {
        Resource::check(name)?;
        Ok(Resource { name: name.into() })
    }

    /// The same for a name that others keep, too.
    pub(crate) fn share(name: &Arc<str>) -> Result<Resource, ResourceError> {
        Resource::check(name)?;
        Ok(Resource { name: name.clone() })
    }

    /// Several that are locked together, under the name of `all`, if each name works.
    pub(crate) fn together(names: &[Arc<str>], all: &Arc<str>) -> Result<Resource, ResourceError> {
        names.iter().try_for_each(|name| Resource::check(name))?;
        Ok(Resource { name: all.clone() })
    }

    fn check(name: &str) -> Result<(), ResourceError> {
        if name.is_empty() {
            Err(ResourceError::Empty)
        } else if name.len() > Resource::MAX_LEN {
            Err(ResourceError::TooLong { length: name.len() })
        } else {
            Ok(())
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name, f)
    }
}

/// Why a resource name is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResourceError {
    /// There is no name.
    #[error("a resource name is empty; name what the lock protects, such as `orders/42`")]
    Empty,
    /// The name is too long.
    #[error(
        "a resource name has {length} bytes, more than the {} allowed; use a hash of it",
        Resource::MAX_LEN
    )]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
}

/// The value that says at a node who holds the lock: 128 random bits, new for every attempt
/// (rule I-4), and then the holder's context for people to read.
///
/// It proves ownership to the nodes: whoever knows it can release the lock. So `Display` and
/// `Debug` show its context and only the first digits of the random part. Tokens of other
/// programs are any bytes at all.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token {
    bytes: Arc<[u8]>,
}

/// Hexadecimal digits of the random part.
const RANDOM_DIGITS: usize = 32;
/// No token of ours is longer, unless its holder's host or label is.
const USUAL: usize = 128;
/// Follows the random part where the lock is retained.
const RETAINED: &[u8] = b":retained";
/// No more characters of a context are shown.
const SHOWN: usize = 120;
/// That of a retained lock ends with what is worth knowing of it.
const SHOWN_RETAINED: usize = 360;
/// As many of them as identify an attempt in a log and release nothing.
const SHOWN_DIGITS: usize = 8;

impl Token {
    /// A token of ours.
    #[must_use]
    pub fn new(random: u128, context: &str) -> Token {
        Token::of(random, &[b" ", context.as_bytes()])
    }

    /// A token of ours that says which number its attempt wants to draw.
    #[must_use]
    pub fn numbered(random: u128, number: FencingToken, context: &str) -> Token {
        let mut digits = itoa::Buffer::new();
        Token::of(random, &[b":", digits.format(number.get()).as_bytes(), b" ", context.as_bytes()])
    }

    /// A token of ours for a lock that stays taken after its holder has ended (rule R-10): no process holds
    /// it, and the context says who did.
    #[must_use]
    pub fn retained(random: u128, context: &str) -> Token {
        Token::of(random, &[RETAINED, b" ", context.as_bytes()])
    }

    fn of(random: u128, rest: &[&[u8]]) -> Token {
        let mut digits = [0; RANDOM_DIGITS];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(random.to_be_bytes()) {
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 0xf)]);
        }
        // Put together where it costs nothing, and stored once.
        let mut bytes = SmallVec::<[u8; USUAL]>::from_slice(&digits);
        for piece in rest {
            bytes.extend_from_slice(piece);
        }
        Token { bytes: bytes.as_slice().into() }
    }

    /// The number that its attempt wanted to draw, if it says one. A node that has drawn another one for
    /// it knows that.
    #[must_use]
    pub fn number(&self) -> Option<FencingToken> {
        str::from_utf8(self.behind_random()?.strip_prefix(b":")?.split(|byte| *byte == b' ').next()?)
            .ok()?
            .parse()
            .ok()
    }

    /// Whether no process holds the lock: it stays taken until the key expires, as its last holder
    /// [asked](crate::Lease::retain).
    #[must_use]
    pub fn is_retained(&self) -> bool {
        self.parts().is_some_and(|(mark, _)| mark == RETAINED)
    }

    /// What stands between the random part and the context, and the context, if it is one of ours.
    fn parts(&self) -> Option<(&[u8], &[u8])> {
        let rest = self.behind_random()?;
        let (mark, context) = rest.split_at_checked(rest.iter().position(|byte| *byte == b' ')?)?;
        let ours = mark.is_empty() || mark == RETAINED || self.number().is_some();
        ours.then(|| (mark, context.get(1..).unwrap_or_default()))
    }

    /// What follows the random part, if it is one of ours: a number, a mark or nothing, a space, and the
    /// context.
    fn behind_random(&self) -> Option<&[u8]> {
        let (random, rest) = self.bytes.split_at_checked(RANDOM_DIGITS)?;
        random.iter().all(u8::is_ascii_hexdigit).then_some(rest)
    }

    /// A token found at a node, of whoever.
    #[must_use]
    pub fn found(bytes: &[u8]) -> Token {
        Token { bytes: bytes.into() }
    }

    /// The bytes as the nodes have them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The holder's context, if the token is one of ours: `host:pid` and a label. Where the lock is
    /// [retained](Token::is_retained), what its last holder noted follows.
    #[must_use]
    pub fn context(&self) -> Option<String> {
        self.parts().map(|(_, context)| String::from_utf8_lossy(context).into_owned())
    }

    /// Whether it is no token, but says that readers share the lock: see [`SHARED_MARKER`].
    #[must_use]
    pub fn is_marker(&self) -> bool {
        *self.bytes == *SHARED_MARKER.as_bytes()
    }

    /// The first digits of the random part: enough to tell two attempts apart. Of another program's
    /// token that is no text, its first bytes in hexadecimal digits.
    #[must_use]
    pub fn short(&self) -> String {
        if let Ok(text) = str::from_utf8(&self.bytes) {
            return text.chars().take(SHOWN_DIGITS).filter(|c| !c.is_control()).collect();
        }
        let digits = self.bytes.iter().take(SHOWN_DIGITS / 2).map(|byte| format!("{byte:02x}"));
        format!("0x{}", digits.collect::<String>())
    }
}

/// In hexadecimal: by hand, because there is one for each attempt, and formatting takes as long as all
/// the rest of it.
fn digit(nibble: u8) -> u8 {
    nibble + if nibble < 10 { b'0' } else { b'a' - 10 }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.context() {
            Some(context) if self.is_retained() => f.write_str(&printable(&context, SHOWN_RETAINED)),
            Some(context) => f.write_str(&printable(&context, SHOWN)),
            None if self.is_marker() => f.write_str("readers"),
            None => write!(f, "another program ({}…)", printable(&self.short(), SHOWN)),
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}… {self})", self.short())
    }
}

/// A token is somebody else's bytes: it must not move the cursor of the terminal that shows it,
/// nor fill it.
fn printable(text: &str, longest: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(longest).collect()
}

/// What one attempt asks for: this token under this key, or among those who share it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    pub(super) key: Arc<str>,
    token: Token,
    pub(super) mode: Mode,
    /// Where several locks are claimed together: see `several.rs`.
    pub(super) others: Option<Arc<[Arc<str>]>>,
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

    /// `token` is to stand under `key`, alone.
    #[must_use]
    pub fn new(key: Arc<str>, token: Token) -> Claim {
        Claim { key, token, mode: Mode::Exclusive, others: None }
    }

    /// The key of the lock; of [several](Claim::keys), the first.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The token.
    #[must_use]
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Which of so many nodes all who contend for the key ask first. The same for everybody, as long
    /// as they list the nodes in the same order, and spread over the nodes by the key (FNV-1a).
    #[must_use]
    pub fn preferred_node(&self, nodes: usize) -> usize {
        preferred_node(&self.key, nodes)
    }

    /// The key whose presence says that somebody was refused and still wants the lock.
    #[must_use]
    pub fn want_mark(&self) -> String {
        self.want_mark_key().to_string()
    }

    pub(crate) fn want_mark_key(&self) -> Sibling<'_> {
        Sibling::new("want", &self.key, "mark")
    }

    /// The key in which a node keeps the counter of the lock's fencing tokens.
    #[must_use]
    pub fn fence_counter(&self) -> String {
        fence_counter(&self.key)
    }

    pub(crate) fn fence_counter_key(&self) -> Sibling<'_> {
        fence_counter_key(&self.key)
    }

    /// The key whose presence says that this attempt was cancelled, and that a request of it that
    /// arrives late must do nothing (rule I-5).
    #[must_use]
    pub fn tombstone(&self) -> String {
        self.tombstone_key().to_string()
    }

    pub(crate) fn tombstone_key(&self) -> Sibling<'_> {
        tombstone_sibling(&self.key, &self.token)
    }
}

pub(super) fn tombstone_sibling<'a>(key: &'a str, token: &'a Token) -> Sibling<'a> {
    let random = token.bytes.get(..RANDOM_DIGITS).unwrap_or(&token.bytes);
    Sibling::new("tomb", key, String::from_utf8_lossy(random))
}

pub(crate) fn preferred_node(key: &str, nodes: usize) -> usize {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let nodes = u64::try_from(nodes.max(1)).unwrap_or(1);
    usize::try_from(hash % nodes).unwrap_or(0)
}

/// A place in the line of those who wait for a lock in fair order: first come, first served, by
/// the waiters' own wall clocks.
///
/// Tickets are totally ordered, and the same at every node, so all nodes that know two waiters
/// agree on who is first. Clocks that show different times make the order unfair by
/// as much, and nothing else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket {
    wall_micros: u64,
    id: u64,
}

impl Ticket {
    /// The place of somebody who came at this wall-clock time, in microseconds since 1970, told
    /// from others of the same microsecond by a random `id`. The time is cut to 2^53, which Redis'
    /// scores can hold.
    #[must_use]
    pub fn new(wall_micros: u64, id: u64) -> Ticket {
        Ticket { wall_micros: wall_micros.min(1 << 53), id }
    }

    /// When its owner came.
    #[must_use]
    pub fn wall_micros(self) -> u64 {
        self.wall_micros
    }

    /// What its owner is called in the line.
    #[must_use]
    pub fn name(self) -> String {
        format!("{:016x}", self.id)
    }
}

/// The keys in which a node keeps the line of those who wait for `key`: their order, and until
/// when each is waited for.
#[must_use]
pub fn line_keys(key: &str) -> [String; 2] {
    ["order", "until"].map(|part| Sibling::new("line", key, part).to_string())
}

/// The key in which a node keeps the counter of the fencing tokens for the lock at `key`.
#[must_use]
pub fn fence_counter(key: &str) -> String {
    fence_counter_key(key).to_string()
}

/// The only member of that key, which is a sorted set; its score is the number.
pub const FENCE_MEMBER: &str = "n";

pub(crate) fn fence_counter_key(key: &str) -> Sibling<'_> {
    Sibling::new("fence", key, "counter")
}

/// The key in which a server that was promoted keeps since when it is the master that it is, for
/// locks whose keys begin with `prefix`.
#[must_use]
pub fn gate(prefix: &str) -> String {
    Sibling::new("gate", prefix, "reign").to_string()
}

/// The key in which a node keeps the largest `max_ttl` of the clients that use the [`gate`] at that key.
#[must_use]
pub fn max_ttl_note(gate: &str) -> String {
    format!("{}max-ttl", gate.strip_suffix("reign").unwrap_or(gate))
}

/// The key in which a node keeps how many permits the semaphore at `key` has.
#[must_use]
pub fn semaphore_limit(key: &str) -> String {
    Sibling::new("semaphore", key, "limit").to_string()
}

/// A key of our own beside the key of a lock, in the same hash slot of a Redis Cluster: it
/// repeats the lock's hash tag, or makes the lock's whole key the tag. For a key with a `}` and no
/// tag it has a number as its tag, which puts it there.
pub(crate) struct Sibling<'a> {
    kind: &'static str,
    key: &'a str,
    suffix: Cow<'a, str>,
    number: Option<String>,
}

impl<'a> Sibling<'a> {
    pub(super) fn new(kind: &'static str, key: &'a str, suffix: impl Into<Cow<'a, str>>) -> Sibling<'a> {
        let untagged = hash_tag(key).is_none() && key.contains('}');
        let number = untagged.then(|| Slot::of(key).tag().to_string());
        Sibling { kind, key, suffix: suffix.into(), number }
    }

    /// What it is made of, to be written somewhere without a string of its own.
    pub(crate) fn pieces(&self) -> [&str; 8] {
        let (open, number, between, close) = match &self.number {
            Some(number) => (":{", &**number, "}:", ":"),
            // The second colon keeps the siblings of `{a}` apart from those of `a`.
            None if self.key.contains('}') => ("::", "", "", ":"),
            None => (":{", "", "", "}:"),
        };
        ["quorlock:", self.kind, open, number, between, self.key, close, &self.suffix]
    }
}

impl fmt::Display for Sibling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces().into_iter().try_for_each(|piece| f.write_str(piece))
    }
}

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_random_part_of_a_token_is_32_digits() {
        for random in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978] {
            assert_eq!(Token::new(random, "db-7").as_bytes(), format!("{random:032x} db-7").as_bytes());
        }
    }

    #[test]
    fn a_token_shows_its_context_and_hides_its_random_part() {
        let token = Token::new(0xfeed_beef_feed_beef_feed_beef_feed_beef, "db-7:4121 nightly");
        assert_eq!(token.to_string(), "db-7:4121 nightly");
        assert!(!format!("{token:?}").contains("feedbeeffeedbeeffe"), "the whole token releases the lock");
    }

    #[test]
    fn a_retained_token_says_so_and_who_held_the_lock() {
        let token = Token::retained(7, "db-7:4121 import ran at noon");
        assert!(token.is_retained());
        assert_eq!(token.to_string(), "db-7:4121 import ran at noon");
        assert_eq!(token.number(), None);
        assert_eq!(Token::found(token.as_bytes()), token, "it is known again by its bytes");
        let number = "7".parse().unwrap();
        for other in [Token::new(7, ":retained by name"), Token::numbered(7, number, ":retained")] {
            assert!(!other.is_retained(), "{other:?}: a label does not make it so");
        }
        assert!(!Token::found(b":retained by another program").is_retained());
    }

    #[test]
    fn a_foreign_token_is_any_bytes_and_shows_no_control_characters() {
        let token = Token::found(b"\x1b[2J\xff\xfe\x00evil");
        assert_eq!(token.context(), None);
        assert!(!token.to_string().chars().any(char::is_control), "it could move the cursor");
    }

    #[test]
    fn siblings_share_the_hash_tag_of_their_key() {
        for (key, tag) in [("orders/42", "orders/42"), ("{user1}.cart", "user1"), ("a{b}c{d}", "b")] {
            let tomb = Claim::new(key.into(), Token::new(7, "")).tombstone();
            assert_eq!(hash_tag(&tomb), Some(tag), "{key} and {tomb} must share a slot");
        }
    }

    proptest! {
        #[test]
        fn all_siblings_of_any_key_are_in_its_slot(key in "[a{}:\\PC]{1,8}") {
            let [order, until] = line_keys(&key);
            let claim = Claim::new(key.as_str().into(), Token::new(7, ""));
            let shared = [readers_key(&key), intents_key(&key)];
            let others = [claim.tombstone(), claim.want_mark(), claim.fence_counter(), order, until];
            for sibling in others.into_iter().chain(shared) {
                prop_assert_eq!(Slot::of(&sibling), Slot::of(&key), "{} and {}", &key, &sibling);
            }
        }

        #[test]
        fn two_locks_share_no_sibling(one in "[a{}:]{1,6}", two in "[a{}:]{1,6}") {
            prop_assume!(one != two);
            for (one, two) in [(one.clone(), two), (one.clone(), format!("{{{one}}}"))] {
                prop_assert_ne!(fence_counter(&one), fence_counter(&two));
                prop_assert_ne!(line_keys(&one), line_keys(&two));
            }
        }
    }

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
