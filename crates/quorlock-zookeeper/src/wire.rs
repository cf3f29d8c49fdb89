//! Messages of ZooKeeper's protocol: the requests that this crate sends, and their answers. Pure.
//!
//! A server is not trusted: a length is never more than what has arrived, and nothing is reserved by it.

use std::io;

/// The longest answer that is read, unless more was asked for: as long as a node's data may be.
pub(crate) const LONGEST: usize = 1 << 20;
/// The longest list of children: those of a hundred thousand locks.
pub(crate) const LONGEST_LIST: usize = 8 << 20;

/// What a client asks for, as it is numbered.
pub(crate) mod op {
    pub(crate) const DELETE: i32 = 2;
    pub(crate) const EXISTS: i32 = 3;
    pub(crate) const GET_DATA: i32 = 4;
    pub(crate) const SET_DATA: i32 = 5;
    pub(crate) const SYNC: i32 = 9;
    pub(crate) const GET_CHILDREN: i32 = 12;
    pub(crate) const CHECK: i32 = 13;
    pub(crate) const MULTI: i32 = 14;
    pub(crate) const CREATE: i32 = 15;
    pub(crate) const REMOVE_WATCHES: i32 = 18;
    pub(crate) const CREATE_CONTAINER: i32 = 19;
    pub(crate) const LOGIN: i32 = 100;
    pub(crate) const GET_EPHEMERALS: i32 = 103;
    pub(crate) const ADD_WATCH: i32 = 106;
    pub(crate) const CLOSE: i32 = -11;
    /// A result in place of another one, within a transaction.
    pub(crate) const ERROR: i32 = -1;
}

/// Why a server has not done what it was asked for, as it is numbered.
pub(crate) mod code {
    pub(crate) const MARSHALLING: i32 = -5;
    pub(crate) const UNIMPLEMENTED: i32 = -6;
    pub(crate) const BAD_ARGUMENTS: i32 = -8;
    pub(crate) const NO_NODE: i32 = -101;
    pub(crate) const NO_AUTH: i32 = -102;
    pub(crate) const BAD_VERSION: i32 = -103;
    pub(crate) const NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
    pub(crate) const NODE_EXISTS: i32 = -110;
    pub(crate) const NOT_EMPTY: i32 = -111;
    pub(crate) const SESSION_EXPIRED: i32 = -112;
    pub(crate) const INVALID_ACL: i32 = -114;
    pub(crate) const AUTH_FAILED: i32 = -115;
    pub(crate) const SESSION_MOVED: i32 = -118;
    pub(crate) const NOT_READ_ONLY: i32 = -119;
    pub(crate) const NO_WATCHER: i32 = -121;
    pub(crate) const SASL_REQUIRED: i32 = -124;
    pub(crate) const QUOTA_EXCEEDED: i32 = -125;
    pub(crate) const THROTTLED: i32 = -127;
}

/// How a node is created: for ever or until the session ends, and with a number after its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Create {
    Persistent,
    Ephemeral,
    EphemeralSequential,
}

/// Who may use the nodes that we create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Everyone,
    /// Who has logged in as we have.
    Creator,
}

/// A request, without its header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Create {
        path: String,
        data: Vec<u8>,
        how: Create,
    },
    /// A node that the server deletes some time after its last child has gone.
    CreateContainer {
        path: String,
    },
    Delete {
        path: String,
    },
    /// Changes nothing; fails unless the node exists, with this version if it is not -1.
    Check {
        path: String,
        version: i32,
    },
    Exists {
        path: String,
    },
    GetData {
        path: String,
        watch: bool,
    },
    SetData {
        path: String,
        data: Vec<u8>,
        version: i32,
    },
    GetChildren {
        path: String,
    },
    GetEphemerals {
        below: String,
    },
    /// Brings the member up to what its leader has committed.
    Sync {
        path: String,
    },
    /// Reports all changes of the node and of those below it.
    AddWatch {
        path: String,
    },
    RemoveWatches {
        path: String,
    },
    /// All of these or none.
    Multi(Vec<Call>),
    Close,
}

/// Everything that has changed in a node, or the numbers of its changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stat {
    /// The change that created it.
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    /// Of the data.
    pub(crate) version: i32,
    /// Twice the number of children ever created, less the number of those that exist.
    pub(crate) cversion: i32,
    /// The session that it lives with; zero for none.
    pub(crate) owner: i64,
    pub(crate) children: i32,
}

/// What an operation of a transaction has done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Done {
    Created(String, Stat),
    Set(Stat),
    /// It was deleted, or found as expected.
    Nothing,
    /// It has failed, or another one has.
    Failed(i32),
}

impl Call {
    pub(crate) fn op(&self) -> i32 {
        match self {
            Call::Create { .. } => op::CREATE,
            Call::CreateContainer { .. } => op::CREATE_CONTAINER,
            Call::Delete { .. } => op::DELETE,
            Call::Check { .. } => op::CHECK,
            Call::Exists { .. } => op::EXISTS,
            Call::GetData { .. } => op::GET_DATA,
            Call::SetData { .. } => op::SET_DATA,
            Call::GetChildren { .. } => op::GET_CHILDREN,
            Call::GetEphemerals { .. } => op::GET_EPHEMERALS,
            Call::Sync { .. } => op::SYNC,
            Call::AddWatch { .. } => op::ADD_WATCH,
            Call::RemoveWatches { .. } => op::REMOVE_WATCHES,
            Call::Multi(_) => op::MULTI,
            Call::Close => op::CLOSE,
        }
    }

    /// Returns how long the answer may be.
    pub(crate) fn longest_answer(&self) -> usize {
        if matches!(self, Call::GetChildren { .. }) { LONGEST_LIST } else { LONGEST }
    }

    /// Appends the request, without its header.
    pub(crate) fn write(&self, to: &mut Writer, access: Access) {
        match self {
            Call::Create { path, data, how } => {
                to.text(path);
                to.buffer(data);
                to.access(access);
                to.int(match how {
                    Create::Persistent => 0,
                    Create::Ephemeral => 1,
                    Create::EphemeralSequential => 3,
                });
            }
            Call::CreateContainer { path } => {
                to.text(path);
                to.buffer(&[]);
                to.access(access);
                to.int(4);
            }
            Call::Delete { path } => {
                to.text(path);
                to.int(-1);
            }
            Call::Check { path, version } => {
                to.text(path);
                to.int(*version);
            }
            Call::Exists { path } | Call::GetChildren { path } => {
                to.text(path);
                to.flag(false);
            }
            Call::GetData { path, watch } => {
                to.text(path);
                to.flag(*watch);
            }
            Call::SetData { path, data, version } => {
                to.text(path);
                to.buffer(data);
                to.int(*version);
            }
            Call::GetEphemerals { below: path } | Call::Sync { path } => to.text(path),
            Call::AddWatch { path } => {
                to.text(path);
                // Persistent, and recursive.
                to.int(1);
            }
            Call::RemoveWatches { path } => {
                to.text(path);
                // Of any type.
                to.int(3);
            }
            Call::Multi(calls) => {
                for call in calls {
                    to.header_of_part(call.op(), false);
                    call.write(to, access);
                }
                to.header_of_part(-1, true);
            }
            Call::Close => {}
        }
    }
}

/// Writes a message.
#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// Begins a message, whose length is set when it is finished.
    pub(crate) fn new() -> Writer {
        Writer(vec![0; 4])
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        let mut message = self.0;
        let length = u32::try_from(message.len().saturating_sub(4)).unwrap_or(u32::MAX);
        if let Some(front) = message.first_chunk_mut::<4>() {
            *front = length.to_be_bytes();
        }
        message
    }

    pub(crate) fn int(&mut self, number: i32) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    pub(crate) fn long(&mut self, number: i64) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.0.push(u8::from(flag));
    }

    pub(crate) fn buffer(&mut self, bytes: &[u8]) {
        self.int(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.buffer(text.as_bytes());
    }

    /// One entry, with all permissions.
    fn access(&mut self, access: Access) {
        let (scheme, id) = match access {
            Access::Everyone => ("world", "anyone"),
            Access::Creator => ("auth", ""),
        };
        self.int(1);
        self.int(31);
        self.text(scheme);
        self.text(id);
    }

    fn header_of_part(&mut self, op: i32, is_last: bool) {
        self.int(op);
        self.flag(is_last);
        self.int(-1);
    }
}

/// A message that the server would not send.
pub(crate) fn broken(words: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words.into())
}

/// The unread rest of a message.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or_else(too_short)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn int(&mut self) -> io::Result<i32> {
        self.take().map(i32::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> io::Result<i64> {
        self.take().map(i64::from_be_bytes)
    }

    pub(crate) fn flag(&mut self) -> io::Result<bool> {
        self.take::<1>().map(|[flag]| flag != 0)
    }

    /// A length below zero stands for nothing.
    pub(crate) fn buffer(&mut self) -> io::Result<&'a [u8]> {
        let length = usize::try_from(self.int()?).unwrap_or(0);
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(too_short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn text(&mut self) -> io::Result<&'a str> {
        str::from_utf8(self.buffer()?).map_err(|_| broken("it sent a name that is not UTF-8"))
    }

    pub(crate) fn texts(&mut self) -> io::Result<Vec<&'a str>> {
        let count = usize::try_from(self.int()?).unwrap_or(0);
        // Each takes four bytes at least, and what has arrived is all there is.
        let mut texts = Vec::with_capacity(count.min(self.0.len() / 4));
        for _ in 0..count {
            texts.push(self.text()?);
        }
        Ok(texts)
    }

    pub(crate) fn stat(&mut self) -> io::Result<Stat> {
        let (czxid, mzxid) = (self.long()?, self.long()?);
        // Times, by the leader's calendar.
        let _ = (self.long()?, self.long()?);
        let (version, cversion) = (self.int()?, self.int()?);
        let _of_access = self.int()?;
        let owner = self.long()?;
        let _length = self.int()?;
        let children = self.int()?;
        let _last_child = self.long()?;
        Ok(Stat { czxid, mzxid, version, cversion, owner, children })
    }

    /// The results of a transaction.
    pub(crate) fn results(&mut self) -> io::Result<Vec<Done>> {
        let mut results = Vec::new();
        loop {
            let (kind, is_last) = (self.int()?, self.flag()?);
            let _same_as_below = self.int()?;
            if is_last {
                return Ok(results);
            }
            results.push(match kind {
                op::CREATE => {
                    let path = self.text()?.to_owned();
                    Done::Created(path, self.stat()?)
                }
                op::SET_DATA => Done::Set(self.stat()?),
                op::DELETE | op::CHECK => Done::Nothing,
                op::ERROR => Done::Failed(self.int()?),
                other => return Err(broken(format!("it sent a result of the unknown kind {other}"))),
            });
        }
    }
}

fn too_short() -> io::Error {
    broken("it sent a message that ends too soon")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let mut writer = Writer::new();
        writer.int(-7);
        writer.long(1 << 40);
        writer.flag(true);
        writer.text("Schlüssel");
        let message = writer.finish();
        assert_eq!(message[..4], u32::try_from(message.len() - 4).unwrap().to_be_bytes());
        let mut reader = Reader(&message[4..]);
        assert_eq!((reader.int().unwrap(), reader.long().unwrap()), (-7, 1 << 40));
        assert!(reader.flag().unwrap());
        assert_eq!(reader.text().unwrap(), "Schlüssel");
        assert!(reader.0.is_empty());
    }

    #[test]
    fn no_length_is_believed_that_has_not_arrived() {
        for announced in [5, i32::MAX, i32::MIN, -1] {
            let mut message = announced.to_be_bytes().to_vec();
            message.extend(b"abc");
            let read = Reader(&message).buffer().map(<[u8]>::to_vec);
            assert_eq!(read.ok(), (announced < 0).then(Vec::new), "{announced}");
            let texts = Reader(&message).texts();
            assert_eq!(texts.ok(), (announced < 0).then(Vec::new), "{announced}");
        }
        assert!(Reader(&[0; 67]).stat().is_err() && Reader(&[0; 68]).stat().is_ok());
        assert!(Reader(&[]).results().is_err());
        assert!(Reader(&[0, 0, 0, 99, 0, 0, 0, 0, 0]).results().is_err(), "an unknown result");
    }
}
