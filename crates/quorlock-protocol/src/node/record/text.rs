//! Records as text, which an operator can read in the store.
//!
//! Each line is one thing, with words that are separated by spaces. Bytes that are no visible characters are
//! written as `%` and two hexadecimal digits. A `mark` may stand at the end of lines that can have one.
//!
//! ```text
//! holder TOKEN ENDS NUMBER wanted|- MARK
//! counter NUMBER
//! reader TOKEN ENDS MARK
//! writer WAITER ENDS MARK
//! cancelled RANDOM ENDS MARK
//! turn BEGAN PACE WAITER
//! waiter WAITER SINCE ENDS PROCESS
//! ```
//!
//! What is missing is `-`. Moments are in microseconds.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::Arc;

use crate::{FencingToken, Token, WaiterId};

use super::state::{Entry, Held, Record};
use super::word::{MISSING, bytes, visible};

impl Record {
    /// Encodes the whole record.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        if let Some(Held { token, ends, number, wanted, mark }) = &self.held {
            let (ends, number) = (or_missing(ends.as_ref()), or_missing(number.as_ref()));
            let wanted = if *wanted { "wanted" } else { MISSING };
            let _ = writeln!(
                text,
                "holder {} {ends} {number} {wanted} {}",
                visible(token.as_bytes()),
                of(mark.as_ref())
            );
        }
        if self.counter > 0 {
            let _ = writeln!(text, "counter {}", self.counter);
        }
        text + &self.encode_entries() + &self.queue.encode()
    }

    /// Encodes the readers, the waiting writers and the tombstones.
    #[must_use]
    pub fn encode_entries(&self) -> String {
        let mut text = String::new();
        for (kind, entries) in [("reader", &self.readers), ("cancelled", &self.tombstones)] {
            for (name, Entry { ends, mark }) in entries {
                let _ = writeln!(text, "{kind} {} {ends} {}", visible(name), of(mark.as_ref()));
            }
        }
        for (waiter, Entry { ends, mark }) in &self.intents {
            let _ = writeln!(text, "writer {waiter} {ends} {}", of(mark.as_ref()));
        }
        text
    }

    /// Decodes a record. `None` if the text is something else.
    #[must_use]
    pub fn decode(text: &[u8]) -> Option<Record> {
        let mut record = Record::default();
        record.read(text)?;
        Some(record)
    }

    /// Adds what the lines of a text say. `None` if the text is something else.
    pub fn read(&mut self, text: &[u8]) -> Option<()> {
        str::from_utf8(text).ok()?.lines().try_for_each(|line| self.read_line(line))
    }

    fn read_line(&mut self, line: &str) -> Option<()> {
        match *line.split(' ').collect::<Vec<_>>() {
            ["holder", token, ends, drawn, wanted, mark] => {
                self.held = Some(Held {
                    token: Token::found(&bytes(token)?),
                    ends: unless_missing(ends, number).ok()?,
                    number: unless_missing(drawn, |word| FencingToken::new(number(word)?)).ok()?,
                    wanted: wanted == "wanted",
                    mark: mark_of(mark),
                });
            }
            ["counter", counter] => self.counter = number(counter)?,
            ["reader", token, ends, mark] => add(&mut self.readers, bytes(token)?, ends, mark)?,
            ["cancelled", random, ends, mark] => add(&mut self.tombstones, bytes(random)?, ends, mark)?,
            ["writer", waiter, ends, mark] => {
                add(&mut self.intents, WaiterId::parse(waiter.as_bytes())?, ends, mark)?;
            }
            ["turn", began, pace, waiter] => {
                let waiter = unless_missing(waiter, |word| WaiterId::parse(word.as_bytes())).ok()?;
                self.queue.set_turn(number(began)?, number(pace)?, waiter);
            }
            ["waiter", waiter, since, ends, process] => {
                let process = String::from_utf8_lossy(&bytes(process)?).into_owned();
                let waiter = WaiterId::parse(waiter.as_bytes())?;
                self.queue.add(waiter, number(since)?, number(ends)?, process);
            }
            _ => return None,
        }
        Some(())
    }
}

fn add<K: Ord>(entries: &mut BTreeMap<K, Entry>, name: K, ends: &str, mark: &str) -> Option<()> {
    entries.insert(name, Entry { ends: number(ends)?, mark: mark_of(mark) });
    Some(())
}

fn or_missing(number: Option<&impl Display>) -> String {
    number.map_or_else(|| MISSING.to_owned(), ToString::to_string)
}

fn number(word: &str) -> Option<u64> {
    word.parse().ok()
}

/// Parses a word with `parse`, unless it is missing. Fails with the whole line if it is something else.
fn unless_missing<T>(word: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, NotOfARecord> {
    if word == MISSING { Ok(None) } else { parse(word).map(Some).ok_or(NotOfARecord) }
}

struct NotOfARecord;

fn of(mark: Option<&Arc<str>>) -> &str {
    mark.map_or(MISSING, |mark| mark)
}

fn mark_of(word: &str) -> Option<Arc<str>> {
    (word != MISSING).then(|| word.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let entry = |ends, mark: Option<&str>| Entry { ends, mark: mark.map(Arc::from) };
        let held = Held {
            token: Token::found(b"\0\xff a%-"),
            ends: Some(7),
            number: FencingToken::new(5),
            wanted: true,
            mark: Some("1:2:3".into()),
        };
        let mut record = Record { held: Some(held.clone()), counter: 9, ..Record::default() };
        record.readers =
            BTreeMap::from([(b"-".to_vec(), entry(7, Some("x"))), (b"b c".to_vec(), entry(8, None))]);
        record.intents = BTreeMap::from([(WaiterId::new(9), entry(8, None))]);
        record.tombstones = BTreeMap::from([(Vec::new(), entry(3, None))]);
        record.queue.join(WaiterId::new(7), 20, 80, "anna:1 on a host");
        record.queue.join(WaiterId::new(8), 21, 80, "");
        record.queue.begin_turn(WaiterId::new(9), 33);
        assert_eq!(Record::decode(record.encode().as_bytes()).as_ref(), Some(&record));
        assert!(record.queue.next_turn(44));
        record.held = Some(Held { ends: None, number: None, wanted: false, mark: None, ..held });
        assert_eq!(Record::decode(record.encode().as_bytes()).as_ref(), Some(&record), "{}", record.encode());
        let parts = record.encode_entries() + &record.queue.encode();
        let rest = Record { held: None, counter: 0, ..record };
        assert_eq!(Record::decode(parts.as_bytes()), Some(rest));
        assert_eq!(Record::decode(b""), Some(Record::default()));
    }

    #[test]
    fn anything_else_is_no_record() {
        for wrong in [
            "list of items",
            "counter x",
            "counter",
            "reader a x -",
            "reader %6 7 -",
            "reader  7 -",
            "writer 1 2 -",
            "reader a",
            "holder a 7 - -",
            "holder a x - - -",
            "holder a 7 99999999999999999999 - -",
            "turn 1 2",
            "turn 1 x -",
            "turn 1 2 3",
            "waiter 1 2 3 a",
            "waiter 0000000000000001 2 3 %6",
        ] {
            assert_eq!(Record::decode(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
