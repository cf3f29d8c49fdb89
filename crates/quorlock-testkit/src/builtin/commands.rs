//! The commands.

use std::sync::Arc;
use std::time::Duration;

use quorlock::protocol::printable;

use super::eval::{eval, eval_by_hash};
use super::sorted::sorted;
use super::tracking::{Author, Own, Trackers, read_keys};
use super::words::{inbox_of, is, millis, not_an_integer, pttl};
use super::{Connection, Shared};
use crate::resp::{Resp, Version};
use crate::store::{SetLife, SetOptions, SetWhen, Value};

impl Connection {
    /// Executes one command. Returns no answer if the client was killed.
    pub(super) fn command(&mut self, parts: &[Vec<u8>]) -> Option<Resp> {
        let [name, arguments @ ..] = parts else {
            return Some(Resp::Error("ERR empty command".to_owned()));
        };
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        let shared = Arc::clone(&self.shared);
        let mut trackers = shared.trackers.lock();
        if self.life.is_over() {
            self.over = true;
            return None;
        }
        // Before this client can replace an expired key, which is not its own change.
        trackers.tell(&shared, Author::Time);
        let answer = self.carry_out(&name, arguments, &mut trackers);
        trackers.tell(&shared, Author::Client(self.id));
        trackers.remember(&shared, self.id, read_keys(&name, arguments, &answer));
        Some(answer)
    }

    fn carry_out(&mut self, name: &str, arguments: &[Vec<u8>], trackers: &mut Trackers) -> Resp {
        match name {
            "HELLO" => self.hello(arguments, trackers),
            "AUTH" => self.auth(arguments),
            "QUIT" => {
                self.over = true;
                Resp::ok()
            }
            _ if !self.welcome => Resp::Error("NOAUTH Authentication required.".to_owned()),
            "EXEC" => match self.transaction.take() {
                Some(commands) => Resp::List(commands.iter().map(|parts| self.queued(parts)).collect()),
                None => Resp::Error("ERR EXEC without MULTI".to_owned()),
            },
            _ if self.transaction.is_some() => {
                let words = [&[name.as_bytes().to_vec()], arguments].concat();
                self.transaction.get_or_insert_default().push(words);
                Resp::Status("QUEUED".to_owned())
            }
            "MULTI" => {
                self.transaction = Some(Vec::new());
                Resp::ok()
            }
            "CLIENT" => self.client(arguments, trackers),
            "SUBSCRIBE" => self.subscribe(arguments, trackers),
            _ => plain(&self.shared, name, arguments),
        }
    }

    /// Handles a command between `MULTI` and `EXEC`, where only those that depend on no connection are
    /// allowed.
    fn queued(&self, parts: &[Vec<u8>]) -> Resp {
        let [name, arguments @ ..] = parts else { return Resp::Null };
        plain(&self.shared, &String::from_utf8_lossy(name), arguments)
    }

    /// `HELLO [version [AUTH user password] [SETNAME name]]`
    fn hello(&mut self, arguments: &[Vec<u8>], trackers: &mut Trackers) -> Resp {
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
            self.untrack(trackers);
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
            [..] => wrong_number("AUTH"),
        }
    }

    fn admit(&mut self, password: &[u8]) -> Result<(), Resp> {
        if self.shared.password.as_ref().is_none_or(|wanted| wanted.as_bytes() == password) {
            self.welcome = true;
            return Ok(());
        }
        Err(Resp::Error("WRONGPASS invalid username-password pair or user is disabled.".to_owned()))
    }

    fn client(&mut self, arguments: &[Vec<u8>], trackers: &mut Trackers) -> Resp {
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
            [word, options @ ..] if is(word, "TRACKING") => self.tracking(options, trackers),
            [word, ..] => unknown(&format!("client|{}", String::from_utf8_lossy(word))),
            [] => wrong_number("CLIENT"),
        }
    }

    /// `CLIENT TRACKING ON [NOLOOP]|OFF`
    fn tracking(&mut self, options: &[Vec<u8>], trackers: &mut Trackers) -> Resp {
        let own = match options {
            [word] if is(word, "OFF") => {
                self.untrack(trackers);
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
        if let Some(pushes) = trackers.start(self.id, own) {
            self.pushes = Some(pushes);
        }
        Resp::ok()
    }

    /// `SUBSCRIBE channel` to an inbox, by a client that tracks.
    fn subscribe(&self, arguments: &[Vec<u8>], trackers: &mut Trackers) -> Resp {
        let refused = |why: &str| Resp::Error(format!("ERR {why}"));
        let [channel] = arguments else { return refused("the built-in server takes one channel at a time") };
        let Some(inbox) = inbox_of(channel) else {
            return refused("the built-in server has no channels but inboxes of quorlock");
        };
        if trackers.subscribe(&self.shared, self.id, inbox, channel) {
            Resp::Push(vec![Resp::text("subscribe"), Resp::text(channel), Resp::Number(1)])
        } else {
            refused("the built-in server sends messages to clients that track only")
        }
    }

    fn untrack(&mut self, trackers: &mut Trackers) {
        trackers.stop(&self.shared, self.id);
        self.pushes = None;
    }
}

/// The Redis version that is imitated: one without known vulnerabilities in its Lua, which the built-in
/// server does not have.
const VERSION: &str = "7.2.11";

/// Executes a command that depends on no connection.
fn plain(shared: &Shared, name: &str, arguments: &[Vec<u8>]) -> Resp {
    let (now, key) = (shared.now(), arguments.first().map(Vec::as_slice).unwrap_or_default());
    if let Some(answer) = shared.misbehave_at(name) {
        return answer;
    }
    if let Some(answer) = sorted(shared, name, arguments) {
        return answer;
    }
    match (name, arguments) {
        ("PING", []) => Resp::Status("PONG".to_owned()),
        ("PING" | "ECHO", [text]) => Resp::text(text),
        ("PUBLISH", [channel, payload]) => {
            // No client can subscribe to any other channel.
            let inbox = inbox_of(channel).unwrap_or_default();
            Resp::Number(shared.store().publish(inbox, payload.clone()).into())
        }
        ("SELECT", [database]) if database == b"0" => Resp::ok(),
        ("SELECT", [_]) => Resp::Error("ERR DB index is out of range: there is only database 0".to_owned()),
        ("GET", [_]) => match shared.store().get(now, key) {
            Ok(value) => value.map_or(Resp::Null, Resp::text),
            Err(wrong) => Resp::Error(wrong.to_string()),
        },
        ("SET", [_, value, options @ ..]) => set(shared, key, value, options),
        ("DEL" | "UNLINK", [_, ..]) => count(arguments, |key| shared.store().del(now, key)),
        ("EXISTS", [_, ..]) => count(arguments, |key| shared.store().exists(now, key)),
        ("PTTL", [_]) => Resp::Number(pttl(shared.store().pttl(now, key))),
        ("PEXPIRE", [_, ttl]) => match millis(ttl) {
            Some(ttl) => Resp::Number(shared.store().pexpire(now, key, ttl).into()),
            None => not_an_integer(),
        },
        ("RPUSH", [_, values @ ..]) if !values.is_empty() => push(shared, key, values),
        ("EVAL", _) => eval(shared, arguments),
        ("EVALSHA", _) => eval_by_hash(shared, arguments),
        ("SCRIPT", [verb]) if is(verb, "FLUSH") => {
            shared.loaded.flush();
            Resp::ok()
        }
        ("INFO", _) => Resp::Verbatim(info(shared)),
        ("TIME", []) => time(shared),
        ("COMMAND", _) => Resp::List(Vec::new()),
        ("FLUSHALL" | "FLUSHDB", _) => {
            shared.store().flush();
            Resp::ok()
        }
        ("DBSIZE", []) => Resp::Number(i64::try_from(shared.store().keys(now).len()).unwrap_or(i64::MAX)),
        ("KEYS", [pattern]) if pattern == b"*" => all_keys(shared),
        ("SCAN", [cursor, ..]) if cursor == b"0" => Resp::List(vec![Resp::text("0"), all_keys(shared)]),
        ("SHUTDOWN", _) => {
            shared.ended.notify_one();
            Resp::ok()
        }
        (
            "PING" | "ECHO" | "PUBLISH" | "SELECT" | "GET" | "SET" | "DEL" | "UNLINK" | "EXISTS" | "PTTL"
            | "PEXPIRE" | "RPUSH" | "SETRANGE" | "PEXPIREAT" | "ZADD" | "ZSCORE" | "ZINCRBY" | "ZREM"
            | "ZREMRANGEBYRANK" | "ZRANGEBYSCORE" | "ZREMRANGEBYSCORE" | "ZPOPMIN" | "ZPOPMAX" | "INCRBY"
            | "HSET" | "HINCRBY" | "HDEL",
            _,
        ) => wrong_number(name),
        (_, _) => unknown(name),
    }
}

/// Returns the wall clock.
fn time(shared: &Shared) -> Resp {
    let wall = shared.clock.wall();
    Resp::List(vec![Resp::text(wall.as_secs().to_string()), Resp::text(wall.subsec_micros().to_string())])
}

/// `SET key value [NX|XX] [GET] [PX ms|EX s|KEEPTTL]`
fn set(shared: &Shared, key: &[u8], value: &[u8], mut words: &[Vec<u8>]) -> Resp {
    let mut options = SetOptions::default();
    let mut wants_old = false;
    loop {
        words = match words {
            [] => break,
            [word, rest @ ..] if is(word, "NX") && options.when == SetWhen::Always => {
                options.when = SetWhen::Missing;
                rest
            }
            [word, rest @ ..] if is(word, "XX") && options.when == SetWhen::Always => {
                options.when = SetWhen::Present;
                rest
            }
            [word, rest @ ..] if is(word, "GET") => {
                wants_old = true;
                rest
            }
            [word, rest @ ..] if is(word, "KEEPTTL") && options.life == SetLife::Forever => {
                options.life = SetLife::Kept;
                rest
            }
            [word, time, rest @ ..]
                if (is(word, "PX") || is(word, "EX")) && options.life == SetLife::Forever =>
            {
                let unit = if is(word, "PX") { 1 } else { 1000 };
                match millis(time) {
                    None => return not_an_integer(),
                    Some(Duration::ZERO) => {
                        return Resp::Error("ERR invalid expire time in 'set' command".to_owned());
                    }
                    Some(time) => options.life = SetLife::For(time.saturating_mul(unit)),
                }
                rest
            }
            [..] => return Resp::Error("ERR syntax error".to_owned()),
        };
    }
    let (now, mut store) = (shared.now(), shared.store());
    let old = match (wants_old, store.get(now, key)) {
        (true, Ok(old)) => Some(old.map_or(Resp::Null, Resp::text)),
        (true, Err(wrong)) => return Resp::Error(wrong.to_string()),
        (false, _) => None,
    };
    let done = store.set(now, key, Value::Text(value.to_vec()), options);
    old.unwrap_or(if done { Resp::ok() } else { Resp::Null })
}

/// `RPUSH` to a free key only: enough to plant a key of the wrong type.
fn push(shared: &Shared, key: &[u8], values: &[Vec<u8>]) -> Resp {
    let (now, mut store) = (shared.now(), shared.store());
    let options = SetOptions { when: SetWhen::Missing, ..SetOptions::default() };
    if store.set(now, key, Value::List(values.to_vec()), options) {
        Resp::Number(i64::try_from(values.len()).unwrap_or(i64::MAX))
    } else {
        Resp::Error("ERR the built-in server makes lists but does not add to them".to_owned())
    }
}

fn info(shared: &Shared) -> String {
    let uptime = shared.now().since(shared.started).as_secs();
    let lines = [
        "# Server".to_owned(),
        format!("redis_version:{VERSION}"),
        "redis_mode:standalone".to_owned(),
        format!("process_id:{}", std::process::id()),
        format!("run_id:{}", shared.run_id),
        format!("uptime_in_seconds:{uptime}"),
        "quorlock_builtin:1".to_owned(),
        "# Memory".to_owned(),
        // It is not measured, and nothing is ever evicted.
        "used_memory:0".to_owned(),
        "maxmemory:0".to_owned(),
        "maxmemory_policy:noeviction".to_owned(),
        "# Persistence".to_owned(),
        "loading:0".to_owned(),
        "aof_enabled:0".to_owned(),
        "# Replication".to_owned(),
        "role:master".to_owned(),
        "connected_slaves:0".to_owned(),
        "# Cluster".to_owned(),
        "cluster_enabled:0".to_owned(),
    ];
    lines.map(|line| line + "\r\n").concat()
}

fn all_keys(shared: &Shared) -> Resp {
    let keys = shared.store().keys(shared.now());
    Resp::List(keys.into_iter().map(Resp::Text).collect())
}

fn count(keys: &[Vec<u8>], mut hit: impl FnMut(&[u8]) -> bool) -> Resp {
    let hits = keys.iter().filter(|key| hit(key)).count();
    Resp::Number(i64::try_from(hits).unwrap_or(i64::MAX))
}

fn wrong_number(name: &str) -> Resp {
    Resp::Error(format!("ERR wrong number of arguments for '{}' command", name.to_ascii_lowercase()))
}

fn unknown(name: &str) -> Resp {
    Resp::Error(format!("ERR unknown command '{}'", printable(&name.to_ascii_lowercase()).cut(128)))
}
