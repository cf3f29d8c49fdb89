//! Why a node gave no vote.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::reason::Reason;
use crate::transport::NoTls;
pub use kind::{Access, NodeErrorKind};

mod kind;

/// Why a node gave no vote.
///
/// The variant says what may have become of the request: it is unknown whether the node has carried it out,
/// unless [`may_have_acted`](NodeError::may_have_acted) says that nothing was sent. The
/// [`kind`](NodeError::kind) says what is wrong, in words that fit any store. What the store itself has
/// said is the [`source`](Error::source): of a Redis or Valkey server a [`ServerError`](crate::redis::ServerError),
/// of a network an [`io::Error`](std::io::Error).
///
/// Two errors are equal if they are of the same kind and read the same with `{:#}`.
///
/// # Display
///
/// `{}` writes the sentence alone, for those who print the chain of sources. `{:#}` adds the source, as
/// ballots, findings and logs of this library do.
///
/// ```
/// use std::io;
///
/// use quorlock::node::{NodeError, NodeErrorKind, Reason};
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
    /// There is no connection, and the request was not sent.
    Unreachable {
        /// Why there is none.
        reason: Reason,
    },
    /// The request was sent and has not been answered.
    Unanswered {
        /// The time limit that has passed.
        waited: Duration,
    },
    /// The connection ended before the answer came.
    Disconnected {
        /// What ended it.
        reason: Reason,
    },
    /// So many earlier requests wait for this node that this one was not sent.
    Overloaded {
        /// How many.
        waiting: usize,
    },
    /// The server did as asked, and too few replicas confirmed it in time: a failover may forget it.
    Unconfirmed {
        /// How many did.
        copies: u64,
        /// How many must: `wait` in the node's address.
        needed: u64,
    },
    /// The request became pointless before it was sent.
    NotAsked,
    /// The server may not vote, whatever it would say.
    Unfit {
        /// What it is instead: [`ReadOnly`](NodeErrorKind::ReadOnly),
        /// [`WrongServer`](NodeErrorKind::WrongServer) or [`Unsupported`](NodeErrorKind::Unsupported).
        kind: NodeErrorKind,
        /// What is wrong with it, and what would be right.
        reason: Reason,
    },
    /// The semaphore has another number of permits there.
    OtherLimit {
        /// As the node has it.
        found: Arc<str>,
        /// As it was asked for.
        asked: Arc<str>,
    },
    /// The store answered what cannot be understood. It may have done as asked.
    UnexpectedReply {
        /// What came, and instead of what.
        reason: Reason,
    },
    /// The store refused the request, and certainly did not carry it out.
    Failed {
        /// What is wrong.
        kind: NodeErrorKind,
        /// The same as a sentence, with the cure. Its source is what the server said.
        reason: Reason,
    },
}

impl NodeError {
    /// What is wrong, in a word that fits any store.
    #[must_use]
    pub fn kind(&self) -> NodeErrorKind {
        match self {
            NodeError::Unfit { kind, .. } | NodeError::Failed { kind, .. } => *kind,
            NodeError::Unreachable { .. } | NodeError::Disconnected { .. } => NodeErrorKind::Unreachable,
            NodeError::Unanswered { .. } | NodeError::Unconfirmed { .. } | NodeError::NotAsked => {
                NodeErrorKind::TimedOut
            }
            NodeError::Overloaded { .. } => NodeErrorKind::Busy,
            NodeError::OtherLimit { .. } => NodeErrorKind::WrongData,
            NodeError::UnexpectedReply { .. } => NodeErrorKind::Other,
        }
    }

    /// Whether the node may have carried out the request, now or later.
    #[must_use]
    pub fn may_have_acted(&self) -> bool {
        match self {
            NodeError::Unanswered { .. }
            | NodeError::Disconnected { .. }
            | NodeError::Unconfirmed { .. }
            | NodeError::UnexpectedReply { .. }
            | NodeError::OtherLimit { .. } => true,
            NodeError::Unreachable { .. }
            | NodeError::Overloaded { .. }
            | NodeError::NotAsked
            | NodeError::Unfit { .. }
            | NodeError::Failed { .. } => false,
        }
    }

    /// Whether the node cannot grant until its configuration, or the client's, is corrected: to ask again
    /// is pointless.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        matches!(self, NodeError::Unfit { .. }) || self.kind().is_permanent()
    }

    /// The error of a node to which [`Dial`](crate::transport::Dial) has opened no connection: no encryption could be
    /// agreed on, or the node is unreachable.
    #[must_use]
    pub fn undialled(error: io::Error) -> NodeError {
        match NoTls::behind(error) {
            Ok(no_tls) => no_tls.into(),
            Err(error) => NodeError::Unreachable { reason: error.into() },
        }
    }

    /// What there is to say beside the variant.
    fn reason(&self) -> Option<&Reason> {
        match self {
            NodeError::Unreachable { reason }
            | NodeError::Disconnected { reason }
            | NodeError::Unfit { reason, .. }
            | NodeError::UnexpectedReply { reason }
            | NodeError::Failed { reason, .. } => Some(reason),
            NodeError::Unanswered { .. }
            | NodeError::Overloaded { .. }
            | NodeError::Unconfirmed { .. }
            | NodeError::NotAsked
            | NodeError::OtherLimit { .. } => None,
        }
    }
}

impl From<NoTls> for NodeError {
    fn from(NoTls { meaning, source }: NoTls) -> NodeError {
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
            NodeError::Unanswered { waited } => {
                write!(f, "no answer within {}", crate::duration::format(*waited))
            }
            NodeError::Disconnected { reason } => {
                reason.write_after("the connection ended before it answered", f)
            }
            NodeError::Overloaded { waiting } => {
                write!(f, "{waiting} earlier requests are unanswered, so this one was not sent")
            }
            NodeError::Unconfirmed { copies, needed } => write!(
                f,
                "done, and confirmed in time by {copies} of the {needed} replicas that must have it, so it does \
                 not count"
            ),
            NodeError::NotAsked => {
                f.write_str("not asked: the attempt was over before the connection was ready")
            }
            NodeError::OtherLimit { found, asked } => write!(
                f,
                "the semaphore has {found} permits there, and this program asks for {asked}: all must ask for the \
                 same, and another number is possible when nobody has held a permit for one TTL"
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
            (quoted(), "it wants a password", "it wants a password ([2Jrefused)"),
        ] {
            let error = NodeError::Failed { kind: NodeErrorKind::Login, reason };
            assert_eq!((error.to_string().as_str(), format!("{error:#}").as_str()), (short, full));
        }
        let nameless = NodeError::Failed { kind: NodeErrorKind::Tls, reason: io().into() };
        assert_eq!(
            (nameless.to_string().as_str(), &*format!("{nameless:#}")),
            ("no TLS", "no TLS: [2Jrefused")
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
