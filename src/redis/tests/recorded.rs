//! Recorded answers of servers that are neither Redis nor Valkey, or that a service runs: none of them was run
//! here. Each has the public source of its text, and what follows from it, as docs/managed.md says.
//!
//! The replies to `INFO` are cut to the lines that are read, and those that name the server.

use std::sync::Arc;

use crate::doctor::rules::{of_node, tests::setting};
use crate::doctor::{Check, Severity};
use crate::node::facts::{Facts, Feature, Role};
use crate::redis::info::{Info, facts_in};
use crate::redis::inspect::refusal_of;
use crate::redis::process::Process;
use crate::redis::server_error::{MissingRight, ServerError, ServerErrorKind};
use crate::redis::settings::Membership;

/// A recorded reply to `INFO`.
struct Recorded {
    name: &'static str,
    info: &'static str,
    /// Why it does not vote, or `None` if it does.
    refused: Option<&'static str>,
    /// The findings that follow from it, besides those about what only further requests show.
    findings: &'static [Check],
}

macro_rules! recorded {
    ($name:literal, $refused:expr, $findings:expr) => {
        Recorded {
            name: $name,
            info: include_str!(concat!("recorded/", $name, ".txt")),
            refused: $refused,
            findings: $findings,
        }
    };
}

const NO_RUN_ID: Option<&str> = Some("its INFO has no run_id, so a restart would go unnoticed");
const NO_ROLE: Option<&str> = Some("it does not report its role");

const RECORDED: [Recorded; 10] = [
    recorded!("dragonfly-2.0", NO_RUN_ID, &[Check::Unfit]),
    // Only its beginning is public. A cache calls its policy `eviction`.
    recorded!("dragonfly-1.12-cache", NO_ROLE, &[Check::Unfit, Check::Eviction]),
    recorded!("kvrocks-2.17", NO_RUN_ID, &[Check::Unfit]),
    recorded!("keydb-6.3.4", None, &[]),
    recorded!("keydb-active-replica", Some("it is an active replica"), &[Check::ActiveReplica]),
    recorded!("garnet-2.2", None, &[]),
    recorded!("elasticache-redis-5.0.4", None, &[Check::Replicas, Check::Eviction]),
    recorded!("elasticache-valkey-8.0-cluster", Some("it is a cluster member"), &[Check::ClusterMember]),
    // Only these lines are public. They hold its `run_id`, and no `maxmemory`.
    recorded!("redis-cloud-6.0", NO_ROLE, &[Check::Unfit]),
    recorded!("memorystore-redis-4.0", NO_ROLE, &[Check::Unfit]),
];

#[test]
fn what_recorded_servers_say_of_themselves_has_the_consequences_that_the_manual_states() {
    for Recorded { name, info, refused, findings } in RECORDED {
        assert!(info.starts_with("# Source: https://"), "{name} has no source");
        let info = Info::of(info);
        let fit = Process::fit_to_vote(&info, Membership::Alone);
        let reason = fit.err().map(|error| error.to_string());
        assert_eq!(reason.is_some(), refused.is_some(), "{name}: {reason:?}");
        assert!(
            reason.as_deref().unwrap_or_default().contains(refused.unwrap_or_default()),
            "{name}: {reason:?}"
        );

        let facts = Facts { unfit: reason.map(Into::into), ..facts_in(&info) };
        let found: Vec<_> = of_node(&Arc::from(name), &facts, &setting(3))
            .into_iter()
            // What a server does not report, how young it is, and its version, are about these runs.
            .filter(|finding| {
                !matches!(
                    finding.check,
                    Check::Untold
                        | Check::Restarted
                        | Check::NotPersistent
                        | Check::KnownHole
                        | Check::OldVersion
                )
            })
            .map(|finding| finding.check)
            .collect();
        assert_eq!(found, findings, "{name}");
    }
}

fn facts(name: &str) -> Facts {
    let recorded = RECORDED.iter().find(|recorded| recorded.name == name).expect("a recorded reply");
    facts_in(&Info::of(recorded.info))
}

#[test]
fn a_garnet_was_never_promoted_and_does_not_say_whether_it_evicts() {
    let garnet = facts("garnet-2.2");
    assert_eq!((garnet.promoted, garnet.role), (Some(false), Some(Role::Master)));
    assert!(garnet.identity.is_some() && garnet.memory.is_none(), "{garnet:?}");
    let untold = of_node(&Arc::from("a"), &garnet, &setting(3));
    let untold = untold.iter().find(|finding| finding.check == Check::Untold).expect("it is said");
    assert!(untold.evidence.contains("whether it evicts keys"), "{untold:?}");
    assert_eq!(untold.severity, Severity::Unknown);
}

#[test]
fn a_server_that_is_compatible_with_redis_is_not_judged_by_its_version() {
    for (name, software) in
        [("dragonfly-2.0", "dragonfly"), ("kvrocks-2.17", "kvrocks"), ("garnet-2.2", "garnet")]
    {
        assert_eq!(facts(name).software.expect("it says what it is").name, software);
        let found = of_node(&Arc::from("a"), &facts(name), &setting(3));
        assert!(found.iter().all(|finding| finding.check != Check::KnownHole), "{found:?}");
    }
}

#[test]
fn a_redis_cloud_has_a_run_id_and_does_not_say_whether_it_evicts() {
    let cloud = facts("redis-cloud-6.0");
    assert!(cloud.identity.is_some() && cloud.memory.is_none(), "{cloud:?}");
}

/// A recorded error: who said it, the source, the command, its line, and what follows.
type Refusal = (&'static str, &'static str, (&'static str, Feature), &'static str, Expected);

const ERRORS: [Refusal; 14] = [
    (
        "ElastiCache, Redis 7.1",
        "https://github.com/redis/rueidis/issues/612",
        ("client|tracking", Feature::Waiting),
        "ERR unknown subcommand 'tracking'. Try CLIENT HELP.",
        Expected::Missing,
    ),
    (
        "ElastiCache",
        "https://github.com/oliver006/redis_exporter/issues/597",
        ("config", Feature::Locks),
        "ERR unknown command `CONFIG`, with args beginning with: `GET`, `*`, ",
        Expected::Missing,
    ),
    (
        "Memorystore for Redis, before 6",
        "https://github.com/oliver006/redis_exporter/issues/315",
        ("client|kill", Feature::Speed),
        "ERR unknown command `CLIENT`, with args beginning with: `SETNAME`, `redis_exporter`,  ",
        Expected::Missing,
    ),
    (
        "Dragonfly before 1.14",
        "https://github.com/dragonflydb/dragonfly/issues/2454",
        ("client|tracking", Feature::Waiting),
        "ERR Unknown subcommand or wrong number of arguments for 'TRACKING'. Try CLIENT HELP.",
        Expected::Missing,
    ),
    (
        "Redis Cloud",
        "https://github.com/bezzad/HybridRedisCache/issues/16",
        ("client|tracking", Feature::Waiting),
        "ERR command 'client|tracking' is not allowed",
        Expected::Missing,
    ),
    (
        "Garnet without --lua",
        "https://github.com/microsoft/garnet/blob/b50c88dc8c876eaf1fa43c35781be6f809671bfc/libs/server/Resp/CmdStrings.cs",
        ("eval", Feature::Locks),
        "ERR This instance has Lua scripting support disabled",
        Expected::Missing,
    ),
    (
        "Redis Enterprise",
        "https://github.com/taskforcesh/bullmq/issues/3351",
        ("eval", Feature::Locks),
        "NOPERM User has no permissions to run the 'eval' command",
        Expected::Right("eval"),
    ),
    (
        "Upstash, by its token that only reads",
        "https://github.com/upstash/ratelimit-js/issues/18",
        ("eval", Feature::Locks),
        "NOPERM this user has no permissions to run the 'eval' command or its subcommand",
        Expected::Right("eval"),
    ),
    (
        "Upstash, by its token that only reads",
        "https://github.com/revokslab/waitly/issues/4",
        ("evalsha", Feature::Locks),
        "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand",
        Expected::Right("evalsha"),
    ),
    (
        "OCI Cache, Valkey 8.1",
        "https://github.com/valkey-io/valkey-admin/issues/342",
        ("client|tracking", Feature::Waiting),
        "NOPERM User default has no permissions to run the 'memory|usage' command",
        Expected::Right("memory|usage"),
    ),
    (
        "Dragonfly, on a script with keys that are not declared",
        "https://github.com/dragonflydb/dragonfly/issues/3066",
        ("eval", Feature::Locks),
        "ERR Error running script (call to 77563f88f961d5772ea29fbc4a18558997365e67): @user_script:2: script tried \
         accessing undeclared key",
        Expected::Other,
    ),
    (
        "Dragonfly in 2022, to HELLO 3",
        "https://github.com/dragonflydb/dragonfly/pull/102",
        ("hello", Feature::Waiting),
        "NOPROTO unsupported protocol version",
        Expected::OlderProtocol,
    ),
    (
        "Kvrocks in 2022, to HELLO 3",
        "https://github.com/apache/kvrocks/pull/881",
        ("hello", Feature::Waiting),
        "NOPROTO unsupported protocol version",
        Expected::OlderProtocol,
    ),
    (
        "a KeyDB that is a replica",
        "https://github.com/Snapchat/KeyDB/issues/838",
        ("set", Feature::Locks),
        "READONLY You can't write against a read only replica.",
        Expected::ReadOnly,
    ),
];

/// What follows from an error.
enum Expected {
    /// The server lacks the command: the doctor names it, and what needs it is off.
    Missing,
    /// The user lacks the right to this command.
    Right(&'static str),
    /// The client goes on with RESP2, without notifications.
    OlderProtocol,
    ReadOnly,
    /// Nothing but that the request failed.
    Other,
}

#[test]
fn recorded_refusals_are_understood() {
    for (server, source, (command, need), line, expected) in ERRORS {
        assert!(source.starts_with("https://"), "{server} has no source");
        let error = ServerError::on_line(line);
        let (kind, noted) = match expected {
            Expected::Missing => {
                (ServerErrorKind::UnknownCommand, Some(format!("does not know the command {command}")))
            }
            Expected::Right(named) => {
                let right = MissingRight::Command { named: Some(named.into()) };
                (ServerErrorKind::NoPermission(right), Some("does not let its user run".to_owned()))
            }
            Expected::OlderProtocol => (ServerErrorKind::UnknownProtocol, None),
            Expected::ReadOnly => (ServerErrorKind::ReadOnlyReplica, None),
            Expected::Other => (ServerErrorKind::Other, None),
        };
        assert_eq!(*error.kind(), kind, "{server}: {line}");

        let mut facts = facts("keydb-6.3.4");
        refusal_of(command, need, line, &mut facts);
        let found = of_node(&Arc::from("a"), &facts, &setting(3));
        let found = found.iter().find(|finding| finding.check == Check::MissingRight);
        assert_eq!(found.is_some(), noted.is_some(), "{server}: {found:?}");
        if let (Some(found), Some(noted)) = (found, noted) {
            assert!(found.evidence.contains(&noted), "{server}: {found:?}");
        }
    }
}
