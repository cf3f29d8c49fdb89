//! Dials a server and logs in: the beginning of each connection, to a master or a Sentinel.

use std::io;
use std::sync::Arc;

use redis::{Pipeline, ProtocolVersion, Value};

use super::connect_timeout::Steps;
use super::connection::{Connection, ConnectionError};
use super::error::{LOGIN, Peer, SELECT, SentCommand, explain, failed, unconnected, unexpected};
use super::introduction::Introduction;
use super::server_error::{ServerError, ServerErrorKind};
use super::settings::Settings;
use crate::address::{Address, Endpoint};
use crate::node::password::{Password, READ_WITHIN};
use crate::node::{NodeError, NodeErrorKind};
use quorlock_protocol::Moment;

/// Logs in at one address, and remembers the protocol version of its server.
pub(super) struct Login {
    pub(super) address: Address,
    peer: Peer,
    /// The address to dial: for a service, that of its present master.
    pub(super) target: Address,
    settings: Settings,
    pub(super) steps: Arc<Steps>,
    protocol: ProtocolVersion,
}

impl Login {
    pub(super) fn new(address: Address, peer: Peer, settings: &Settings) -> Login {
        let steps = Steps::new(settings.connect_timeout, Arc::clone(&settings.clock));
        let target = address.clone();
        Login { address, peer, target, settings: settings.clone(), steps, protocol: ProtocolVersion::RESP3 }
    }

    /// Returns the ACL user of the requests.
    pub(super) fn user(&self) -> &str {
        self.address.user().unwrap_or("default")
    }

    /// Dials and logs in, with the newest protocol version that the server supports.
    pub(super) async fn hello(&mut self) -> Result<Connection, NodeError> {
        Ok(self.hello_and(None).await?.0)
    }

    /// As [`hello`](Login::hello), and writes the questions of an introduction behind the login, which saves a round trip, if
    /// the login decides nothing about them. Returns when they were sent, if they were.
    pub(super) async fn hello_and(
        &mut self,
        introduction: Option<&Introduction>,
    ) -> Result<(Connection, Option<Moment>), NodeError> {
        let is_without = matches!(self.settings.password, Password::None) || self.peer == Peer::Sentinel;
        if self.address.user().is_some() && self.address.password().is_none() && is_without {
            // The message omits the user: it may be a password without its colon.
            return Err(failed(
                NodeErrorKind::Login,
                format!("there is a user but no password; give {LOGIN}"),
            ));
        }
        match self.log_in(introduction).await {
            Err(Refusal::Protocol) => {
                // Remembered, so that an old server needs a second connection only once.
                self.protocol = ProtocolVersion::RESP2;
                // The introduction asked for pushes.
                self.log_in(None).await
            }
            done => done,
        }
        .map_err(|refusal| match refusal {
            Refusal::Protocol => unexpected("it supports neither RESP3 nor RESP2"),
            Refusal::Closed(error) => self.closed_early(error),
            Refusal::Error(error) => error,
        })
    }

    /// The error of a connection that ended before the server had sent anything.
    fn closed_early(&self, error: io::Error) -> NodeError {
        let likely = match self.target.endpoint() {
            Endpoint::Sentinel { .. } => "possibly a Sentinel in protected mode",
            Endpoint::Tcp { .. } => {
                "possibly a TLS port (write rediss://), a server of another kind, or one in protected mode or with too many \
                 clients"
            }
            Endpoint::Tls { .. } => {
                "possibly a port without TLS (write redis://), or a server that requires a client certificate \
                 (`Tls::identity`, --tls-cert and --tls-key)"
            }
            Endpoint::Unix { .. } => "possibly a server with too many clients",
        };
        NodeError::Unreachable { reason: ConnectionError::Early { error, likely }.into() }
    }

    /// Returns whether the server can push, as found at the last login.
    pub(super) fn hears_pushes(&self) -> bool {
        self.protocol == ProtocolVersion::RESP3
    }

    async fn log_in(
        &self,
        introduction: Option<&Introduction>,
    ) -> Result<(Connection, Option<Moment>), Refusal> {
        let negotiates = matches!(self.target.endpoint(), Endpoint::Tls { .. });
        self.steps.next(if negotiates { 2 } else { 1 });
        self.steps.set_accepted(false);
        let dialled = self.settings.dial.dial(&self.target).await;
        self.steps.set_accepted(dialled.is_ok());
        let stream = dialled.map_err(|error| {
            // Servers that speak no TLS hang up.
            let is_untied = negotiates && ConnectionError::is_end(&error);
            if is_untied { Refusal::Closed(error) } else { Refusal::Error(NodeError::undialled(error)) }
        })?;
        let mut connection = Connection::new(stream, Arc::clone(&self.settings.clock));
        let mut login = Pipeline::with_capacity(4);
        let mut asked = Vec::with_capacity(2);
        let password = self.password().await.map_err(Refusal::Error)?;
        let password = password.as_deref();
        if self.protocol == ProtocolVersion::RESP3 {
            asked.push("HELLO");
            login.cmd("HELLO").arg(3);
            if let Some(password) = password {
                login.arg("AUTH").arg(self.user()).arg(password);
            }
        } else if let Some(password) = password {
            asked.push("AUTH");
            login.cmd("AUTH").arg(self.address.user()).arg(password);
        }
        if self.address.database() != 0 {
            asked.push(SELECT);
            login.cmd(SELECT).arg(self.address.database());
        }
        // For people as well: servers before 7.2 do not support it.
        for (what, word) in [("LIB-NAME", "quorlock"), ("LIB-VER", env!("CARGO_PKG_VERSION"))] {
            login.cmd("CLIENT").arg("SETINFO").arg(what).arg(word);
        }
        // Otherwise it may leave its notes as another user or in another database, if the login fails.
        let is_open = password.is_none() && self.address.database() == 0;
        self.steps.next(1);
        connection.outbox().extend(login.get_packed_pipeline());
        let sent = introduction.filter(|_| is_open).map(|introduction| {
            introduction.write(&mut connection);
            self.settings.clock.now()
        });
        let (answers, _) = connection.replies(login.len(), false).await.map_err(|reason| {
            if !reason.is_closed() {
                return Refusal::Error(unconnected(reason));
            }
            if let ConnectionError::Stream(error) = reason {
                Refusal::Closed(error)
            } else {
                Refusal::Error(unconnected(reason))
            }
        })?;
        for (command, answer) in asked.into_iter().zip(answers) {
            if let Value::ServerError(error) = answer {
                let error = ServerError::read(&error);
                if command == "HELLO" && has_no_resp3(&error) {
                    return Err(Refusal::Protocol);
                }
                return Err(Refusal::Error(explain(error, self.asked(command))));
            }
            connection.client = connection.client.or(client_in(answer));
        }
        Ok((connection, sent))
    }

    /// Returns the password as it is now. What the address of a Sentinel lacks, it has none of.
    async fn password(&self) -> Result<Option<Arc<str>>, NodeError> {
        match (self.address.password(), self.peer) {
            (Some(password), _) => Ok(Some(password.into())),
            (None, Peer::Sentinel) => Ok(None),
            (None, Peer::Server) => {
                self.steps.next_within(READ_WITHIN);
                self.settings.password.read(&*self.settings.clock).await
            }
        }
    }

    pub(super) fn asked(&self, command: &'static str) -> SentCommand<'_> {
        SentCommand { command, key: "", user: self.user(), peer: self.peer }
    }
}

/// Why a login failed.
enum Refusal {
    /// The server does not support RESP3.
    Protocol,
    /// The server closed the connection before it had sent anything.
    Closed(io::Error),
    Error(NodeError),
}

/// Returns the ID of the connection in the reply to HELLO.
fn client_in(greeting: Value) -> Option<i64> {
    let Value::Map(fields) = greeting else { return None };
    let id = fields.into_iter().find(|(what, _)| matches!(what, Value::BulkString(name) if name == b"id"))?.1;
    if let Value::Int(id @ 1..) = id { Some(id) } else { None }
}

/// Returns whether the server does not support HELLO, or this version of the protocol.
fn has_no_resp3(error: &ServerError) -> bool {
    matches!(error.kind(), ServerErrorKind::UnknownProtocol | ServerErrorKind::UnknownCommand)
}
