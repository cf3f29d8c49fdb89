//! What became of a request, and what to say of it. Decisions depend on the code of an error, never on its text.

use std::time::Duration;

use quorlock::node::places::{self, Member, failed};
use quorlock::node::{Access, NodeError, NodeErrorKind, Reason};

use crate::wire::code;

/// Why a request has no answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// It was not sent.
    Unsent(Reason),
    /// The connection has ended: whether the request was carried out is unknown.
    Lost(Reason),
    /// No answer came in time: the same.
    Silent(Duration),
    /// The server has refused it, and has not carried it out.
    Refused(i32),
    /// The same, whatever the connection.
    Error(NodeError),
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Failure {
        Failure::Error(error)
    }
}

impl places::Failure for Failure {
    fn ends_connection(&self) -> bool {
        match self {
            Failure::Unsent(_) | Failure::Lost(_) | Failure::Silent(_) => true,
            // A member that has lost its leader, and serves readers only.
            Failure::Refused(number) => *number == code::NOT_READ_ONLY,
            Failure::Error(_) => false,
        }
    }
}

impl Failure {
    /// Returns the failure for the code of an answer.
    pub(crate) fn of(number: i32) -> Failure {
        match number {
            code::MARSHALLING
            | code::UNIMPLEMENTED
            | code::BAD_ARGUMENTS
            | code::NO_NODE
            | code::NO_AUTH
            | code::BAD_VERSION
            | code::NO_CHILDREN_FOR_EPHEMERALS
            | code::NODE_EXISTS
            | code::NOT_EMPTY
            | code::INVALID_ACL
            | code::AUTH_FAILED
            | code::NOT_READ_ONLY
            | code::NO_WATCHER
            | code::SASL_REQUIRED
            | code::QUOTA_EXCEEDED
            | code::THROTTLED => Failure::Refused(number),
            code::SESSION_EXPIRED => Failure::Lost("the session has expired".into()),
            code::SESSION_MOVED => Failure::Lost("the session has moved to another connection".into()),
            other => Failure::Lost(Reason::new(format!("ZooKeeper answers with the error {other}"))),
        }
    }

    /// Returns the error of a request that changes nothing before it is answered.
    pub(crate) fn before_anything_changed(self) -> NodeError {
        match self {
            Failure::Lost(reason) => NodeError::Unreachable { reason },
            Failure::Silent(waited) => {
                NodeError::Unresponsive { reason: Reason::new(format!("no answer within {waited:?}")) }
            }
            Failure::Unsent(_) | Failure::Refused(_) | Failure::Error(_) => self.into(),
        }
    }
}

/// The error of a request that may have been carried out.
impl From<Failure> for NodeError {
    fn from(failure: Failure) -> NodeError {
        match failure {
            Failure::Unsent(reason) => NodeError::Unreachable { reason },
            Failure::Lost(reason) => NodeError::Disconnected { reason },
            Failure::Silent(waited) => NodeError::Unanswered { waited },
            Failure::Refused(number) => {
                let (kind, words) = meaning(number);
                failed(kind, format!("{words} (error {number})"))
            }
            Failure::Error(error) => error,
        }
    }
}

fn meaning(number: i32) -> (NodeErrorKind, &'static str) {
    match number {
        code::NO_AUTH => (
            NodeErrorKind::PermissionDenied(Access::Key),
            "the access list of a node forbids it: log in as a user that may use the nodes of this lock and of `quorlock` \
             below the path, with `zookeeper://user:password@host/path`",
        ),
        code::AUTH_FAILED => {
            (NodeErrorKind::Login, "ZooKeeper refuses the login: correct the user or the password")
        }
        code::SASL_REQUIRED => (
            NodeErrorKind::Login,
            "this ensemble takes only clients that log in by SASL, which this library does not: allow digest users \
             (enforce.auth.schemes), or client certificates over TLS",
        ),
        code::UNIMPLEMENTED => (
            NodeErrorKind::Unsupported,
            "this is a ZooKeeper before 3.6, or a server that imitates one: use ZooKeeper 3.6 or newer",
        ),
        code::QUOTA_EXCEEDED => (
            NodeErrorKind::OutOfSpace,
            "a quota is used up: raise it with `setquota`, or delete what is not needed",
        ),
        code::NOT_READ_ONLY => (NodeErrorKind::ReadOnly, "this member has no leader, and takes no writes"),
        code::THROTTLED => (NodeErrorKind::Busy, "ZooKeeper has too much to do, and takes no more requests"),
        code::NO_CHILDREN_FOR_EPHEMERALS => (
            NodeErrorKind::WrongData,
            "another program has an ephemeral node of this name, which can have no places: use another name",
        ),
        _ => (NodeErrorKind::Other, "ZooKeeper refuses the request"),
    }
}

/// What answers is no ZooKeeper.
pub(crate) fn no_zookeeper(error: std::io::Error, member: &Member) -> NodeError {
    let words = format!(
        "no ZooKeeper serves at {member}: either the member has no leader now, or this is another port than the one for \
         clients (2181); if that has TLS, write `zookeepers://`"
    );
    NodeError::Unreachable { reason: Reason::new(words).because(error) }
}
