//! Packets of the protocol, with a limit for everything that a server can make its client store.
//!
//! A server is not trusted. Before it has been authenticated by anyone it may announce a packet of 16 MiB, a
//! result with 2^64 columns, or rows without end; a driver that reserves what was announced is ended by the
//! allocator, which no `catch_unwind` prevents, and with it every lock that it held on other nodes. So:
//!
//! - A packet is refused by its header if it is longer than [`LONGEST`], before any memory is reserved, and
//!   its body is stored as it arrives.
//! - Everything that one question makes the server send is weighed: its bytes, and what each packet and each
//!   field costs here beyond its bytes. An answer that weighs more than [`HEAVIEST`] ends the connection.
//! - Packets are numbered. One out of order, which is how a second answer to a question begins, ends the
//!   connection.
//!
//! Time is not limited here: the caller drops the future.

use std::io;

use quorlock::transport::Stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};

/// The maximum length of a packet, in bytes. The largest that we read is a row with all that waits for a lock:
/// 256 waiters take 50 KB, and 10,000 readers 2 MB.
pub(crate) const LONGEST: usize = 4 << 20;
/// The maximum weight of all packets after one question, in bytes. The largest answer that we read has the
/// rows of 128 requests.
pub(crate) const HEAVIEST: usize = 16 << 20;
/// What a packet weighs beyond its bytes: a row is a vector.
const PACKET: usize = 64;
/// What a field weighs beyond its bytes: a vector, and the least that the allocator reserves.
pub(crate) const FIELD: usize = 64;
/// The maximum length of a statement: the protocol continues longer ones in another packet.
const LONGEST_SENT: usize = 0xff_ffff;

/// A connection that sends and receives packets.
pub(crate) struct Wire {
    stream: BufReader<Box<dyn Stream>>,
    /// The number of the next packet, in either direction.
    number: u8,
    /// How much the server may still send.
    budget: usize,
}

impl Wire {
    pub(crate) fn new(stream: Box<dyn Stream>) -> Wire {
        Wire { stream: BufReader::new(stream), number: 0, budget: HEAVIEST }
    }

    /// Returns the stream, to start TLS on it. Fails if the server has sent more than it was asked for: an
    /// attacker on the way would have these bytes read as if they were encrypted.
    pub(crate) fn into_plain(self) -> io::Result<Box<dyn Stream>> {
        if self.stream.buffer().is_empty() {
            return Ok(self.stream.into_inner());
        }
        Err(broken("it sent plain text where TLS begins"))
    }

    /// Continues the numbering after TLS has begun.
    pub(crate) fn numbered_from(mut self, number: u8) -> Wire {
        self.number = number;
        self
    }

    pub(crate) fn next_number(&self) -> u8 {
        self.number
    }

    /// Reads a packet.
    ///
    /// # Cancel safety
    ///
    /// None: part of the packet may have been read.
    pub(crate) async fn read(&mut self) -> io::Result<Vec<u8>> {
        let [a, b, c, number] = {
            let mut header = [0; 4];
            self.stream.read_exact(&mut header).await?;
            header
        };
        let length = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
        if length > LONGEST {
            return Err(broken(format!(
                "it announced a packet of {length} bytes, and the maximum is {LONGEST}"
            )));
        }
        if number != self.number {
            return Err(broken(format!("it sent packet {number} where {} was due", self.number)));
        }
        self.number = number.wrapping_add(1);
        self.weigh(length + PACKET)?;
        let mut body = Vec::new();
        // Reserves what has arrived, not what was announced.
        (&mut self.stream).take(length as u64).read_to_end(&mut body).await?;
        if body.len() < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(body) }
    }

    /// Counts what an answer costs here beyond its bytes.
    pub(crate) fn weigh(&mut self, bytes: usize) -> io::Result<()> {
        self.budget = self
            .budget
            .checked_sub(bytes)
            .ok_or_else(|| broken(format!("it sent more than {HEAVIEST} bytes for one question")))?;
        Ok(())
    }

    /// Sends a question, which begins a new exchange.
    pub(crate) async fn ask(&mut self, body: &[u8]) -> io::Result<()> {
        (self.number, self.budget) = (0, HEAVIEST);
        // Nothing may have come before the question.
        if !self.stream.buffer().is_empty() {
            return Err(broken("it sent an answer without a question"));
        }
        self.send(body).await
    }

    /// Sends a packet of the current exchange.
    pub(crate) async fn send(&mut self, body: &[u8]) -> io::Result<()> {
        if body.len() >= LONGEST_SENT {
            let words =
                format!("the statements have {} bytes, and the maximum is {LONGEST_SENT}", body.len());
            return Err(broken(words));
        }
        let mut packet = Vec::with_capacity(body.len() + 4);
        packet.extend(u32::try_from(body.len()).unwrap_or_default().to_le_bytes().iter().take(3));
        packet.push(self.number);
        packet.extend(body);
        self.number = self.number.wrapping_add(1);
        self.stream.write_all(&packet).await?;
        self.stream.flush().await
    }

    /// Closes the connection properly, so that the server does not log an aborted one.
    pub(crate) async fn close(mut self) {
        const QUIT: &[u8] = &[1];
        if self.ask(QUIT).await.is_ok() {
            drop(self.stream.shutdown().await);
        }
    }
}

/// An answer that no server gives.
pub(crate) fn broken(words: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words.into())
}

/// The unread rest of a packet.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or_else(|| broken("it sent a packet that ends too soon"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number of `count` bytes, at most eight.
    pub(crate) fn number(&mut self, count: usize) -> io::Result<u64> {
        let bytes = self.bytes(count)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// A number whose first byte says how long it is. `None` stands for NULL.
    pub(crate) fn length(&mut self) -> io::Result<Option<u64>> {
        match self.number(1)? {
            0xfb => Ok(None),
            0xfc => self.number(2).map(Some),
            0xfd => self.number(3).map(Some),
            0xfe => self.number(8).map(Some),
            0xff => Err(broken("it sent a length that begins with 255")),
            short => Ok(Some(short)),
        }
    }

    /// Bytes after their length. `None` stands for NULL.
    pub(crate) fn value(&mut self) -> io::Result<Option<&'a [u8]>> {
        let Some(length) = self.length()? else { return Ok(None) };
        self.bytes(usize::try_from(length).unwrap_or(usize::MAX)).map(Some)
    }

    /// Bytes up to a zero, or to the end: some servers omit the last zero.
    pub(crate) fn text(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        let (text, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).unwrap_or_default();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(sent: &[u8]) -> Wire {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let sent = sent.to_vec();
        tokio::spawn(async move {
            drop(far.write_all(&sent).await);
            std::future::pending::<()>().await;
        });
        Wire::new(Box::new(near))
    }

    #[tokio::test]
    async fn no_plain_text_is_read_as_if_it_were_encrypted() {
        let mut wire = wire(b"\x01\0\0\0a\x07\0\0\x01");
        assert_eq!(wire.read().await.unwrap(), b"a");
        assert!(wire.into_plain().err().unwrap().to_string().contains("where TLS begins"));
    }

    #[test]
    fn a_field_is_never_longer_than_its_packet() {
        for (packet, value) in [
            (&b"\x01a"[..], Some(Some(&b"a"[..]))),
            (b"\x00", Some(Some(b""))),
            (b"\xfb", Some(None)),
            (b"\xfc\x01\0a", Some(Some(b"a"))),
            (b"\xfd\x01\0\0a", Some(Some(b"a"))),
            (b"\xfe\x01\0\0\0\0\0\0\0a", Some(Some(b"a"))),
            (b"\x02a", None),
            (b"\xfe\xff\xff\xff\xff\xff\xff\xff\xffa", None),
            (b"\xff", None),
            (b"\xfc\x01", None),
            (b"", None),
        ] {
            assert_eq!(Fields(packet).value().ok(), value, "{packet:?}");
        }
        let mut texts = Fields(b"a\0b");
        assert_eq!([texts.text(), texts.text(), texts.text()], [&b"a"[..], b"b", b""]);
    }
}
