//! The login of a connection. Its token ends: after some minutes without a request, at the time that a JWT names, or when the
//! user's password changes.

use quorlock::node::NodeError;
use quorlock::node::places::{Member, Members};
use quorlock::runtime::Mutex;
use tonic::Code;

use super::{AuthToken, Client, LARGEST};
use crate::error::{Failure, refused_login};
use crate::wire::{Authenticate, Authenticated};

const PATH: &str = "/etcdserverpb.Auth/Authenticate";

pub(super) struct Login {
    members: Members,
    member: Member,
    /// Of the last login, or why that has failed: then no request of this connection tries another one.
    last: Mutex<Result<AuthToken, NodeError>>,
    /// Held by the request that logs in.
    alone: tokio::sync::Mutex<()>,
}

impl Login {
    /// Before the first login.
    pub(super) fn new(members: &Members, member: &Member) -> Login {
        let (members, member) = (members.clone(), member.clone());
        Login { members, member, last: Mutex::new(Ok(None)), alone: tokio::sync::Mutex::default() }
    }
}

impl Client {
    /// The token of the last login.
    pub(crate) fn token(&self) -> AuthToken {
        self.login.last.lock().clone().unwrap_or_default()
    }

    /// Whether there is a user to log in as.
    pub(crate) fn has_user(&self) -> bool {
        self.login.members.user(&self.seams).is_some()
    }

    /// Logs in, where there is a user.
    ///
    /// # Errors
    ///
    /// Why that failed, with its cure.
    pub(super) async fn log_in(&self) -> Result<AuthToken, NodeError> {
        let Login { members, member, last, .. } = &*self.login;
        let Some((name, password)) = members.login(&self.seams).await? else { return Ok(None) };
        let asked = Authenticate { name: name.to_owned(), password: password.to_string() };
        let done = match self.unary::<_, Authenticated>(PATH, asked, &None, LARGEST).await {
            Ok(Authenticated { token }) => token.parse().map(Some).map_err(|_| NodeError::UnexpectedReply {
                reason: "the token of a login is not text".into(),
            }),
            // It has no users, and lets everyone in.
            Err(failure) if failure.code() == Some(Code::FailedPrecondition) => Ok(None),
            Err(failure) => Err(refused_login(failure, name, member)),
        };
        last.lock().clone_from(&done);
        done
    }

    /// Logs in again because the member does not know this token any more, unless another request has just done so.
    ///
    /// # Errors
    ///
    /// The request was not carried out, and why.
    pub(crate) async fn log_in_again(&self, refused: &AuthToken) -> Result<AuthToken, Failure> {
        let _alone = self.login.alone.lock().await;
        let last = self.login.last.lock().clone();
        match last {
            Ok(token) if token == *refused => self.log_in().await,
            last => last,
        }
        .map_err(Failure::Login)
    }
}
