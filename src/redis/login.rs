//! Dialling a server and logging in: the beginning of each connection, to a master or a Sentinel.

use std::io;
use std::sync::Arc;

use redis::{Pipeline, ProtocolVersion, Value};

use super::connect_timeout::Steps;
use super::connection::{Connection, ConnectionError};
use super::error::{Peer, SentCommand, explain, failed, unconnected, unexpected};
use super::server_error::{ServerError, ServerErrorKind};
use super::settings::Settings;
use crate::address::{Address, Endpoint};
use crate::node::{NodeError, NodeErrorKind};

/// Logs in at one address, and remembers which protocol is spoken there.
pub(super) struct Login {
    pub(super) address: Address,
    peer: Peer,
    /// Where that is: another place after each failover, if it is a service.
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

    /// The ACL user that the requests are asked as.
    pub(super) fn user(&self) -> &str {
        self.address.user().unwrap_or("default")
    }

    /// Dials and logs in, in the newest protocol that the server speaks.
    pub(super) async fn hello(&mut self) -> Result<Connection, NodeError> {
        if self.address.user().is_some() && self.address.password().is_none() {
            // The user is not named: it may be a password that lacks its colon.
            let message = "its address has a user and no password; write `user:password@`, or `:password@`";
            return Err(failed(NodeErrorKind::Login, message));
        }
        match self.log_in().await {
            Err(Refusal::Protocol) => {
                // Remembered, so that an old server costs a second connection only once.
                self.protocol = ProtocolVersion::RESP2;
                self.log_in().await
            }
            done => done,
        }
        .map_err(|refusal| match refusal {
            Refusal::Protocol => unexpected("it speaks neither RESP3 nor RESP2"),
            Refusal::Closed(error) => self.closed_early(error),
            Refusal::Error(error) => error,
        })
    }

    /// The error of a connection that ended before the server had said anything.
    fn closed_early(&self, error: io::Error) -> NodeError {
        let likely = match self.target.endpoint() {
            Endpoint::Sentinel { .. } => "so does a Sentinel in protected mode",
            Endpoint::Tcp { .. } => {
                "so does a port that speaks TLS (write rediss://), and a server in protected mode or with too many clients"
            }
            Endpoint::Tls { .. } => {
                "so does a server that requires a client certificate (`Tls::identity`, --tls-cert and --tls-key)"
            }
            Endpoint::Unix { .. } => "so does a server with too many clients",
        };
        NodeError::Unreachable { reason: ConnectionError::Early { error, likely }.into() }
    }

    /// Whether the server can say something unasked, as it turned out at the last greeting.
    pub(super) fn hears_pushes(&self) -> bool {
        self.protocol == ProtocolVersion::RESP3
    }

    async fn log_in(&self) -> Result<Connection, Refusal> {
        let negotiates = matches!(self.target.endpoint(), Endpoint::Tls { .. });
        self.steps.next(if negotiates { 2 } else { 1 });
        let dialled = self.settings.dial.dial(&self.target).await;
        let mut line = Connection::new(dialled.map_err(|error| Refusal::Error(NodeError::undialled(error)))?);
        let mut login = Pipeline::with_capacity(4);
        let mut asked = Vec::with_capacity(2);
        let password = self.address.password();
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
            asked.push("SELECT");
            login.cmd("SELECT").arg(self.address.database());
        }
        // For people again: servers before 7.2 do not know it.
        for (what, word) in [("LIB-NAME", "quorlock"), ("LIB-VER", env!("CARGO_PKG_VERSION"))] {
            login.cmd("CLIENT").arg("SETINFO").arg(what).arg(word);
        }
        self.steps.next(1);
        let answers = line.exchange(&login).await.map_err(|reason| {
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
            line.client = line.client.or(client_in(answer));
        }
        Ok(line)
    }

    pub(super) fn asked(&self, command: &'static str) -> SentCommand<'_> {
        SentCommand { command, key: "", user: self.user(), peer: self.peer }
    }
}

/// Why a login failed.
enum Refusal {
    /// The server does not speak RESP3.
    Protocol,
    /// It closed the connection before it said anything.
    Closed(io::Error),
    Error(NodeError),
}

/// What the server calls the connection, in its answer to HELLO.
fn client_in(greeting: Value) -> Option<i64> {
    let Value::Map(said) = greeting else { return None };
    let id = said.into_iter().find(|(what, _)| matches!(what, Value::BulkString(name) if name == b"id"))?.1;
    if let Value::Int(id @ 1..) = id { Some(id) } else { None }
}

/// Whether the server does not know HELLO, or not this version of the protocol.
fn has_no_resp3(error: &ServerError) -> bool {
    matches!(error.kind(), ServerErrorKind::UnknownProtocol | ServerErrorKind::UnknownCommand)
}
