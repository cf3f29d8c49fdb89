//! Decodes a message, part by part, in the buffer.

/// The parts of a complete message (see `frame`), from the outermost list inwards.
///
/// Ends at a part that is neither text, number, list nor nil: no vote and no hint has one, and the client
/// crate parses all other messages.
#[derive(Clone)]
pub(crate) struct RespReader<'a> {
    rest: &'a [u8],
}

/// A part of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RespValue<'a> {
    Text(&'a [u8]),
    Number(i64),
    /// A list of this many parts follows.
    List(usize),
    Nothing,
}

impl<'a> RespReader<'a> {
    pub(crate) fn of(message: &'a [u8]) -> RespReader<'a> {
        RespReader { rest: message }
    }

    fn line(&mut self) -> Option<&'a [u8]> {
        let end = self.rest.windows(2).position(|pair| pair == b"\r\n")?;
        self.take(end)
    }

    /// Takes `length` bytes and the end of the line.
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, behind) = self.rest.split_at_checked(length)?;
        self.rest = behind.strip_prefix(b"\r\n")?;
        Some(bytes)
    }
}

impl<'a> Iterator for RespReader<'a> {
    type Item = RespValue<'a>;

    fn next(&mut self) -> Option<RespValue<'a>> {
        let (kind, rest) = self.rest.split_first()?;
        self.rest = rest;
        match kind {
            b'+' => self.line().map(RespValue::Text),
            b':' => self.line().and_then(number).map(RespValue::Number),
            b'_' => self.line().map(|_| RespValue::Nothing),
            b'$' | b'=' => {
                // Nil in RESP2.
                let Ok(length) = usize::try_from(self.line().and_then(number)?) else {
                    return Some(RespValue::Nothing);
                };
                let text = self.take(length)?;
                // The type of a verbatim text, such as `txt:`, is skipped.
                Some(RespValue::Text(if *kind == b'=' { text.get(4..)? } else { text }))
            }
            b'*' | b'>' => {
                let length = self.line().and_then(number)?;
                Some(usize::try_from(length).map_or(RespValue::Nothing, RespValue::List))
            }
            _ => None,
        }
    }
}

fn number(line: &[u8]) -> Option<i64> {
    if let [digit @ b'0'..=b'9'] = line {
        return Some(i64::from(digit - b'0'));
    }
    std::str::from_utf8(line).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_part_is_decoded_in_place() {
        let message = b"*6\r\n+held\r\n$4\r\na\r\nb\r\n:-1\r\n$-1\r\n_\r\n=6\r\ntxt:ab\r\n";
        let parts: Vec<_> = RespReader::of(message).collect();
        let expected = [
            RespValue::List(6),
            RespValue::Text(b"held"),
            RespValue::Text(b"a\r\nb"),
            RespValue::Number(-1),
            RespValue::Nothing,
            RespValue::Nothing,
            RespValue::Text(b"ab"),
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn an_invalid_part_ends_the_parts() {
        for message in
            ["-ERR no\r\n", "%1\r\n+a\r\n+b\r\n", ":x\r\n", "$3\r\nab\r\n", "+no end", "=2\r\nab\r\n", ""]
        {
            assert_eq!(RespReader::of(message.as_bytes()).next(), None, "{message:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            assert!(RespReader::of(&bytes).count() <= bytes.len());
        }
    }
}
