//! What is wrong with a node, in words that fit any store.

use std::fmt;

/// What is wrong with a node, in words that fit any store.
///
/// What is decided by an error, such as whether to ask again, which finding a check-up makes of it and what
/// a metric counts, is decided by this, and never by its text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum NodeErrorKind {
    /// Nothing answers there, or the connection ended.
    Unreachable,
    /// The answer, or what it had to wait for, did not come in time.
    TimedOut,
    /// The server wants user and password, or refuses those that it was given.
    Login,
    /// The server takes no clients from this host: Redis' protected mode, a line that is missing in
    /// `pg_hba.conf`.
    HostRefused,
    /// No encrypted connection could be agreed on.
    Tls,
    /// The user may not do that.
    PermissionDenied(Access),
    /// The server is a replica or standby, and takes no writes.
    ReadOnly,
    /// The server serves nothing right now, and may soon: it loads its data, runs something slow, or a
    /// failover goes on.
    Busy,
    /// The server has no memory or disk left for what it is to store.
    OutOfSpace,
    /// The key holds something else than a lock.
    WrongData,
    /// Not a server that can vote: a Sentinel, a member of a cluster given as a node of its own.
    WrongServer,
    /// The server cannot do what it was asked: it is too old, or the command was renamed.
    Unsupported,
    /// What the address or another setting asks for cannot be: a service that its Sentinels do not know.
    Misconfigured,
    /// An answer that means nothing of the above.
    Other,
}

/// What a right is missing for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Access {
    /// For the operation: a command, a function.
    Operation,
    /// For the data: the key, the table.
    Key,
}

impl NodeErrorKind {
    /// Whether it stays so until the configuration of the server or of the client is corrected.
    #[must_use]
    pub fn is_permanent(self) -> bool {
        match self {
            NodeErrorKind::Login
            | NodeErrorKind::HostRefused
            | NodeErrorKind::Tls
            | NodeErrorKind::PermissionDenied(_)
            | NodeErrorKind::ReadOnly
            | NodeErrorKind::WrongData
            | NodeErrorKind::WrongServer
            | NodeErrorKind::Unsupported
            | NodeErrorKind::Misconfigured => true,
            NodeErrorKind::Unreachable
            | NodeErrorKind::TimedOut
            | NodeErrorKind::Busy
            | NodeErrorKind::OutOfSpace
            | NodeErrorKind::Other => false,
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            NodeErrorKind::Unreachable => "unreachable",
            NodeErrorKind::TimedOut => "too late",
            NodeErrorKind::Login => "the login was refused",
            NodeErrorKind::HostRefused => "it takes no clients from this host",
            NodeErrorKind::Tls => "no TLS",
            NodeErrorKind::PermissionDenied(Access::Operation) => "its user may not do that",
            NodeErrorKind::PermissionDenied(Access::Key) => "its user may not touch the key",
            NodeErrorKind::ReadOnly => "it takes no writes",
            NodeErrorKind::Busy => "it is busy",
            NodeErrorKind::OutOfSpace => "it is out of memory or disk",
            NodeErrorKind::WrongData => "the key holds something that is not a lock",
            NodeErrorKind::WrongServer => "it is not a server that can vote",
            NodeErrorKind::Unsupported => "it cannot do what it was asked",
            NodeErrorKind::Misconfigured => "its address or settings cannot work",
            NodeErrorKind::Other => "it answered with an error",
        }
    }
}

impl fmt::Display for NodeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.words())
    }
}
