//! Kinds of node errors, independent of the store.

use std::fmt;

/// The kind of a node error, independent of the store.
///
/// Every decision about an error, such as whether to retry, which finding `doctor` reports, and which metric
/// counts it, depends on the kind and never on the text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum NodeErrorKind {
    /// Nothing answers at the address, or the connection ended.
    Unreachable,
    /// The response, or something that it depends on, did not arrive in time.
    TimedOut,
    /// The server requires credentials, or rejected the ones that it was given.
    Login,
    /// The server accepts no clients from this host: Redis' protected mode, or a missing entry in
    /// `pg_hba.conf`.
    HostRefused,
    /// The TLS handshake failed.
    Tls,
    /// The user lacks a permission.
    PermissionDenied(Access),
    /// The server is a replica or standby and does not accept writes.
    ReadOnly,
    /// The server is temporarily unavailable: it loads its data, runs a slow script, or is in a failover.
    Busy,
    /// The server is out of memory or disk space.
    OutOfSpace,
    /// The key holds something that is not a lock.
    WrongData,
    /// The server cannot vote: it is a Sentinel, or a cluster member that was given as a node of its own.
    WrongServer,
    /// The server does not support the request: it is too old, or the command was renamed.
    Unsupported,
    /// The address or another setting is wrong, such as a service that its Sentinels do not know.
    Misconfigured,
    /// Any other error.
    Other,
}

/// What a missing permission is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Access {
    /// An operation: a command, a function.
    Operation,
    /// Data: a key, a table.
    Key,
}

impl NodeErrorKind {
    /// Returns whether the problem persists until the configuration of the server or of the client is
    /// corrected.
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
            NodeErrorKind::TimedOut => "timed out",
            NodeErrorKind::Login => "the login was refused",
            NodeErrorKind::HostRefused => "it takes no clients from this host",
            NodeErrorKind::Tls => "no TLS",
            NodeErrorKind::PermissionDenied(Access::Operation) => "its user lacks a permission",
            NodeErrorKind::PermissionDenied(Access::Key) => "its user lacks access to the key",
            NodeErrorKind::ReadOnly => "it takes no writes",
            NodeErrorKind::Busy => "it is temporarily unavailable",
            NodeErrorKind::OutOfSpace => "it is out of memory or disk",
            NodeErrorKind::WrongData => "the key holds something that is not a lock",
            NodeErrorKind::WrongServer => "it is not a server that can vote",
            NodeErrorKind::Unsupported => "it does not support the request",
            NodeErrorKind::Misconfigured => "its address or settings are wrong",
            NodeErrorKind::Other => "it returned an error",
        }
    }
}

impl fmt::Display for NodeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.words())
    }
}
