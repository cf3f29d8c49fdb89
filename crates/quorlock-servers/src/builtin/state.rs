//! What a server keeps, and the commands that depend on no connection.

use std::collections::BTreeMap;
use std::sync::Arc;

use quorlock::protocol::{Moment, printable};
use quorlock::runtime::Clock;

use super::data::{self, Access};
use super::keyspace::Keyspace;
use super::lua::{self, sha1hex};
use super::misconduct::Misconduct;
use super::sorted;
use super::tracking::{Author, Trackers};
use super::words::{counted, is, number};
use crate::resp::Resp;

/// What a server keeps. Each command has it alone, so that commands run one at a time, as in Redis, and each change
/// has one author.
pub(super) struct State {
    pub(super) keys: Keyspace,
    pub(super) trackers: Trackers,
    /// The scripts that can be called by their hashes.
    scripts: BTreeMap<String, Arc<[u8]>>,
    /// A deliberate fault.
    pub(super) misconduct: Option<Misconduct>,
    run_id: String,
    started: Moment,
    now: Moment,
}

/// The Redis version that is imitated.
pub(super) const VERSION: &str = "7.2.11";

impl State {
    pub(super) fn new(run_id: String, started: Moment, keys: Keyspace) -> State {
        let (trackers, scripts, misconduct) = (Trackers::default(), BTreeMap::new(), None);
        State { keys, trackers, scripts, misconduct, run_id, started, now: started }
    }

    pub(super) fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Sets the time, and notifies clients of keys that have expired: before another client replaces one, which is not
    /// that client's change.
    pub(super) fn set_time(&mut self, clock: &dyn Clock) {
        self.now = clock.now();
        self.keys.set_time(self.now, clock.wall());
        self.trackers.notify(&mut self.keys, Author::Time);
    }

    /// Executes a command of a client.
    pub(super) fn command(&mut self, client: i64, name: &str, arguments: &[Vec<u8>]) -> Resp {
        if let Some(answer) = self.misconduct.as_ref().and_then(|misconduct| misconduct.refuse(name)) {
            return answer;
        }
        match (name, arguments) {
            ("PING", []) => Resp::Status("PONG".to_owned()),
            ("PING" | "ECHO", [text]) => Resp::text(text),
            ("SELECT", [database]) if database == b"0" => Resp::ok(),
            ("SELECT", [_]) => {
                Resp::Error("ERR DB index is out of range: there is only database 0".to_owned())
            }
            ("COMMAND", _) => Resp::List(Vec::new()),
            ("EVAL", [text, rest @ ..]) => {
                let (hash, text) = self.load(text);
                self.eval(client, (&hash, &text), rest)
            }
            ("EVALSHA", [hash, rest @ ..]) => {
                let hash = String::from_utf8_lossy(hash).to_ascii_lowercase();
                match self.scripts.get(&hash).cloned() {
                    Some(text) => self.eval(client, (&hash, &text), rest),
                    None => Resp::Error("NOSCRIPT No matching script. Please use EVAL.".to_owned()),
                }
            }
            ("SCRIPT", [verb, text]) if is(verb, "LOAD") => Resp::text(self.load(text).0),
            ("SCRIPT", [verb, ..]) if is(verb, "FLUSH") => {
                self.scripts.clear();
                Resp::ok()
            }
            ("FLUSHALL" | "FLUSHDB", _) => {
                self.flush();
                Resp::ok()
            }
            ("DBSIZE", []) => counted(self.keys.keys().len()),
            ("KEYS", [pattern]) if pattern == b"*" => self.all_keys(),
            ("SCAN", [cursor, ..]) if cursor == b"0" => Resp::List(vec![Resp::text("0"), self.all_keys()]),
            (_, _) => self.call(client, name, arguments),
        }
    }

    /// Executes a command that scripts may call, too.
    pub(super) fn call(&mut self, client: i64, name: &str, arguments: &[Vec<u8>]) -> Resp {
        let reply = match (name, arguments) {
            ("INFO", _) => Ok(Resp::Verbatim(self.info())),
            ("TIME", []) => Ok(self.time()),
            ("PUBLISH", [channel, message]) => Ok(counted(self.trackers.publish(channel, message))),
            ("PUBSUB", [verb, channels @ ..]) if is(verb, "NUMSUB") => {
                let count = |channel: &Vec<u8>| counted(self.trackers.subscribers(channel));
                Ok(Resp::List(channels.iter().flat_map(|name| [Resp::text(name), count(name)]).collect()))
            }
            _ => data::execute(&mut self.keys, name, arguments)
                .or_else(|| sorted::execute(&mut self.keys, name, arguments))
                .unwrap_or_else(|| Err(unknown(name))),
        };
        self.trackers.notify(&mut self.keys, Author::Client(client));
        if Access::of(name) == Access::Reads && reply.is_ok() {
            let keys = if name == "EXISTS" { arguments } else { arguments.get(..1).unwrap_or_default() };
            self.trackers.remember(client, keys);
        }
        reply.unwrap_or_else(Resp::Error)
    }

    /// Deletes all keys.
    pub(super) fn flush(&mut self) {
        self.keys.flush();
        self.trackers.notify_of_flush();
    }

    /// Deletes all keys, one by one.
    pub(super) fn delete_all(&mut self) {
        let keys: Vec<_> = self.keys.keys().cloned().collect();
        for key in keys {
            self.keys.delete(&key);
        }
        self.trackers.notify(&mut self.keys, Author::Time);
    }

    /// Returns the script with its hash, by which it can be called from now on.
    fn load(&mut self, text: &[u8]) -> (String, Arc<[u8]>) {
        let hash = sha1hex(text);
        let text = self.scripts.entry(hash.clone()).or_insert_with(|| text.into());
        (hash, Arc::clone(text))
    }

    /// Executes a script: `count key… argument…`.
    fn eval(&mut self, client: i64, (hash, text): (&str, &[u8]), words: &[Vec<u8>]) -> Resp {
        let [count, rest @ ..] = words else { return Resp::Error(wrong_number("EVAL")) };
        let Some((keys, arguments)) = number(count).and_then(|count| rest.split_at_checked(count)) else {
            return Resp::Error("ERR Number of keys can't be greater than number of args".to_owned());
        };
        let mut arguments = arguments.to_vec();
        let misconduct = self.misconduct.clone();
        if let Some(misconduct) = &misconduct
            && let Some(answer) = misconduct.before(&mut self.keys, hash, keys, &mut arguments)
        {
            self.trackers.notify(&mut self.keys, Author::Time);
            return answer;
        }
        let mut wrote = false;
        let reply = lua::run((hash, text), keys, &arguments, |words| {
            let [name, words @ ..] = words else {
                return Resp::Error(
                    "ERR Please specify at least one argument for this redis lib call".to_owned(),
                );
            };
            let name = String::from_utf8_lossy(name).to_ascii_uppercase();
            // As a server does, so that a script that has written completes.
            let refused =
                misconduct.as_ref().filter(|_| !wrote).and_then(|misconduct| misconduct.starve(&name));
            if let Some(refused) = refused {
                return refused;
            }
            wrote |= matches!(Access::of(&name), Access::Writes | Access::Grows);
            self.call(client, &name, words)
        });
        if let Some(misconduct) = &misconduct {
            misconduct.after(&mut self.keys, hash, keys, &arguments);
        }
        reply
    }

    /// Returns the wall clock.
    fn time(&self) -> Resp {
        let wall = self.keys.wall();
        Resp::List(vec![Resp::text(wall.as_secs().to_string()), Resp::text(wall.subsec_micros().to_string())])
    }

    fn info(&self) -> String {
        let uptime = self.now.since(self.started).as_secs();
        let lines = [
            "# Server".to_owned(),
            format!("redis_version:{VERSION}"),
            "redis_mode:standalone".to_owned(),
            format!("process_id:{}", std::process::id()),
            format!("run_id:{}", self.run_id),
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

    fn all_keys(&self) -> Resp {
        Resp::List(self.keys.keys().map(Resp::text).collect())
    }
}

/// Returns what is wrong with a command that was not executed.
pub(super) fn unknown(name: &str) -> String {
    let known = ["PING", "ECHO", "SELECT", "PUBLISH", "EVAL", "EVALSHA"].contains(&name);
    if known || Access::of(name) != Access::None {
        return wrong_number(name);
    }
    format!("ERR unknown command '{}'", printable(&name.to_ascii_lowercase()).cut(128))
}

pub(super) fn wrong_number(name: &str) -> String {
    format!("ERR wrong number of arguments for '{}' command", name.to_ascii_lowercase())
}
