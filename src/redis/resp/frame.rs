//! Finds the end of a server's message, and bounds its length.
//!
//! A reply announces its length: a server that announces ten gigabytes and sends them would fill the memory
//! of its clients. So a message is scanned as its bytes arrive, each byte once, and one beyond the bounds is
//! refused at its first line if that announces the length.

/// The longest message, in bytes. Votes have a few hundred bytes; the scripts truncate values that other
/// programs have stored. Longer replies are that to `INFO`, with about 6 KiB, and the first hundred readers
/// of a lock, with at most 100 KiB.
pub(crate) const LONGEST: usize = 256 * 1024;
/// The most parts of one message: the client crate needs 56 bytes for a part of three bytes.
const MOST_PARTS: usize = 4096;
/// The deepest nesting of lists. Votes have one level, the reply to HELLO has four.
const DEEPEST: usize = 8;

/// The violated bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameError(pub(crate) &'static str);

const TOO_LONG: FrameError = FrameError("it sent a reply of more than 256 KiB");
const TOO_MANY: FrameError = FrameError("it sent a reply of more than 4096 parts");
const TOO_DEEP: FrameError = FrameError("it sent lists nested more than 8 deep");
const NO_LENGTH: FrameError = FrameError("it sent a length that is not a number");
/// The bytes are not RESP at all.
pub(crate) const FOREIGN: FrameError =
    FrameError("it does not speak the Redis protocol: correct the port, or the scheme of the address");

/// Scans the messages of a server, in any fragments.
#[derive(Debug, Default)]
pub(crate) struct FrameScanner {
    at: At,
    /// The number of missing values of each open list, the outermost first.
    open: Vec<usize>,
    /// The bytes of this message so far, including announced ones.
    bytes: usize,
    /// The parts of this message so far.
    parts: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum At {
    /// Before the byte with the type of a value.
    #[default]
    Kind,
    /// Within a line whose content does not matter.
    Line { ending: bool },
    /// Within the line with the length of a value.
    Length { kind: u8, digits: u32, negative: bool, length: u64, ending: bool },
    /// Within a text, before this many bytes and its line end.
    Text { left: usize },
}

impl FrameScanner {
    /// Scans bytes that follow the ones seen so far. Returns how many of them belong to the message, if it is
    /// complete then.
    pub(crate) fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, FrameError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (looked_at, complete) = match self.at {
                At::Text { left } => self.text(rest, left)?,
                At::Line { ending } => self.line(rest, ending)?,
                At::Kind => self.beginning(rest)?,
                At::Length { .. } => (1, self.byte(rest.first().copied().unwrap_or_default())?),
            };
            rest = rest.get(looked_at..).unwrap_or_default();
            if complete {
                return Ok(Some(bytes.len() - rest.len()));
            }
        }
        Ok(None)
    }

    /// Scans the type of a value, and its length if that has one digit.
    fn beginning(&mut self, rest: &[u8]) -> Result<(usize, bool), FrameError> {
        let Some((kind, length, line)) = short_length(rest) else {
            return Ok((1, self.byte(rest.first().copied().unwrap_or_default())?));
        };
        self.part()?;
        self.count(line)?;
        Ok((line, self.announced(kind, false, length)?))
    }

    /// Skips a text of known length, which was counted when it was announced.
    fn text(&mut self, rest: &[u8], left: usize) -> Result<(usize, bool), FrameError> {
        let length = left.min(rest.len());
        // Checks the line end as far as it is in these bytes.
        let is = |from_end: usize, byte: u8| {
            let place = left.checked_sub(from_end).and_then(|place| rest.get(place));
            place.is_none_or(|found| *found == byte)
        };
        if !is(2, b'\r') || !is(1, b'\n') {
            return Err(FOREIGN);
        }
        if length == left {
            return Ok((length, self.complete()));
        }
        self.at = At::Text { left: left - length };
        Ok((length, false))
    }

    /// Skips a line, or the part of it that has arrived.
    fn line(&mut self, rest: &[u8], ending: bool) -> Result<(usize, bool), FrameError> {
        let newline = rest.iter().position(|byte| *byte == b'\n');
        let length = newline.map_or(rest.len(), |newline| newline + 1);
        self.count(length)?;
        let words = rest.get(..newline.unwrap_or(rest.len())).unwrap_or_default();
        let ending = words.last().map_or(ending, |last| *last == b'\r');
        if newline.is_some() && ending {
            return Ok((length, self.complete()));
        }
        self.at = At::Line { ending: newline.is_none() && ending };
        Ok((length, false))
    }

    /// Scans a byte of a type or a length.
    fn byte(&mut self, byte: u8) -> Result<bool, FrameError> {
        self.count(1)?;
        match self.at {
            At::Length { kind, digits, negative, length, ending } => {
                self.at = match byte {
                    b'-' if digits == 0 && !negative && !ending => {
                        At::Length { kind, digits, negative: true, length, ending }
                    }
                    // At most 18 digits, which fit, and are beyond any bound.
                    b'0'..=b'9' if digits < 18 && !ending => At::Length {
                        kind,
                        digits: digits + 1,
                        negative,
                        length: length * 10 + u64::from(byte - b'0'),
                        ending,
                    },
                    b'\r' if digits > 0 && !ending => {
                        At::Length { kind, digits, negative, length, ending: true }
                    }
                    b'\n' if ending => return self.announced(kind, negative, length),
                    b'0'..=b'9' if !ending => return Err(TOO_LONG),
                    _ => return Err(NO_LENGTH),
                };
            }
            At::Kind | At::Line { .. } | At::Text { .. } => {
                self.part()?;
                self.at = match byte {
                    b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => At::Line { ending: false },
                    b'$' | b'=' | b'!' | b'*' | b'~' | b'%' | b'|' | b'>' => {
                        At::Length { kind: byte, digits: 0, negative: false, length: 0, ending: false }
                    }
                    _ => return Err(FOREIGN),
                };
            }
        }
        Ok(false)
    }

    /// Handles the announced length of a value.
    fn announced(&mut self, kind: u8, negative: bool, length: u64) -> Result<bool, FrameError> {
        let length = usize::try_from(length).map_err(|_| TOO_LONG)?;
        match kind {
            // Nil in RESP2. There is no negative zero.
            b'$' | b'*' | b'~' | b'>' if negative && length > 0 => return Ok(self.complete()),
            _ if negative => return Err(NO_LENGTH),
            b'$' | b'=' | b'!' => {
                let left = length.saturating_add(b"\r\n".len());
                self.count(left)?;
                self.at = At::Text { left };
                return Ok(false);
            }
            _ => {}
        }
        let values = match kind {
            b'%' => length.saturating_mul(2),
            // Attributes, followed by the value that they belong to.
            b'|' => length.saturating_mul(2).saturating_add(1),
            _ => length,
        };
        if values > MOST_PARTS {
            return Err(TOO_MANY);
        }
        if values == 0 {
            return Ok(self.complete());
        }
        if self.open.len() >= DEEPEST {
            return Err(TOO_DEEP);
        }
        self.open.push(values);
        self.at = At::Kind;
        Ok(false)
    }

    /// Completes a value, and each list that ends with it. Returns whether the message is complete.
    fn complete(&mut self) -> bool {
        self.at = At::Kind;
        while let Some(lacks) = self.open.last_mut() {
            *lacks = lacks.saturating_sub(1);
            if *lacks > 0 {
                return false;
            }
            self.open.pop();
        }
        (self.bytes, self.parts) = (0, 0);
        true
    }

    fn part(&mut self) -> Result<(), FrameError> {
        self.parts += 1;
        if self.parts > MOST_PARTS { Err(TOO_MANY) } else { Ok(()) }
    }

    fn count(&mut self, bytes: usize) -> Result<(), FrameError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > LONGEST { Err(TOO_LONG) } else { Ok(()) }
    }
}

/// Returns the first line of `bytes`, if it announces a text or a list of fewer than ten bytes or values:
/// type, length, and bytes of the line. Nearly all votes consist of these, and are scanned by line instead of
/// by byte.
fn short_length(bytes: &[u8]) -> Option<(u8, u64, usize)> {
    match bytes {
        [kind @ (b'$' | b'*'), digit @ b'0'..=b'9', b'\r', b'\n', ..] => {
            Some((*kind, u64::from(digit - b'0'), 4))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the number of messages in `bytes`, and the length of the incomplete one.
    fn scan(bytes: &[u8]) -> Result<(usize, usize), FrameError> {
        let (mut scan, mut rest, mut messages) = (FrameScanner::default(), bytes, 0);
        while let Some(length) = scan.end(rest)? {
            rest = &rest[length..];
            messages += 1;
        }
        Ok((messages, rest.len()))
    }

    /// Returns whether all messages are complete.
    fn done(bytes: &[u8]) -> bool {
        scan(bytes).is_ok_and(|(_, left)| left == 0)
    }

    #[test]
    fn real_replies_pass() {
        for answer in [
            "+OK\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "_\r\n",
            "*0\r\n",
            "$0\r\n\r\n",
            "*3\r\n+held\r\n$3\r\na\r\n\r\n:-1\r\n",
            "%2\r\n+server\r\n+redis\r\n+modules\r\n*1\r\n%1\r\n+name\r\n=6\r\ntxt:ab\r\n",
            ">2\r\n+invalidate\r\n*1\r\n$1\r\na\r\n",
            ">2\r\n$10\r\ninvalidate\r\n_\r\n",
            "|1\r\n+ttl\r\n:5\r\n,1.5\r\n",
            "!5\r\nERR x\r\n-ERR y\r\n#t\r\n(123\r\n~1\r\n+a\r\n",
        ] {
            assert!(done(answer.as_bytes()), "{answer:?}: {:?}", scan(answer.as_bytes()));
        }
    }

    #[test]
    fn too_much_is_refused_as_soon_as_it_is_announced() {
        for (answer, excess) in [
            ("$9999999999\r\n", TOO_LONG),
            ("$99999999999999999999", TOO_LONG),
            ("*1000000000\r\n", TOO_MANY),
            ("%2049\r\n", TOO_MANY),
            ("|9223372036854775807", TOO_LONG),
            ("*2\r\n*4096\r\n", TOO_MANY),
            ("=-1\r\n", NO_LENGTH),
            ("%-1\r\n", NO_LENGTH),
            ("$-0\r\n", NO_LENGTH),
            ("$ 1\r\n", NO_LENGTH),
            ("*\r\n", NO_LENGTH),
            ("SSH-2.0\r\n", FOREIGN),
            ("\r\n", FOREIGN),
            ("$1\r\nab\r\n", FOREIGN),
            ("$1\r\na\rb", FOREIGN),
        ] {
            let answer = if excess == TOO_MANY && answer.starts_with("*2") {
                // The parts of one reply are counted together.
                format!("{answer}{}", "_\r\n".repeat(4096))
            } else {
                answer.to_owned()
            };
            assert_eq!(scan(answer.as_bytes()).err(), Some(excess), "{answer:.20}");
        }
        assert_eq!(scan(&b"*1\r\n".repeat(9)).err(), Some(TOO_DEEP));
        let nines = (0..4).fold("$0\r\n\r\n".to_owned(), |values, _| format!("*9\r\n{}", values.repeat(9)));
        assert_eq!(scan(nines.as_bytes()).err(), Some(TOO_MANY), "also of the shortest");
        let short = format!("*1\r\n${}\r\n", LONGEST - "*1\r\n$262129\r\n\r\n".len() + 1);
        assert_eq!(scan(short.as_bytes()).err(), Some(TOO_LONG), "including all of its lines");
        assert_eq!(scan(&vec![b'+'; LONGEST + 1]).err(), Some(TOO_LONG));
    }

    #[test]
    fn each_answer_has_its_own_bounds() {
        let most = format!("*{}\r\n{}", MOST_PARTS - 1, "_\r\n".repeat(MOST_PARTS - 1));
        let long = format!("${}\r\n{}\r\n", LONGEST - 20, "x".repeat(LONGEST - 20));
        assert!(done(format!("{most}{most}{long}{long}").as_bytes()));
    }

    fn answers() -> impl Strategy<Value = Vec<u8>> {
        let leaf =
            prop_oneof!["[+-][a-zA-Z \r]{0,9}", "(:-?[0-9]{1,9})|(#[tf])|_|,1\\.5|\\$-1|\\*-1|\\*0|%0|~0",]
                .prop_map(|line| (line + "\r\n").into_bytes());
        let text = prop::collection::vec(any::<u8>(), 0..20)
            .prop_map(|text| [format!("${}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat());
        prop_oneof![leaf, text].prop_recursive(4, 24, 4, |inner| {
            let items = prop::collection::vec(inner, 1..4);
            let list = |kind: char| {
                move |items: Vec<Vec<u8>>| {
                    [format!("{kind}{}\r\n", items.len()).into_bytes(), items.concat()].concat()
                }
            };
            prop_oneof![items.clone().prop_map(list('*')), items.prop_map(list('~'))]
        })
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let read = scan(&bytes);
            prop_assert!(read.is_err() || read.is_ok_and(|(messages, left)| messages + left <= bytes.len()));
        }

        #[test]
        fn fragmented_messages_end_as_in_the_client_crate(
            messages in prop::collection::vec(answers(), 1..4),
            cut in 1..20_usize,
        ) {
            let mut scan = FrameScanner::default();
            for message in &messages {
                prop_assert!(redis::parse_redis_value(message).is_ok(), "{:?}", message);
                let mut passed = 0;
                for piece in message.chunks(cut) {
                    let end = scan.end(piece).unwrap();
                    passed += piece.len();
                    let complete = (passed == message.len()).then_some(piece.len());
                    prop_assert_eq!(end, complete, "{:?} behind {} bytes of {:?}", &scan, passed, message);
                }
            }
        }

        #[test]
        fn complete_messages_are_complete_for_the_client_crate(
            bytes in r"([*$%:+_=~>|!-][0-9-]{0,2}\r\n|[a-z]{0,4}\r\n){0,12}",
        ) {
            let bytes = bytes.as_bytes();
            let end = FrameScanner::default().end(bytes);
            if let Ok(Some(end)) = end {
                // The crate may reject the message, but not as incomplete.
                let lacks = redis::parse_redis_value(&bytes[..end]).is_err_and(|error| error.is_io_error());
                prop_assert!(!lacks, "{} of {:?}", end, bytes);
            }
            // Conversely, no complete message is missed.
            if let Ok(None) = end {
                prop_assert!(redis::parse_redis_value(bytes).is_err(), "{:?}", bytes);
            }
        }
    }
}
