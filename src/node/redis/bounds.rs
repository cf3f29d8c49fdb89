//! Bounds on what a server may send.
//!
//! The client crate collects an answer until it is complete, however long that takes and however
//! large it says it will be: a server that announces ten gigabytes and sends them fills the memory
//! of its clients. So every byte passes here first. An answer beyond the bounds ends the connection,
//! at its first line if that says how long it is going to be.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest answer, in bytes. Votes have a few hundred, of which the scripts cut what somebody
/// else has stored; the longest is the one to `INFO`, of some 6 KiB.
pub(crate) const LONGEST: usize = 256 * 1024;
/// The most parts of one answer, since the client crate needs 56 bytes for a part of three.
const MOST_PARTS: usize = 4096;
/// The deepest list in a list. Votes have one level, the answer to HELLO has four.
const DEEPEST: usize = 8;
/// The most reads in a row. A stream that always has more to read would use up the runtime's budget
/// for the task (128), and with it the turns of its timers and of its questions.
const READS: u32 = 32;

/// A stream that ends where an answer goes beyond the bounds.
pub(crate) struct Bounded<S> {
    stream: S,
    scan: Scan,
    reads: u32,
}

impl<S> Bounded<S> {
    pub(crate) fn new(stream: S) -> Bounded<S> {
        Bounded { stream, scan: Scan::default(), reads: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.reads >= READS {
            this.reads = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        this.reads = if read.is_ready() { this.reads + 1 } else { 0 };
        ready!(read)?;
        let news = buffer.filled().get(before..).unwrap_or_default();
        let refused = |Excess(what)| io::Error::new(io::ErrorKind::InvalidData, what);
        Poll::Ready(this.scan.pass(news).map_err(refused))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// What is beyond the bounds.
#[derive(PartialEq, Eq, Debug)]
struct Excess(&'static str);

const TOO_LONG: Excess = Excess("it sent an answer of more than 256 KiB");
const TOO_MANY: Excess = Excess("it sent an answer of more than 4096 parts");
const TOO_DEEP: Excess = Excess("it sent lists nested more than 8 deep");
const NO_LENGTH: Excess = Excess("it sent a length that is no number");
/// The client crate remembers each subscription, and would take its confirmation for an answer.
const SUBSCRIBED: Excess = Excess("it confirmed a subscription that nobody asked for");

/// Follows the answers of a server, byte by byte, as the client crate will read them.
#[derive(Debug, Default)]
struct Scan {
    at: At,
    /// How many values each open list still lacks, the outermost first.
    open: Vec<usize>,
    /// Bytes of this answer so far.
    bytes: usize,
    /// Parts of this answer so far.
    parts: usize,
    /// The beginning of a push's first word, while it is read.
    word: Option<Vec<u8>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum At {
    /// Before the byte that says what kind of value follows.
    #[default]
    Kind,
    /// Within a line whose words do not matter.
    Line { ending: bool },
    /// Within the line that says how long a value is.
    Length { kind: u8, digits: u32, negative: bool, length: u64, ending: bool },
    /// So many bytes before the end of a text and its line.
    Text { left: usize },
    /// Behind something that is no protocol. The client crate says so.
    Foreign,
}

impl Scan {
    /// Looks at the next bytes of the server.
    fn pass(&mut self, mut bytes: &[u8]) -> Result<(), Excess> {
        while let Some((byte, rest)) = bytes.split_first() {
            if let At::Text { left } = self.at {
                let (text, behind) = bytes.split_at(left.min(bytes.len()));
                self.note(text);
                bytes = behind;
                // Its length was counted when it was announced.
                match left - text.len() {
                    0 => self.complete()?,
                    left => self.at = At::Text { left },
                }
                continue;
            }
            if self.at == At::Foreign {
                return Ok(());
            }
            bytes = rest;
            self.count(1)?;
            self.byte(*byte)?;
        }
        Ok(())
    }

    fn byte(&mut self, byte: u8) -> Result<(), Excess> {
        match self.at {
            At::Kind => {
                self.parts += 1;
                if self.parts > MOST_PARTS {
                    return Err(TOO_MANY);
                }
                self.at = match byte {
                    b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => At::Line { ending: false },
                    b'$' | b'=' | b'!' | b'*' | b'~' | b'%' | b'|' | b'>' => {
                        At::Length { kind: byte, digits: 0, negative: false, length: 0, ending: false }
                    }
                    _ => At::Foreign,
                };
            }
            At::Line { ending: true } if byte == b'\n' => self.complete()?,
            At::Line { .. } => {
                self.note(&[byte]);
                self.at = At::Line { ending: byte == b'\r' };
            }
            At::Length { kind, digits, negative, length, ending } => {
                self.at = match byte {
                    b'-' if digits == 0 && !negative && !ending => {
                        At::Length { kind, digits, negative: true, length, ending }
                    }
                    // As many as fit, and more than anything may have.
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
            At::Text { .. } | At::Foreign => {}
        }
        Ok(())
    }

    /// A value says how long it is going to be.
    fn announced(&mut self, kind: u8, negative: bool, length: u64) -> Result<(), Excess> {
        let length = usize::try_from(length).map_err(|_| TOO_LONG)?;
        match kind {
            // Nothing, as RESP2 has it.
            b'$' | b'*' | b'~' | b'>' if negative => return self.complete(),
            _ if negative => return Err(NO_LENGTH),
            b'$' | b'=' | b'!' => {
                let left = length.saturating_add(b"\r\n".len());
                self.count(left)?;
                self.at = At::Text { left };
                return Ok(());
            }
            _ => {}
        }
        let values = match kind {
            b'%' => length.saturating_mul(2),
            // Attributes, and then what they belong to.
            b'|' => length.saturating_mul(2).saturating_add(1),
            _ => length,
        };
        if values > MOST_PARTS {
            return Err(TOO_MANY);
        }
        if values == 0 {
            return self.complete();
        }
        if self.open.len() >= DEEPEST {
            return Err(TOO_DEEP);
        }
        if kind == b'>' {
            self.word = Some(Vec::new());
        }
        self.open.push(values);
        self.at = At::Kind;
        Ok(())
    }

    /// A value is complete, and with it each list whose last it was.
    fn complete(&mut self) -> Result<(), Excess> {
        if self.word.take().is_some_and(|word| word.trim_ascii_end().ends_with(b"subscribe")) {
            return Err(SUBSCRIBED);
        }
        self.at = At::Kind;
        while let Some(lacks) = self.open.last_mut() {
            *lacks = lacks.saturating_sub(1);
            if *lacks > 0 {
                return Ok(());
            }
            self.open.pop();
        }
        (self.bytes, self.parts) = (0, 0);
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), Excess> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > LONGEST { Err(TOO_LONG) } else { Ok(()) }
    }

    /// Remembers as much of a push's first word as matters.
    fn note(&mut self, text: &[u8]) {
        if let Some(word) = &mut self.word {
            let room = 16_usize.saturating_sub(word.len());
            word.extend(text.iter().take(room));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scan(bytes: &[u8]) -> Result<Scan, Excess> {
        let mut scan = Scan::default();
        scan.pass(bytes).map(|()| scan)
    }

    /// Whether all answers are complete.
    fn done(bytes: &[u8]) -> bool {
        scan(bytes).is_ok_and(|scan| scan.at == At::Kind && scan.open.is_empty())
    }

    #[test]
    fn what_servers_say_passes() {
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
            ("$ 1\r\n", NO_LENGTH),
            ("*\r\n", NO_LENGTH),
            (">3\r\n+subscribe\r\n", SUBSCRIBED),
            (">3\r\n$12\r\npunsubscribe\r\n", SUBSCRIBED),
        ] {
            let answer = if excess == TOO_MANY && answer.starts_with("*2") {
                // The parts of one answer are counted together.
                format!("{answer}{}", "_\r\n".repeat(4096))
            } else {
                answer.to_owned()
            };
            assert_eq!(scan(answer.as_bytes()).err(), Some(excess), "{answer:.20}");
        }
        assert_eq!(scan(&b"*1\r\n".repeat(9)).err(), Some(TOO_DEEP));
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
            drop(scan(&bytes));
        }

        #[test]
        fn answers_end_where_the_client_crate_ends_them_however_they_are_cut(
            answers in prop::collection::vec(answers(), 1..4),
            cut in 1..20_usize,
        ) {
            let mut whole = Scan::default();
            for answer in &answers {
                prop_assert!(redis::parse_redis_value(answer).is_ok(), "{:?}", answer);
                for piece in answer.chunks(cut) {
                    prop_assert_ne!((&whole.at, whole.open.len(), whole.bytes > 0), (&At::Kind, 0, true));
                    whole.pass(piece).unwrap();
                }
                prop_assert!(whole.at == At::Kind && whole.open.is_empty(), "{:?} behind {:?}", whole, answer);
            }
        }

        /// Whatever the client crate finds complete was complete here: nothing slips past uncounted.
        #[test]
        fn almost_an_answer_is_read_as_the_client_crate_reads_it(
            bytes in r"([*$%:+_=~>|!-][0-9-]{0,2}\r\n|[a-z]{0,4}\r\n){0,12}",
        ) {
            let bytes = bytes.as_bytes();
            if redis::parse_redis_value(bytes).is_ok()
                && let Ok(scan) = scan(bytes)
                && scan.at != At::Foreign
            {
                let mut complete = false;
                let mut follow = Scan::default();
                for byte in bytes {
                    if follow.pass(std::slice::from_ref(byte)).is_err() { break }
                    complete |= follow.at == At::Kind && follow.open.is_empty();
                }
                prop_assert!(complete, "{:?}", scan);
            }
        }
    }
}
