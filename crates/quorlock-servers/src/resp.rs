//! The Redis protocol, encoding and decoding, with a limit on everything.

use std::fmt;

/// A value on the wire, as a server answers.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Resp {
    /// `+OK`
    Status(String),
    /// `-ERR …`
    Error(String),
    /// `:1`
    Number(i64),
    /// A string of any bytes.
    Text(Vec<u8>),
    /// Text for display; RESP2 does not distinguish it.
    Verbatim(String),
    /// No value.
    Null,
    /// A list.
    List(Vec<Resp>),
    /// An unrequested message, such as a hint, in RESP3.
    Push(Vec<Resp>),
    /// Pairs; in RESP2 a list of twice the length.
    Map(Vec<(Resp, Resp)>),
}

/// The version of the protocol that a connection uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Version {
    #[default]
    Two,
    Three,
}

/// A violation of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Garbage(&'static str);

impl fmt::Display for Garbage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERR Protocol error: {}", self.0)
    }
}

/// A lock client sends short commands. These limits prevent a stray client from exhausting the memory.
const LONGEST_TEXT: usize = 1 << 20;
const MOST_PARTS: usize = 1 << 16;
const LONGEST_LINE: usize = 1 << 16;
const DEEPEST: usize = 8;

impl Resp {
    pub(crate) fn ok() -> Resp {
        Resp::Status("OK".to_owned())
    }

    pub(crate) fn text(text: impl AsRef<[u8]>) -> Resp {
        Resp::Text(text.as_ref().to_vec())
    }

    pub(crate) fn write(&self, version: Version, out: &mut Vec<u8>) {
        match self {
            Resp::Status(text) => line(out, '+', text),
            Resp::Error(text) => line(out, '-', text),
            Resp::Number(number) => line(out, ':', number),
            Resp::Text(bytes) => {
                line(out, '$', bytes.len());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Resp::Verbatim(text) if version == Version::Three => {
                line(out, '=', text.len() + b"txt:".len());
                line(out, 't', format_args!("xt:{text}"));
            }
            Resp::Verbatim(text) => Resp::text(text).write(version, out),
            Resp::Null if version == Version::Three => line(out, '_', ""),
            Resp::Null => line(out, '$', -1),
            Resp::List(parts) | Resp::Push(parts) => {
                let kind = if matches!(self, Resp::Push(_)) { '>' } else { '*' };
                line(out, kind, parts.len());
                for part in parts {
                    part.write(version, out);
                }
            }
            Resp::Map(pairs) => {
                match version {
                    Version::Two => line(out, '*', pairs.len() * 2),
                    Version::Three => line(out, '%', pairs.len()),
                }
                for (key, value) in pairs {
                    key.write(version, out);
                    value.write(version, out);
                }
            }
        }
    }
}

impl fmt::Display for Resp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resp::Status(text) | Resp::Error(text) | Resp::Verbatim(text) => f.write_str(text),
            Resp::Number(number) => write!(f, "{number}"),
            Resp::Text(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            Resp::Null => f.write_str("(nil)"),
            Resp::List(parts) | Resp::Push(parts) => separated(f, parts.iter()),
            Resp::Map(pairs) => separated(f, pairs.iter().flat_map(|(key, value)| [key, value])),
        }
    }
}

fn separated<'a>(f: &mut fmt::Formatter<'_>, parts: impl Iterator<Item = &'a Resp>) -> fmt::Result {
    for (index, part) in parts.enumerate() {
        if index > 0 {
            f.write_str(" ")?;
        }
        write!(f, "{part}")?;
    }
    Ok(())
}

fn line(out: &mut Vec<u8>, kind: char, rest: impl fmt::Display) {
    out.extend_from_slice(format!("{kind}{rest}\r\n").as_bytes());
}

/// A command: its name and its arguments.
pub(crate) type Command = Vec<Vec<u8>>;

/// Encodes a command as a client sends it.
pub(crate) fn write_command(parts: &[&[u8]], out: &mut Vec<u8>) {
    Resp::List(parts.iter().map(Resp::text).collect()).write(Version::Two, out);
}

/// Reads one command from the front of `input`: its parts and its length, or `None` if more bytes are needed.
pub(crate) fn read_command(input: &[u8]) -> Result<Option<(Command, usize)>, Garbage> {
    let mut reader = Reader { input, at: 0 };
    let Some(header) = reader.line()? else { return Ok(None) };
    let Some(count) = header.strip_prefix(b"*") else {
        return Err(Garbage("expected '*': commands are arrays here, inline commands are not supported"));
    };
    let Some(count) = length(count, MOST_PARTS)? else { return Ok(Some((Vec::new(), reader.at))) };
    let mut parts = Vec::new();
    for _ in 0..count {
        let Some(header) = reader.line()? else { return Ok(None) };
        let size = header.strip_prefix(b"$").ok_or(Garbage("expected '$'"))?;
        let size = length(size, LONGEST_TEXT)?.ok_or(Garbage("invalid bulk length"))?;
        let Some(part) = reader.text(size)? else { return Ok(None) };
        parts.push(part.to_vec());
    }
    Ok(Some((parts, reader.at)))
}

/// Reads one answer from the front of `input`, like [`read_command`].
pub(crate) fn read_answer(input: &[u8]) -> Result<Option<(Resp, usize)>, Garbage> {
    let mut reader = Reader { input, at: 0 };
    Ok(reader.answer(DEEPEST)?.map(|answer| (answer, reader.at)))
}

struct Reader<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Returns the next line without its terminator, or `None` if it is incomplete.
    fn line(&mut self) -> Result<Option<&'a [u8]>, Garbage> {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let Some(end) = rest.windows(2).take(LONGEST_LINE).position(|pair| pair == b"\r\n") else {
            return if rest.len() > LONGEST_LINE { Err(Garbage("the line is too long")) } else { Ok(None) };
        };
        self.at += end + 2;
        Ok(rest.get(..end))
    }

    /// Returns the next `size` bytes, and consumes the terminator after them.
    fn text(&mut self, size: usize) -> Result<Option<&'a [u8]>, Garbage> {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let Some((text, rest)) = rest.split_at_checked(size) else { return Ok(None) };
        let Some((end, _)) = rest.split_at_checked(2) else { return Ok(None) };
        if end != b"\r\n" {
            return Err(Garbage("expected the end of a line after a bulk string"));
        }
        self.at += size + 2;
        Ok(Some(text))
    }

    fn answer(&mut self, depth: usize) -> Result<Option<Resp>, Garbage> {
        let Some((kind, rest)) = self.line()?.map(|line| line.split_first().unwrap_or((&0, &[]))) else {
            return Ok(None);
        };
        let words = || String::from_utf8_lossy(rest).into_owned();
        Ok(Some(match kind {
            b'+' => Resp::Status(words()),
            b'-' => Resp::Error(words()),
            b':' => Resp::Number(number(rest)?),
            b'_' => Resp::Null,
            b'$' | b'=' => {
                let Some(size) = length(rest, LONGEST_TEXT)? else { return Ok(Some(Resp::Null)) };
                let Some(text) = self.text(size)? else { return Ok(None) };
                match kind {
                    b'=' => Resp::Verbatim(
                        String::from_utf8_lossy(text.get(4..).unwrap_or_default()).into_owned(),
                    ),
                    _ => Resp::text(text),
                }
            }
            b'*' | b'%' | b'~' | b'>' => {
                let depth = depth.checked_sub(1).ok_or(Garbage("lists nested too deeply"))?;
                let Some(count) = length(rest, MOST_PARTS)? else { return Ok(Some(Resp::Null)) };
                let mut parts = Vec::new();
                for _ in 0..if *kind == b'%' { count * 2 } else { count } {
                    let Some(part) = self.answer(depth)? else { return Ok(None) };
                    parts.push(part);
                }
                if *kind == b'>' { Resp::Push(parts) } else { Resp::List(parts) }
            }
            _ => return Err(Garbage("an answer of an unknown kind")),
        }))
    }
}

fn number(digits: &[u8]) -> Result<i64, Garbage> {
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    number.ok_or(Garbage("expected a number"))
}

/// Parses a length up to `most`; `None` for the -1 that means "null" in RESP2.
fn length(digits: &[u8], most: usize) -> Result<Option<usize>, Garbage> {
    let number = number(digits)?;
    match usize::try_from(number) {
        Ok(length) if length <= most => Ok(Some(length)),
        Err(_) if number == -1 => Ok(None),
        Ok(_) | Err(_) => Err(Garbage("invalid length")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn garbage_never_panics(input in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop((read_command(&input), read_answer(&input)));
        }

        #[test]
        fn almost_a_command_never_panics(input in r"([*$%:+_=-][0-9-]{0,3}\r\n|[a-z]{0,4}\r\n){0,12}") {
            drop((read_command(input.as_bytes()), read_answer(input.as_bytes())));
        }

        #[test]
        fn a_command_is_read_back_from_every_prefix_that_holds_it(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 1..6),
        ) {
            let mut wire = Vec::new();
            write_command(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut wire);
            for end in 0..wire.len() {
                prop_assert_eq!(read_command(&wire[..end]), Ok(None), "cut at {}", end);
            }
            prop_assert_eq!(read_command(&wire), Ok(Some((parts, wire.len()))));
        }
    }

    #[test]
    fn an_endless_line_is_refused_instead_of_collected() {
        assert!(read_command(&vec![b'*'; LONGEST_LINE + 10]).is_err());
        assert!(read_command(b"*1\r\n$999999999\r\n").is_err());
    }

    #[test]
    fn nested_lists_have_a_maximum_depth() {
        assert!(read_answer(&b"*1\r\n".repeat(1000)).is_err());
    }
}
