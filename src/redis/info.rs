//! Parses what a server reports about itself: the reply to `INFO`.

use std::str::FromStr;
use std::time::Duration;

use redis::Value;

use super::connection::text;
use crate::node::facts::{Facts, Memory, Role, Software};
use quorlock_protocol::printable;

/// The longest text that is kept, in characters.
const LONGEST: usize = 40;
/// The longest plausible uptime: a hundred years, in seconds. If its clock was set back, a server with
/// unsigned arithmetic reports nearly 2^64.
const LONGEST_UPTIME: u64 = 100 * 365 * 24 * 60 * 60;
/// The last second of the year 9999, the latest plausible time.
const LAST_SECOND: u64 = 253_402_300_799;

/// A reply to `INFO`: the fields in it. It is read for twenty of them with each connection.
pub(super) struct Info<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Info<'a> {
    pub(super) fn of(reply: &'a str) -> Info<'a> {
        Info(reply.lines().filter_map(|line| line.split_once(':')).collect())
    }

    /// Returns the value of a field, which may be empty; `None` if it is missing.
    pub(super) fn field(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(field, _)| *field == name).map(|(_, value)| value.trim())
    }
}

/// Parses the facts in `info`. Missing and malformed fields are unknown.
pub(super) fn facts_in(info: &Info<'_>) -> Facts {
    let flag = |name| match info.field(name)? {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    };
    Facts {
        identity: info.field("run_id").map(short).filter(|id| !id.is_empty()).map(Into::into),
        software: software(info),
        role: role(info),
        loading: flag("loading"),
        uptime: uptime(info),
        turns: turns(info),
        replicas: number(info, "connected_slaves"),
        promoted: promoted(info),
        // The field is present only if the setting is on.
        falls_silent: info.field("role").map(|_| info.field("min_slaves_good_slaves").is_some()),
        memory: memory(info),
        append_only: flag("aof_enabled"),
        ..Facts::default()
    }
}

/// Returns how long the process has been running, by its own wall clock. Implausible values are unknown.
pub(super) fn uptime(info: &Info<'_>) -> Option<Duration> {
    number(info, "uptime_in_seconds").filter(|seconds| *seconds <= LONGEST_UPTIME).map(Duration::from_secs)
}

/// Returns how often its event loop has run, if it counts that: Redis and Valkey do from 7.2 on.
pub(super) fn turns(info: &Info<'_>) -> Option<u64> {
    number(info, "eventloop_cycles")
}

/// Returns the wall clock in a reply to `TIME`: seconds, and microseconds of the next one.
pub(super) fn time_in(answer: Value) -> Option<Duration> {
    let Value::Array(parts) = answer else { return None };
    let mut numbers = parts.into_iter().map(|part| text(part)?.parse::<u64>().ok());
    let (seconds, micros) = (numbers.next()??, numbers.next()??);
    let is_time = seconds <= LAST_SECOND && micros < 1_000_000;
    is_time.then(|| Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros)))
}

/// Returns whether it has continued the history of another master; `None` if it does not say.
///
/// Redis forgets that after it has had no replicas for `repl-backlog-ttl`, an hour by default, counted from
/// the promotion.
pub(super) fn promoted(info: &Info<'_>) -> Option<bool> {
    // All zeros if there was no other history before.
    let other = info.field("master_replid2").map(|id| id.bytes().any(|digit| digit != b'0'));
    // Garnet reports no number, and was never a replica.
    let offset = number::<i64>(info, "second_repl_offset").map(|offset| offset != -1);
    if other.is_none() { offset } else { other.map(|other| other || offset == Some(true)) }
}

fn software(info: &Info<'_>) -> Option<Software> {
    // Those that are not Redis report the version of it with which they are compatible, too: what is known of Redis is not
    // known of them.
    const OTHERS: [(&str, &str); 4] = [
        ("valkey_version", "valkey"),
        ("dragonfly_version", "dragonfly"),
        ("kvrocks_version", "kvrocks"),
        ("garnet_version", "garnet"),
    ];
    for (field, name) in OTHERS {
        if let Some(version) = info.field(field) {
            return Some(Software::new(name, short(version)));
        }
    }
    info.field("redis_version").map(|version| Software::new("redis", short(version)))
}

fn role(info: &Info<'_>) -> Option<Role> {
    let mode = |wanted| ["redis_mode", "server_mode"].iter().any(|name| info.field(name) == Some(wanted));
    if mode("sentinel") {
        return Some(Role::Sentinel);
    }
    if mode("cluster") || info.field("cluster_enabled") == Some("1") {
        return Some(Role::ClusterMember);
    }
    role_in_cluster(info)
}

/// Returns its role in replication.
pub(super) fn role_in_cluster(info: &Info<'_>) -> Option<Role> {
    match info.field("role")? {
        "master" => Some(Role::Master),
        "slave" | "replica" => Some(Role::Replica),
        "active-replica" => Some(Role::ActiveReplica),
        _ => None,
    }
}

fn memory(info: &Info<'_>) -> Option<Memory> {
    let limit = number(info, "maxmemory")?;
    let mut memory = Memory::new(
        number(info, "used_memory")?,
        (limit > 0).then_some(limit),
        short(info.field("maxmemory_policy")?),
    );
    memory.evicted = number(info, "evicted_keys").unwrap_or(0);
    Some(memory)
}

fn number<T: FromStr>(info: &Info<'_>, name: &str) -> Option<T> {
    info.field(name)?.parse().ok()
}

/// Truncates the text and escapes hidden characters: a server may send anything.
pub(super) fn short(text: &str) -> String {
    printable(text).cut(LONGEST).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.2.4\r\nvalkey_version:8.1.1\r\nredis_mode:standalone\r\n\
        run_id:abc\r\nuptime_in_seconds:90\r\nused_memory:900\r\nmaxmemory:1000\r\n\
        maxmemory_policy:allkeys-lru\r\nloading:0\r\naof_enabled:1\r\nevicted_keys:7\r\nrole:master\r\n\
        connected_slaves:2\r\nmaster_replid2:0000000000000000000000000000000000000000\r\n\
        cluster_enabled:0\r\n";

    #[test]
    fn each_field_is_understood() {
        let facts = facts_in(&Info::of(INFO));
        assert_eq!(facts.identity.as_deref(), Some("abc"));
        assert_eq!(facts.software, Some(Software::new("valkey", "8.1.1")), "its own version is preferred");
        assert_eq!(facts.role, Some(Role::Master));
        assert_eq!(
            (facts.loading, facts.append_only, facts.promoted),
            (Some(false), Some(true), Some(false))
        );
        assert_eq!((facts.uptime, facts.replicas), (Some(Duration::from_secs(90)), Some(2)));
        let memory = facts.memory.unwrap();
        assert_eq!((memory.used, memory.limit, memory.evicted), (900, Some(1000), 7));
        assert_eq!(memory.policy, "allkeys-lru");
    }

    #[test]
    fn missing_and_malformed_fields_are_unknown() {
        for info in
            ["", "role:king\r\nmaxmemory:lots\r\nloading:perhaps\r\nrun_id:\r\nuptime_in_seconds:-4\r\n"]
        {
            let facts = facts_in(&Info::of(info));
            assert!(facts.role.is_none() && facts.memory.is_none() && facts.loading.is_none(), "{facts:?}");
            assert!(
                facts.identity.is_none() && facts.uptime.is_none() && facts.promoted.is_none(),
                "{facts:?}"
            );
        }
    }

    #[test]
    fn a_promotion_a_cluster_and_a_sentinel_are_recognised() {
        let promoted = INFO.replace("master_replid2:00", "master_replid2:a0");
        assert_eq!(facts_in(&Info::of(&promoted)).promoted, Some(true));
        assert_eq!(
            facts_in(&Info::of(&INFO.replace("enabled:0\r\n", "enabled:1\r\n"))).role,
            Some(Role::ClusterMember)
        );
        assert_eq!(facts_in(&Info::of("redis_mode:sentinel\r\nrole:master")).role, Some(Role::Sentinel));
        let garnet = INFO.replace("cluster_enabled:0", "second_repl_offset:N/A\r\ncluster_enabled:0");
        assert_eq!(facts_in(&Info::of(&garnet)).promoted, Some(false), "Garnet was never a replica");
    }

    #[test]
    fn an_implausible_uptime_is_unknown() {
        for (written, uptime) in [
            ("3153600000", Some(3_153_600_000)),
            ("3153600001", None),
            // A server with unsigned arithmetic, a few seconds after its clock was set back.
            ("18446744073709551611", None),
            ("18446744073709551616", None),
            ("-5", None),
        ] {
            let info = INFO.replace("seconds:90", &format!("seconds:{written}"));
            assert_eq!(facts_in(&Info::of(&info)).uptime, uptime.map(Duration::from_secs), "{written}");
        }
    }

    #[test]
    fn an_implausible_time_is_unknown() {
        let time = |seconds: &str, micros: &str| {
            let texts = [seconds, micros].map(|text| Value::BulkString(text.into()));
            time_in(Value::Array(texts.to_vec()))
        };
        assert_eq!(time("1700000000", "999999"), Some(Duration::from_micros(1_700_000_000_999_999)));
        let most = u64::MAX.to_string();
        for (seconds, micros) in [
            (&*most, &*most),
            (&most, "0"),
            ("0", &most),
            ("253402300800", "0"),
            ("1", "1000000"),
            ("-1", "0"),
        ] {
            assert_eq!(time(seconds, micros), None, "{seconds} {micros}");
        }
        assert_eq!(time_in(Value::Array(vec![Value::Int(1), Value::Int(1)])), None);
    }

    #[test]
    fn text_of_a_server_is_cut_and_printable() {
        let info = format!("redis_version:\x1b[2J{}\r\nrun_id:a\x07b\r\n", "9".repeat(9999));
        let facts = facts_in(&Info::of(&info));
        let version = facts.software.unwrap().version;
        assert!(version.len() <= LONGEST && !version.contains('\x1b'), "{version}");
        assert_eq!(facts.identity.as_deref(), Some(r"a\u{7}b"));
    }
}
