//! Encodes a request for RESP.

/// Appends one request to a buffer, as a list of words.
pub(crate) struct CommandWriter<'a> {
    buffer: &'a mut Vec<u8>,
    begin: usize,
    words: usize,
}

impl<'a> CommandWriter<'a> {
    pub(crate) fn begin(buffer: &'a mut Vec<u8>) -> CommandWriter<'a> {
        let begin = buffer.len();
        // A placeholder for the number of words: nearly always one digit.
        heading(buffer, b'*', 0);
        CommandWriter { buffer, begin, words: 0 }
    }

    pub(crate) fn word(&mut self, word: impl AsRef<[u8]>) -> &mut CommandWriter<'a> {
        self.joined(&[word.as_ref()])
    }

    /// Appends one word that is the concatenation of `pieces`, without an allocation.
    pub(crate) fn joined(&mut self, pieces: &[impl AsRef<[u8]>]) -> &mut CommandWriter<'a> {
        self.words += 1;
        heading(self.buffer, b'$', pieces.iter().map(|piece| piece.as_ref().len()).sum());
        for piece in pieces {
            self.buffer.extend_from_slice(piece.as_ref());
        }
        self.buffer.extend_from_slice(b"\r\n");
        self
    }

    pub(crate) fn number(&mut self, number: u64) -> &mut CommandWriter<'a> {
        self.word(itoa::Buffer::new().format(number))
    }

    /// Fills in the number of words. A wrong number would make the server take the next request for a part of
    /// this one.
    pub(crate) fn end(self) {
        debug_assert!(self.words > 0, "a server does not reply to an empty command (rule I-22)");
        let number = self.begin + 1;
        if let (Some(digit), Some(place)) = (one_digit(self.words), self.buffer.get_mut(number)) {
            *place = digit;
        } else {
            let mut digits = itoa::Buffer::new();
            drop(self.buffer.splice(number..=number, digits.format(self.words).bytes()));
        }
    }
}

fn heading(buffer: &mut Vec<u8>, kind: u8, length: usize) {
    if let Some(digit) = one_digit(length) {
        return buffer.extend_from_slice(&[kind, digit, b'\r', b'\n']);
    }
    buffer.push(kind);
    buffer.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    buffer.extend_from_slice(b"\r\n");
}

fn one_digit(number: usize) -> Option<u8> {
    u8::try_from(number).ok().filter(|number| *number < 10).map(|number| b'0' + number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_word_may_be_joined_from_pieces() {
        let mut buffer = b"before".to_vec();
        let mut request = CommandWriter::begin(&mut buffer);
        request.word("SET").joined(&["quorlock:", "", "a"]).number(u64::MAX);
        request.end();
        let written = "before*3\r\n$3\r\nSET\r\n$10\r\nquorlock:a\r\n$20\r\n18446744073709551615\r\n";
        assert_eq!(String::from_utf8(buffer).unwrap(), written);
    }

    proptest! {
        #[test]
        fn requests_are_encoded_as_by_the_client_crate(
            requests in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..30), 1..4,
            ),
        ) {
            let mut ours = Vec::new();
            for words in &requests {
                let mut request = CommandWriter::begin(&mut ours);
                for word in words {
                    request.word(word);
                }
                request.end();
            }
            let theirs: Vec<_> = requests.iter().map(|words| redis::pack_command(words)).collect();
            prop_assert_eq!(ours, theirs.concat());
        }
    }
}
