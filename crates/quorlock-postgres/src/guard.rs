//! Reads what a server sends before the driver does, and ends the connection if it is too much.
//!
//! A server is not trusted. `tokio-postgres` reserves memory for a message as soon as its header has arrived,
//! keeps every row of an answer and every parameter that the server reports, and asks the server about types
//! that it does not know, one inside the other, until the stack ends. Each of these ends the program, and with
//! it every lock that it holds on other nodes. So all bytes pass through here, behind TLS and from the first
//! one on, and these rules apply before the driver has seen the byte that would break them:
//!
//! - A message is no longer than [`LONGEST`]; one of the login, an error or an unsolicited one no longer than
//!   [`LONGEST_SHORT`].
//! - All messages up to the end of one answer weigh no more than [`HEAVIEST`]: their bytes, and what each
//!   costs the driver beyond them.
//! - Notices and reports of parameters weigh no more than [`MOST_REPORTS`] over the life of a connection. Our
//!   sessions turn notices off. The memory for notifications is limited where they wait, in
//!   [`session`](crate::session): a busy database sends any number of them.
//! - Columns and parameters have types that the driver knows. We use no others.
//! - A server that wants the password itself gets it over TLS or a Unix socket; on loopback only if the address says so.
//!
//! Time is not limited here: callers drop the connection.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::{Context, Poll, ready};

use quorlock::{node::NodeErrorKind, transport::Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::types::Type;

/// The maximum length of a message, in bytes. The longest that we read is a row with 101 waiters.
const LONGEST: usize = 1 << 20;
/// The maximum length of a message of another kind. A notification has 8000 bytes.
const LONGEST_SHORT: usize = 64 << 10;
/// The maximum weight of an answer, in bytes. The heaviest that we read is a page of 250 keys, with 700 KB.
const HEAVIEST: usize = 4 << 20;
/// The maximum weight of all notices and reported parameters.
const MOST_REPORTS: usize = 1 << 20;
/// The kinds of messages up to the end of a login.
const LOGIN: &[u8] = b"RESNKZv";
/// What a message weighs beyond its bytes.
const MESSAGE: usize = 128;

/// Who may read the password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// No one but the server: TLS, a Unix socket, or a machine whose users are trusted.
    Private,
    /// Another user of this machine, who listens while the server is down.
    Loopback,
    /// An attacker on the way.
    Network,
}

impl Way {
    /// Refuses to send the password itself.
    fn refuse_password(self) -> Result<(), Refusal> {
        const OTHERS: &str = "let the server store it for SCRAM (`password_encryption = 'scram-sha-256'`, and that method in pg_hba.conf)";
        let words = match self {
            Way::Private => return Ok(()),
            Way::Loopback => format!(
                "the server asks for the password itself, which another user of this machine would read without TLS, by listening \
                 there while the database is down: use its Unix socket (`host=/run/postgresql`), write `sslmode=verify-full` in \
                 the address, {OTHERS}, or write `cleartext-password=loopback` if you trust all its users"
            ),
            Way::Network => format!(
                "the server asks for the password itself, which an attacker on the way would read without TLS: write \
                 `sslmode=verify-full` in the address, or {OTHERS}"
            ),
        };
        Err(Refusal { kind: NodeErrorKind::Login, words })
    }
}

/// A stream whose messages have limits.
pub(crate) struct Guard {
    stream: Box<dyn Stream>,
    messages: Messages,
}

impl Guard {
    /// Guards a stream. The PID in the server's greeting is stored in `pid`: the driver does not expose it.
    pub(crate) fn new(stream: Box<dyn Stream>, way: Way, pid: Arc<AtomicI32>) -> Guard {
        Guard { stream, messages: Messages::new(way, pid) }
    }
}

/// Why the connection was ended.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) kind: NodeErrorKind,
    pub(crate) words: String,
}

impl Refusal {
    /// Returns the refusal behind an error of the driver.
    pub(crate) fn behind(error: &tokio_postgres::Error) -> Option<&Refusal> {
        error.source()?.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl Error for Refusal {}

/// What is known about the messages so far. Pure.
struct Messages {
    way: Way,
    pid: Arc<AtomicI32>,
    /// The part of the next header that has arrived.
    header: Vec<u8>,
    /// The kind of the current message, and the number of its bytes that are missing.
    kind: u8,
    missing: usize,
    /// The part of the current message that has arrived, if it is read here.
    body: Vec<u8>,
    /// Whether the login is over.
    is_ready: bool,
    /// The weights of the current answer, and of all reports.
    answer: usize,
    reports: usize,
}

impl Messages {
    fn new(way: Way, pid: Arc<AtomicI32>) -> Messages {
        Messages {
            way,
            pid,
            header: Vec::new(),
            kind: 0,
            missing: 0,
            body: Vec::new(),
            is_ready: false,
            answer: 0,
            reports: 0,
        }
    }

    /// Reads the next bytes, however they are split.
    fn read(&mut self, mut bytes: &[u8]) -> Result<(), Refusal> {
        while !bytes.is_empty() {
            if self.missing == 0 {
                let (part, rest) = bytes.split_at(bytes.len().min(5 - self.header.len()));
                self.header.extend(part);
                bytes = rest;
                if let [kind, length @ ..] = &*self.header
                    && let Ok(length) = length.try_into()
                {
                    let (kind, length) = (*kind, u32::from_be_bytes(length));
                    self.header.clear();
                    self.begin(kind, length)?;
                }
            } else {
                let (part, rest) = bytes.split_at(bytes.len().min(self.missing));
                if reads(self.kind) {
                    self.body.extend(part);
                }
                (self.missing, bytes) = (self.missing - part.len(), rest);
            }
            if self.missing == 0 && self.header.is_empty() {
                self.finish()?;
            }
        }
        Ok(())
    }

    /// Checks the header of a message.
    fn begin(&mut self, kind: u8, length: u32) -> Result<(), Refusal> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let unsolicited = matches!(kind, b'A' | b'N' | b'S');
        if !self.is_ready && !LOGIN.contains(&kind) {
            return Err(not_ours(
                "it does not speak PostgreSQL's protocol: is it another server?".to_owned(),
            ));
        }
        let most = if !self.is_ready || unsolicited || kind == b'E' { LONGEST_SHORT } else { LONGEST };
        if length > most {
            let likely = if self.is_ready { "" } else { ": is it another server?" };
            return Err(not_ours(format!(
                "it announced a message of {length} bytes, and the maximum is {most}{likely}"
            )));
        }
        self.missing = length
            .checked_sub(4)
            .ok_or_else(|| not_ours(format!("it announced a message of {length} bytes")))?;
        (self.kind, self.body) = (kind, Vec::new());
        let weight = length + MESSAGE;
        match kind {
            b'A' => {}
            b'N' | b'S' => {
                self.reports += weight;
                if self.reports > MOST_REPORTS {
                    return Err(not_ours(format!(
                        "it sent more than {MOST_REPORTS} bytes of notices and parameters"
                    )));
                }
            }
            _ => {
                self.answer += weight;
                if self.answer > HEAVIEST {
                    return Err(not_ours(format!("it sent more than {HEAVIEST} bytes for one question")));
                }
            }
        }
        Ok(())
    }

    /// Reads a message that has arrived.
    fn finish(&mut self) -> Result<(), Refusal> {
        let body = std::mem::take(&mut self.body);
        match std::mem::take(&mut self.kind) {
            // AuthenticationCleartextPassword.
            b'R' if body == [0, 0, 0, 3] => self.way.refuse_password(),
            // BackendKeyData.
            b'K' => {
                if let Some(pid) = body.first_chunk() {
                    self.pid.store(i32::from_be_bytes(*pid), Ordering::Relaxed);
                }
                Ok(())
            }
            // ReadyForQuery.
            b'Z' => {
                (self.is_ready, self.answer) = (true, 0);
                Ok(())
            }
            b't' => check_types(parameter_types(&body)),
            b'T' => check_types(column_types(&body)),
            _ => Ok(()),
        }
    }
}

/// Whether messages of this kind are read here: authentication, the PID, the types of columns and parameters.
fn reads(kind: u8) -> bool {
    matches!(kind, b'R' | b'K' | b'T' | b't')
}

/// The types in a `ParameterDescription`: their number, and four bytes each. The driver refuses a malformed one.
fn parameter_types(body: &[u8]) -> Vec<u32> {
    let types = body.get(2..).unwrap_or_default();
    types.as_chunks::<4>().0.iter().map(|oid| u32::from_be_bytes(*oid)).collect()
}

/// The types in a `RowDescription`: a name, the table and the column in six bytes, the type, and eight more.
fn column_types(body: &[u8]) -> Vec<u32> {
    let mut rest = body.get(2..).unwrap_or_default();
    let mut types = Vec::new();
    while let Some(end) = rest.iter().position(|byte| *byte == 0)
        && let Some(column) = rest.get(end + 1..)
        && let Some(oid) = column.get(6..).and_then(<[u8]>::first_chunk)
    {
        types.push(u32::from_be_bytes(*oid));
        rest = column.get(18..).unwrap_or_default();
    }
    types
}

fn check_types(types: Vec<u32>) -> Result<(), Refusal> {
    match types.into_iter().find(|oid| Type::from_oid(*oid).is_none()) {
        None => Ok(()),
        Some(oid) => {
            Err(not_ours(format!("it answered with a type of its own ({oid}), which is not used here")))
        }
    }
}

fn not_ours(words: String) -> Refusal {
    Refusal { kind: NodeErrorKind::WrongServer, words }
}

impl AsyncRead for Guard {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        let checked = this.messages.read(read);
        // A refused byte does not reach the driver.
        Poll::Ready(checked.map_err(|refusal| {
            buffer.set_filled(before);
            io::Error::other(refusal)
        }))
    }
}

impl AsyncWrite for Guard {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[kind], &length[..], body].concat()
    }

    /// Reads these bytes in pieces of one, seven and all. Returns the PID, or why they are refused.
    fn read(way: Way, bytes: &[u8]) -> Result<i32, String> {
        let read = |size: usize| {
            let pid = Arc::new(AtomicI32::new(0));
            let mut messages = Messages::new(way, Arc::clone(&pid));
            let mut pieces = bytes.chunks(size);
            pieces.try_for_each(|piece| messages.read(piece)).map_err(|refusal| refusal.words)?;
            Ok(pid.load(Ordering::Relaxed))
        };
        let [one, seven, all] = [1, 7, bytes.len()].map(read);
        assert!(
            one == seven && seven == all,
            "it depends on how the bytes are split: {one:?} {seven:?} {all:?}"
        );
        all
    }

    fn greeting() -> Vec<u8> {
        let (pid, state) = ([0, 0, 0x10, 1, 0, 0, 0, 7], message(b'Z', b"I"));
        [message(b'R', &[0; 4]), message(b'S', b"a\0b\0"), message(b'K', &pid), state].concat()
    }

    #[test]
    fn the_pid_is_read_however_the_greeting_is_split() {
        assert_eq!(read(Way::Network, &greeting()), Ok(0x1001));
    }

    #[test]
    fn a_message_is_refused_by_its_header() {
        let header = |kind, length: u32| [&[kind], &length.to_be_bytes()[..]].concat();
        for (length, refused) in
            [(4, false), (64 << 10, false), ((64 << 10) + 1, true), (u32::MAX, true), (3, true)]
        {
            assert_eq!(read(Way::Private, &header(b'R', length)).is_err(), refused, "{length} in the login");
        }
        for (kind, length, refused) in [
            (b'D', 1 << 20, false),
            (b'D', (1 << 20) + 1, true),
            (b'E', 1 << 20, true),
            (b'A', 1 << 20, true),
        ] {
            let bytes = [greeting(), header(kind, length)].concat();
            assert_eq!(read(Way::Private, &bytes).is_err(), refused, "{} of {length}", char::from(kind));
        }
    }

    #[test]
    fn an_answer_ends_with_the_server_ready_and_reports_never_do() {
        let rows = |count| message(b'D', &[0; 1000]).repeat(count);
        let ready = message(b'Z', b"I");
        assert!(read(Way::Private, &[greeting(), rows(3000), ready.clone(), rows(3000)].concat()).is_ok());
        assert!(read(Way::Private, &[greeting(), rows(6000)].concat()).is_err());
        for kind in [b'N', b'S'] {
            let reports = [message(kind, &[0; 1000]).repeat(500), ready.clone()].concat();
            assert!(read(Way::Private, &[greeting(), reports.clone()].concat()).is_ok());
            assert!(read(Way::Private, &[greeting(), reports.repeat(3)].concat()).is_err());
        }
        let notification = message(b'A', &[0; 1000]).repeat(10_000);
        assert!(read(Way::Private, &[greeting(), notification].concat()).is_ok(), "a busy database");
    }

    #[test]
    fn a_password_is_sent_as_it_is_only_where_none_reads_it() {
        let asked = message(b'R', &[0, 0, 0, 3]);
        assert!(read(Way::Private, &asked).is_ok());
        for way in [Way::Loopback, Way::Network] {
            let refused = read(way, &asked).unwrap_err();
            assert!(refused.contains("sslmode=verify-full"), "{refused}");
            assert_eq!(refused.contains("cleartext-password=loopback"), way == Way::Loopback, "{refused}");
            assert!(read(way, &message(b'R', &[0, 0, 0, 10])).is_ok(), "SCRAM");
        }
    }

    #[test]
    fn types_that_the_driver_would_ask_about_are_refused() {
        let ready = message(b'Z', b"I");
        let after_login = |kind, body: &[u8]| [&ready[..], &message(kind, body)].concat();
        let parameters =
            |oid: u32| after_login(b't', &[&[0, 2, 0, 0, 0, 17], &oid.to_be_bytes()[..]].concat());
        let column = |oid: u32| [b"name\0\0\0\0\0\0\0", &oid.to_be_bytes()[..], &[0; 8]].concat();
        let columns = |oid| after_login(b'T', &[vec![0, 2], column(20), column(oid)].concat());
        for (oid, refused) in [(25, false), (2278, false), (16_384, true), (0, true)] {
            assert_eq!(read(Way::Private, &parameters(oid)).is_err(), refused, "a parameter of {oid}");
            assert_eq!(read(Way::Private, &columns(oid)).is_err(), refused, "a column of {oid}");
        }
    }
}
