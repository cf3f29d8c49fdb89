//! What became of a call, and what to say of it. Decisions depend on the code of an error, never on its text.

use std::time::Duration;

use quorlock::node::places::{self, Member};
use quorlock::node::{Access, NodeError, NodeErrorKind, Reason};
use tonic::{Code, Status};

/// Why a call has no answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// It was not sent.
    Unsent(Reason),
    /// The connection has ended: whether the call was carried out is unknown.
    Broken(Reason),
    /// The member has no leader, or the answer is another one than expected: the same.
    Lost(Reason),
    /// No answer came in time: the same.
    Silent(Duration),
    /// The server has refused it, and has not carried it out.
    Refused(Code, Reason),
    /// The same, because the login has ended, and there is no other one.
    Login(NodeError),
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
            Failure::Unsent(_)
            | Failure::Broken(_)
            | Failure::Lost(_)
            | Failure::Silent(_)
            | Failure::Login(_) => true,
            Failure::Refused(code, _) => *code == Code::Unauthenticated,
            Failure::Error(_) => false,
        }
    }

    /// A lease had ended.
    fn is_stale(&self) -> bool {
        self.code() == Some(Code::NotFound)
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        let code = status.code();
        let reason = Reason::new(status.message().to_owned());
        // A server's answer has no source.
        if std::error::Error::source(&status).is_some() {
            return Failure::Broken(reason);
        }
        match code {
            Code::NotFound
            | Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::ResourceExhausted
            | Code::Unimplemented
            | Code::OutOfRange => Failure::Refused(code, reason),
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::AlreadyExists
            | Code::Aborted
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss => Failure::Lost(reason),
        }
    }
}

impl Failure {
    pub(crate) fn code(&self) -> Option<Code> {
        match self {
            Failure::Refused(code, _) => Some(*code),
            Failure::Unsent(_)
            | Failure::Broken(_)
            | Failure::Lost(_)
            | Failure::Silent(_)
            | Failure::Login(_)
            | Failure::Error(_) => None,
        }
    }

    /// Whether the answer was larger than it may be.
    pub(crate) fn is_too_large(&self) -> bool {
        self.code() == Some(Code::OutOfRange)
    }

    /// Whether the member may do it after a new login: it does not know the token of the last one, or there was none, or what
    /// users may do has changed since.
    pub(crate) fn is_of_login(&self) -> bool {
        matches!(self, Failure::Refused(Code::Unauthenticated | Code::InvalidArgument, _))
    }

    /// Returns the error of a request that changes nothing before it is answered.
    pub(crate) fn before_anything_changed(self) -> NodeError {
        match self {
            Failure::Broken(reason) | Failure::Lost(reason) => NodeError::Unreachable { reason },
            Failure::Silent(waited) => {
                NodeError::Unresponsive { reason: Reason::new(format!("no answer within {waited:?}")) }
            }
            Failure::Unsent(_) | Failure::Refused(..) | Failure::Login(_) | Failure::Error(_) => self.into(),
        }
    }
}

/// The error of a request that may have been carried out.
impl From<Failure> for NodeError {
    fn from(failure: Failure) -> NodeError {
        match failure {
            Failure::Unsent(reason) => NodeError::Unreachable { reason },
            Failure::Broken(reason) | Failure::Lost(reason) => NodeError::Disconnected { reason },
            Failure::Silent(waited) => NodeError::Unanswered { waited },
            Failure::Refused(code, reason) => {
                let (kind, words) = meaning(code);
                NodeError::Failed { kind, reason: Reason::new(words).because(Quoted(reason)) }
            }
            Failure::Login(error) | Failure::Error(error) => error,
        }
    }
}

/// The words of the server.
#[derive(Debug)]
struct Quoted(Reason);

impl std::fmt::Display for Quoted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Quoted {}

fn meaning(code: Code) -> (NodeErrorKind, &'static str) {
    match code {
        Code::PermissionDenied => (
            NodeErrorKind::PermissionDenied(Access::Key),
            "the user may not use the keys of this lock: give its role `readwrite` on the names of the locks and on `quorlock`, \
             both with --prefix",
        ),
        Code::Unauthenticated => (
            NodeErrorKind::Login,
            "etcd has users, and the login has ended or there was none: write `etcd://user:password@host`",
        ),
        Code::ResourceExhausted => (
            NodeErrorKind::OutOfSpace,
            "etcd takes no more writes: its space quota is used up, or too many requests wait; compact and defragment it, then \
             `etcdctl alarm disarm`, or raise --quota-backend-bytes",
        ),
        Code::InvalidArgument | Code::FailedPrecondition => {
            (NodeErrorKind::Misconfigured, "etcd refuses the request")
        }
        Code::Unimplemented => (
            NodeErrorKind::Unsupported,
            "this is no etcd, or one before 3.4: use etcd 3.4.32, 3.5.14 or newer",
        ),
        Code::OutOfRange => (
            NodeErrorKind::WrongData,
            "etcd's answer is larger than any about locks: other programs keep large values below the name of this lock; move them",
        ),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => (NodeErrorKind::Other, "etcd refuses the request"),
    }
}

/// The login has failed.
pub(crate) fn refused_login(failure: Failure, user: &str, member: &Member) -> NodeError {
    match failure {
        Failure::Refused(Code::InvalidArgument | Code::Unauthenticated, reason) => {
            let words =
                format!("etcd refuses the password of the user `{user}`: correct the password, or the user");
            NodeError::Failed {
                kind: NodeErrorKind::Login,
                reason: Reason::new(words).because(Quoted(reason)),
            }
        }
        Failure::Unsent(_)
        | Failure::Broken(_)
        | Failure::Lost(_)
        | Failure::Silent(_)
        | Failure::Refused(..)
        | Failure::Login(_)
        | Failure::Error(_) => unmet(failure, member),
    }
}

/// The first call has failed.
pub(crate) fn unmet(failure: Failure, member: &Member) -> NodeError {
    match failure {
        Failure::Broken(reason) | Failure::Unsent(reason) => no_etcd(Quoted(reason), member),
        Failure::Lost(reason) => {
            let words =
                format!("{member} cannot serve: a majority of the members must run and reach each other");
            NodeError::Unreachable { reason: Reason::new(words).because(Quoted(reason)) }
        }
        Failure::Silent(_) | Failure::Refused(..) | Failure::Login(_) | Failure::Error(_) => {
            failure.before_anything_changed()
        }
    }
}

/// What answers does not speak HTTP/2.
pub(crate) fn no_etcd(error: impl std::error::Error + Send + Sync + 'static, member: &Member) -> NodeError {
    let words = format!(
        "no etcd answers at {member}: its client port (2379) speaks HTTP/2; if that has TLS, write `etcds://`, otherwise \
         correct the port"
    );
    NodeError::Unreachable { reason: Reason::new(words).because(error) }
}
