//! The commands of a connection.

use std::sync::Arc;

use super::Connection;
use super::state::{State, VERSION, unknown, wrong_number};
use super::tracking::Own;
use super::words::is;
use crate::resp::{Resp, Version};

impl Connection {
    /// Executes one command. Returns no answer if the client was killed.
    pub(super) fn command(&mut self, parts: &[Vec<u8>]) -> Option<Resp> {
        let [name, arguments @ ..] = parts else {
            return Some(Resp::Error("ERR empty command".to_owned()));
        };
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        if self.life.is_over() {
            self.over = true;
            return None;
        }
        Some(self.execute(&name, arguments, &mut state))
    }

    fn execute(&mut self, name: &str, arguments: &[Vec<u8>], state: &mut State) -> Resp {
        match name {
            "HELLO" => self.hello(arguments, state),
            "AUTH" => self.auth(arguments),
            "QUIT" => {
                self.over = true;
                Resp::ok()
            }
            _ if !self.welcome => Resp::Error("NOAUTH Authentication required.".to_owned()),
            "CLIENT" => self.client(arguments, state),
            "SUBSCRIBE" => self.subscribe(arguments, state),
            "SHUTDOWN" => {
                self.shared.ended.notify_one();
                Resp::ok()
            }
            _ => state.command(self.id, name, arguments),
        }
    }

    /// `HELLO [version [AUTH user password] [SETNAME name]]`
    fn hello(&mut self, arguments: &[Vec<u8>], state: &mut State) -> Resp {
        let (version, mut rest) = match arguments {
            [] => (self.version, arguments),
            [version, rest @ ..] if version == b"2" => (Version::Two, rest),
            [version, rest @ ..] if version == b"3" => (Version::Three, rest),
            [..] => return Resp::Error("NOPROTO unsupported protocol version".to_owned()),
        };
        loop {
            rest = match rest {
                [] => break,
                [word, _, password, more @ ..] if is(word, "AUTH") => {
                    if let Err(refused) = self.admit(password) {
                        return refused;
                    }
                    more
                }
                [word, name, more @ ..] if is(word, "SETNAME") => {
                    self.name.clone_from(name);
                    more
                }
                [..] => return Resp::Error("ERR Syntax error in HELLO".to_owned()),
            };
        }
        if !self.welcome {
            return Resp::Error(
                "NOAUTH HELLO must be called with the client already authenticated".to_owned(),
            );
        }
        self.version = version;
        if version == Version::Two {
            // RESP2 has no pushes.
            self.untrack(state);
        }
        let proto = if version == Version::Three { 3 } else { 2 };
        let text = |key: &str, value: &str| (Resp::text(key), Resp::text(value));
        Resp::Map(vec![
            text("server", "redis"),
            text("version", VERSION),
            (Resp::text("proto"), Resp::Number(proto)),
            (Resp::text("id"), Resp::Number(self.id)),
            text("mode", "standalone"),
            text("role", "master"),
            (Resp::text("modules"), Resp::List(Vec::new())),
        ])
    }

    fn auth(&mut self, arguments: &[Vec<u8>]) -> Resp {
        match arguments {
            [password] | [_, password] if self.shared.password.is_some() => {
                self.admit(password).map_or_else(|refused| refused, |()| Resp::ok())
            }
            [_] | [_, _] => Resp::Error("ERR AUTH called without any password configured".to_owned()),
            [..] => Resp::Error(wrong_number("AUTH")),
        }
    }

    fn admit(&mut self, password: &[u8]) -> Result<(), Resp> {
        if self.shared.password.as_ref().is_none_or(|wanted| wanted.as_bytes() == password) {
            self.welcome = true;
            return Ok(());
        }
        Err(Resp::Error("WRONGPASS invalid username-password pair or user is disabled.".to_owned()))
    }

    fn client(&mut self, arguments: &[Vec<u8>], state: &mut State) -> Resp {
        match arguments {
            [word] if is(word, "ID") => Resp::Number(self.id),
            [word] if is(word, "GETNAME") => Resp::text(&self.name),
            [word] if is(word, "INFO") => Resp::text(format!("id={} addr={}", self.id, self.peer)),
            [word, name] if is(word, "SETNAME") => {
                self.name.clone_from(name);
                Resp::ok()
            }
            [word, _, _] if is(word, "SETINFO") => Resp::ok(),
            [word, by, client] if is(word, "KILL") && is(by, "ID") => {
                match std::str::from_utf8(client).ok().and_then(|client| client.parse().ok()) {
                    Some(client) => Resp::Number(self.shared.clients.kill(client).into()),
                    None => Resp::Error("ERR client-id should be greater than 0".to_owned()),
                }
            }
            [word, options @ ..] if is(word, "TRACKING") => self.tracking(options, state),
            [word, ..] => Resp::Error(unknown(&format!("client|{}", String::from_utf8_lossy(word)))),
            [] => Resp::Error(wrong_number("CLIENT")),
        }
    }

    /// `CLIENT TRACKING ON [NOLOOP]|OFF`
    fn tracking(&mut self, options: &[Vec<u8>], state: &mut State) -> Resp {
        let own = match options {
            [word] if is(word, "OFF") => {
                self.untrack(state);
                return Resp::ok();
            }
            [word] if is(word, "ON") => Own::Notified,
            [word, own] if is(word, "ON") && is(own, "NOLOOP") => Own::Skipped,
            [..] => {
                let knows = "the built-in server knows CLIENT TRACKING ON [NOLOOP] and OFF";
                return Resp::Error(format!("ERR syntax error: {knows}"));
            }
        };
        if self.version == Version::Two {
            return Resp::Error("ERR the built-in server tracks for RESP3 connections only".to_owned());
        }
        if let Some(pushes) = state.trackers.start(self.id, own) {
            self.pushes = Some(pushes);
        }
        Resp::ok()
    }

    /// `SUBSCRIBE channel` of a client that tracks.
    fn subscribe(&self, arguments: &[Vec<u8>], state: &mut State) -> Resp {
        let refused = |why: &str| Resp::Error(format!("ERR {why}"));
        let [channel] = arguments else { return refused("the built-in server takes one channel at a time") };
        if state.trackers.subscribe(self.id, channel) {
            Resp::Push(vec![Resp::text("subscribe"), Resp::text(channel), Resp::Number(1)])
        } else {
            refused("the built-in server sends messages to clients that track only")
        }
    }

    fn untrack(&mut self, state: &mut State) {
        state.trackers.stop(self.id);
        self.pushes = None;
    }
}
