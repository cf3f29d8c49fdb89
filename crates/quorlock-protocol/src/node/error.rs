//! The error of a node that did not vote.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::Reason;
use super::TlsFailure;
pub use kind::{Access, NodeErrorKind};

mod kind;

/// The error of a node that did not vote.
///
/// The variant says whether the node may have carried out the request; see also
/// [`may_have_acted`](NodeError::may_have_acted). The [`kind`](NodeError::kind) classifies the problem
/// independently of the store. The original error of the store is the [`source`](Error::source): for a Redis
/// or Valkey server a `quorlock::redis::ServerError`, for a network an
/// [`io::Error`](std::io::Error).
///
/// Two errors are equal if they have the same kind and the same `{:#}` text.
///
/// # Display
///
/// `{}` writes only the sentence, for programs that print the chain of sources. `{:#}` appends the source, as
/// the vote reports, findings and logs of this library do.
///
/// ```
/// use std::io;
///
/// use quorlock_protocol::node::{NodeError, NodeErrorKind, Reason};
///
/// let error = NodeError::Unreachable { reason: io::Error::other("connection refused").into() };
/// assert_eq!(error.kind(), NodeErrorKind::Unreachable);
/// assert_eq!(error.to_string(), "unreachable");
/// assert_eq!(format!("{error:#}"), "unreachable: connection refused");
///
/// let reason = Reason::new("the table of locks is missing");
/// let error = NodeError::Failed { kind: NodeErrorKind::Misconfigured, reason };
/// assert!(error.is_permanent() && !error.may_have_acted());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NodeError {
    /// There is no connection. The request was not sent.
    Unreachable {
        /// Why there is no connection.
        reason: Reason,
    },
    /// The server accepts connections and does not answer: it is hung, or what is in front of it. The request was not
    /// sent.
    Unresponsive {
        /// For how long it was silent.
        reason: Reason,
    },
    /// The request was sent, and no response arrived in time.
    Unanswered {
        /// The timeout that has passed.
        waited: Duration,
    },
    /// The connection ended before the response arrived.
    Disconnected {
        /// Why the connection ended.
        reason: Reason,
    },
    /// Too many earlier requests to this node are unanswered. The request was not sent.
    Overloaded {
        /// The number of unanswered requests.
        waiting: usize,
    },
    /// The attempt was over before the request was sent.
    NotAsked,
    /// The server must not vote, even if it grants.
    Unfit {
        /// Why it must not: [`ReadOnly`](NodeErrorKind::ReadOnly),
        /// [`WrongServer`](NodeErrorKind::WrongServer) or [`Unsupported`](NodeErrorKind::Unsupported).
        kind: NodeErrorKind,
        /// The problem and the fix.
        reason: Reason,
    },
    /// The semaphore has another number of permits on this node.
    OtherLimit {
        /// The number on the node.
        found: Arc<str>,
        /// The number in the request.
        asked: Arc<str>,
    },
    /// The response could not be parsed. The request may have been carried out.
    UnexpectedReply {
        /// What arrived, and what was expected.
        reason: Reason,
    },
    /// The store refused the request and did not carry it out.
    Failed {
        /// The kind of the problem.
        kind: NodeErrorKind,
        /// The problem as a sentence, with the fix. Its source is the error of the server.
        reason: Reason,
    },
}

impl NodeError {
    /// Returns the kind of the problem, which is independent of the store.
    #[must_use]
    pub fn kind(&self) -> NodeErrorKind {
        match self {
            NodeError::Unfit { kind, .. } | NodeError::Failed { kind, .. } => *kind,
            NodeError::Unreachable { .. } | NodeError::Disconnected { .. } => NodeErrorKind::Unreachable,
            NodeError::Unresponsive { .. } | NodeError::Unanswered { .. } | NodeError::NotAsked => {
                NodeErrorKind::TimedOut
            }
            NodeError::Overloaded { .. } => NodeErrorKind::Busy,
            NodeError::OtherLimit { .. } => NodeErrorKind::WrongData,
            NodeError::UnexpectedReply { .. } => NodeErrorKind::Other,
        }
    }

    /// Returns whether the node may have carried out the request, or may still do so.
    #[must_use]
    pub fn may_have_acted(&self) -> bool {
        match self {
            NodeError::Unanswered { .. }
            | NodeError::Disconnected { .. }
            | NodeError::UnexpectedReply { .. }
            | NodeError::OtherLimit { .. } => true,
            NodeError::Unreachable { .. }
            | NodeError::Unresponsive { .. }
            | NodeError::Overloaded { .. }
            | NodeError::NotAsked
            | NodeError::Unfit { .. }
            | NodeError::Failed { .. } => false,
        }
    }

    /// Returns whether the node cannot grant anything until its configuration, or the client's, is corrected,
    /// so that retries are pointless.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        matches!(self, NodeError::Unfit { .. }) || self.kind().is_permanent()
    }

    /// Converts an error of `quorlock::transport::Dial`: a failed TLS handshake, or an unreachable node.
    #[must_use]
    pub fn undialled(error: io::Error) -> NodeError {
        match TlsFailure::behind(error) {
            Ok(no_tls) => no_tls.into(),
            Err(error) => NodeError::Unreachable { reason: error.into() },
        }
    }

    /// Returns the reason, if the variant has one.
    fn reason(&self) -> Option<&Reason> {
        match self {
            NodeError::Unreachable { reason }
            | NodeError::Unresponsive { reason }
            | NodeError::Disconnected { reason }
            | NodeError::Unfit { reason, .. }
            | NodeError::UnexpectedReply { reason }
            | NodeError::Failed { reason, .. } => Some(reason),
            NodeError::Unanswered { .. }
            | NodeError::Overloaded { .. }
            | NodeError::NotAsked
            | NodeError::OtherLimit { .. } => None,
        }
    }
}

impl From<TlsFailure> for NodeError {
    fn from(TlsFailure { meaning, source }: TlsFailure) -> NodeError {
        let reason = Reason::new(format!("no TLS: {meaning}")).quoting_boxed(source);
        NodeError::Failed { kind: NodeErrorKind::Tls, reason }
    }
}

impl Error for NodeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.reason()?.cause()
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::Unreachable { reason } => reason.write_after("unreachable", f),
            NodeError::Unresponsive { reason } => {
                reason.write_after("it accepts connections and does not answer", f)
            }
            NodeError::Unanswered { waited } => {
                write!(f, "no answer within {}", crate::duration::format(*waited))
            }
            NodeError::Disconnected { reason } => {
                reason.write_after("the connection ended before it answered", f)
            }
            NodeError::Overloaded { waiting } => {
                write!(f, "{waiting} earlier requests are unanswered, so this one was not sent")
            }
            NodeError::NotAsked => {
                f.write_str("not asked: the attempt was over before the connection was ready")
            }
            NodeError::OtherLimit { found, asked } => write!(
                f,
                "the semaphore has {found} permits there, but this program asks for {asked}: all clients must use the \
                 same number, which can be changed after no permit was held for one TTL"
            ),
            NodeError::UnexpectedReply { reason } => reason.write(f),
            NodeError::Unfit { kind, reason } | NodeError::Failed { kind, reason } => {
                if reason.has_words() {
                    reason.write(f)
                } else {
                    reason.write_after(kind.words(), f)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io() -> io::Error {
        io::Error::other("\x1b[2Jrefused")
    }

    #[test]
    fn an_error_is_written_as_its_reason() {
        let quoted = || Reason::new("it wants a password").quoting(io());
        for (reason, short, full) in [
            (Reason::from("plain"), "plain", "plain"),
            (quoted(), "it wants a password", r"it wants a password (\u{1b}[2Jrefused)"),
        ] {
            let error = NodeError::Failed { kind: NodeErrorKind::Login, reason };
            assert_eq!((error.to_string().as_str(), format!("{error:#}").as_str()), (short, full));
        }
        let nameless = NodeError::Failed { kind: NodeErrorKind::Tls, reason: io().into() };
        assert_eq!(
            (nameless.to_string().as_str(), &*format!("{nameless:#}")),
            ("no TLS", r"no TLS: \u{1b}[2Jrefused")
        );
    }

    #[test]
    fn a_chain_of_sources_repeats_nothing() {
        let inner = NodeError::Failed { kind: NodeErrorKind::Busy, reason: Reason::new("b").because(io()) };
        let outer = NodeError::Disconnected { reason: Reason::new("a").because(inner) };
        let mut chain = vec![outer.to_string()];
        let mut next = outer.source();
        while let Some(error) = next {
            chain.push(error.to_string());
            next = error.source();
        }
        assert_eq!(chain, ["the connection ended before it answered: a", "b", "\x1b[2Jrefused"]);
    }
}
