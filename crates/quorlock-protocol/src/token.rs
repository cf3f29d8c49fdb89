//! The value under the key of a lock, which proves who holds it.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::FencingToken;
use super::printable::printable;
use super::shared::SHARED_MARKER;

/// The value that identifies the holder of a lock on a node: 128 random bits, new for every attempt
/// (rule I-4), or 64 and the inbox of its process, followed by the holder's context for people to read.
///
/// It proves ownership to the nodes: a client that knows it can release the lock. So `Display` and
/// `Debug` show the context and only the first digits of the random part. Tokens of other programs
/// can be any bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token {
    bytes: Arc<[u8]>,
}

/// Hexadecimal digits of the random part.
pub(crate) const RANDOM_DIGITS: usize = 32;
/// The longest token of ours, unless the host name or label is longer.
const USUAL: usize = 128;
/// Follows the random part if the lock is retained.
const RETAINED: &[u8] = b":retained";
/// The most characters of a context that are displayed.
pub(crate) const SHOWN: usize = 120;
/// The same for a retained lock, whose context ends with the note.
const SHOWN_RETAINED: usize = 360;
/// The number of digits that identify an attempt in a log but cannot release the lock.
const SHOWN_DIGITS: usize = 8;

impl Token {
    /// Returns the part that distinguishes this attempt from all others; the whole token, if
    /// another program made a shorter one.
    #[must_use]
    pub fn random_part(&self) -> &[u8] {
        self.bytes.get(..RANDOM_DIGITS).unwrap_or(&self.bytes)
    }

    /// Creates a token.
    #[must_use]
    #[inline]
    pub fn new(random: u128, context: &str) -> Token {
        Token::of(random, &[b" ", context.as_bytes()])
    }

    /// Creates a token that names the fencing token which its attempt wants to draw.
    #[must_use]
    #[inline]
    pub fn numbered(random: u128, number: FencingToken, context: &str) -> Token {
        let mut digits = itoa::Buffer::new();
        Token::of(random, &[b":", digits.format(number.get()).as_bytes(), b" ", context.as_bytes()])
    }

    /// Creates the token of a lock that stays taken after its holder's lease (rule R-10): no
    /// process holds it, and the context names the last holder.
    #[must_use]
    #[inline]
    pub fn retained(random: u128, context: &str) -> Token {
        Token::of(random, &[RETAINED, b" ", context.as_bytes()])
    }

    fn of(random: u128, rest: &[&[u8]]) -> Token {
        let mut digits = [0; RANDOM_DIGITS];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(random.to_be_bytes()) {
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 0xf)]);
        }
        // Assembled on the stack, and allocated once.
        let mut bytes = SmallVec::<[u8; USUAL]>::from_slice(&digits);
        for piece in rest {
            bytes.extend_from_slice(piece);
        }
        Token { bytes: bytes.as_slice().into() }
    }

    /// Returns the fencing token that its attempt wanted to draw, if it names one. A node that has
    /// drawn another number for it stores that.
    #[must_use]
    #[inline]
    pub fn number(&self) -> Option<FencingToken> {
        str::from_utf8(self.behind_random()?.strip_prefix(b":")?.split(|byte| *byte == b' ').next()?)
            .ok()?
            .parse()
            .ok()
    }

    /// Returns whether no process holds the lock: it stays taken until the key expires, as its last
    /// holder asked (`Lease::retain`).
    #[must_use]
    #[inline]
    pub fn is_retained(&self) -> bool {
        self.parts().is_some_and(|(mark, _)| mark == RETAINED)
    }

    /// Returns the mark between the random part and the context, and the context, if the token is
    /// one of ours.
    fn parts(&self) -> Option<(&[u8], &[u8])> {
        let rest = self.behind_random()?;
        let (mark, context) = rest.split_at_checked(rest.iter().position(|byte| *byte == b' ')?)?;
        let ours = mark.is_empty() || mark == RETAINED || self.number().is_some();
        ours.then(|| (mark, context.get(1..).unwrap_or_default()))
    }

    /// Returns what follows the random part, if the token is one of ours: a number, a mark or
    /// nothing; then a space and the context.
    fn behind_random(&self) -> Option<&[u8]> {
        let (random, rest) = self.bytes.split_at_checked(RANDOM_DIGITS)?;
        random.iter().all(u8::is_ascii_hexdigit).then_some(rest)
    }

    /// Wraps a token found on a node, of any program.
    #[must_use]
    #[inline]
    pub fn found(bytes: &[u8]) -> Token {
        Token { bytes: bytes.into() }
    }

    /// Returns the bytes as stored on the nodes.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns whether a client of this library created it: then it has a
    /// [context](Token::context).
    #[must_use]
    #[inline]
    pub fn is_ours(&self) -> bool {
        self.parts().is_some()
    }

    /// Returns the holder's context, if the token is one of ours: `host:pid` and a label, followed
    /// by its last holder's note if the lock is [retained](Token::is_retained).
    #[must_use]
    #[inline]
    pub fn context(&self) -> Option<String> {
        self.parts().map(|(_, context)| String::from_utf8_lossy(context).into_owned())
    }

    /// Returns whether it is not a token, but says that readers share the lock: see
    /// [`SHARED_MARKER`].
    #[must_use]
    #[inline]
    pub fn is_marker(&self) -> bool {
        *self.bytes == *SHARED_MARKER.as_bytes()
    }

    /// Returns it as text if it is the owner of a lock of Redisson: the UUID of a client, and the number
    /// of a thread. Whoever may read the lock sees it, and Redisson's own messages name it.
    fn redisson_owner(&self) -> Option<&str> {
        let (client, thread) = str::from_utf8(&self.bytes).ok()?.split_once(':')?;
        let is_hex = |part: &str| part.bytes().all(|digit| digit.is_ascii_hexdigit());
        let is_uuid = client.split('-').map(str::len).eq([8, 4, 4, 4, 12]) && client.split('-').all(is_hex);
        let is_thread = !thread.is_empty() && thread.bytes().all(|digit| digit.is_ascii_digit());
        (is_uuid && is_thread).then_some(str::from_utf8(&self.bytes).ok()?)
    }

    /// Whether it is an IP address, which proves nothing: Curator writes that of the holder's host into its node.
    fn is_address(&self) -> bool {
        self.text().parse::<IpAddr>().is_ok()
    }

    fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// Returns the first digits of the random part: enough to tell two attempts apart. For another
    /// program's token that is not text, returns its first bytes in hexadecimal.
    #[must_use]
    pub fn short(&self) -> String {
        if let Ok(text) = str::from_utf8(&self.bytes) {
            return printable(text).cut(SHOWN_DIGITS).to_string();
        }
        let digits = self.bytes.iter().take(SHOWN_DIGITS / 2).map(|byte| format!("{byte:02x}"));
        format!("0x{}", digits.collect::<String>())
    }
}

/// Formats a hexadecimal digit. By hand, because each attempt formats a token, which would
/// otherwise double its cost.
fn digit(nibble: u8) -> u8 {
    nibble + if nibble < 10 { b'0' } else { b'a' - 10 }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.context() {
            Some(context) if self.is_retained() => write!(f, "{}", printable(&context).cut(SHOWN_RETAINED)),
            Some(context) => write!(f, "{}", printable(&context).cut(SHOWN)),
            None if self.is_marker() => f.write_str("readers"),
            None => match self.redisson_owner() {
                Some(owner) => write!(f, "Redisson {owner}"),
                None if self.is_address() => write!(f, "another program at {}", printable(&self.text())),
                None => write!(f, "another program ({}…)", self.short()),
            },
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}… {self})", self.short())
    }
}

#[cfg(test)]
mod tests {
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
    fn an_owner_of_redisson_is_shown_whole() {
        let owner = "8743c9c0-0795-4907-87fd-6c719a6b4586:31";
        assert_eq!(Token::found(owner.as_bytes()).to_string(), format!("Redisson {owner}"));
        for other in
            ["8743c9c0-0795-4907-87fd-6c719a6b4586", "8743c9c0-0795-4907-87fd-6c719a6b4586:", "a-b:1"]
        {
            let shown = Token::found(other.as_bytes()).to_string();
            assert!(shown.starts_with("another program"), "{shown}");
        }
    }

    #[test]
    fn the_host_of_a_holder_of_curator_is_shown_whole() {
        for host in ["127.0.0.1", "203.0.113.250", "fd00::1:2:3"] {
            assert_eq!(Token::found(host.as_bytes()).to_string(), format!("another program at {host}"));
        }
        let secret = Token::found(b"203.0.113.250-secret").to_string();
        assert!(!secret.contains("secret"), "the whole token may release the lock: {secret}");
    }

    #[test]
    fn a_retained_token_says_so_and_who_held_the_lock() {
        let token = Token::retained(7, "db-7:4121 import ran at noon");
        assert!(token.is_retained());
        assert_eq!(token.to_string(), "db-7:4121 import ran at noon");
        assert_eq!(token.number(), None);
        assert_eq!(Token::found(token.as_bytes()), token, "it round-trips by its bytes");
        let number = "7".parse().unwrap();
        for other in [Token::new(7, ":retained by name"), Token::numbered(7, number, ":retained")] {
            assert!(!other.is_retained(), "{other:?}: a label does not retain a lock");
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
    fn the_marker_is_no_token_and_is_shown_as_readers() {
        let marker = Token::found(SHARED_MARKER.as_bytes());
        assert_eq!((marker.context(), marker.is_marker()), (None, true));
        assert_eq!(marker.to_string(), "readers");
        assert!(!Token::new(7, SHARED_MARKER).is_marker());
    }
}
