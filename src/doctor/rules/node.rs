//! What one node means.

use std::sync::Arc;
use std::time::Duration;

use super::{Findings, duration, needed_to_vote, quarantined, running};
use crate::doctor::finding::{Check, Finding, Severity};
use crate::doctor::report::RoundTrips;
use crate::doctor::setting::Setting;
use crate::node::NodeErrorKind;
use crate::node::facts::{Facts, Feature, Fsync, Missing, Role};
use quorlock_protocol::{Moment, Past, RoundTrip, node_timeout};

/// What is known as soon as a node has introduced itself: told at each connection, too.
const ON_SIGHT: [fn(&Facts, &mut Findings<'_>); 4] = [replicas, unguarded, eviction, memory_full];

/// What needs the settings, or requests of its own.
const ON_EXAMINATION: [fn(&Facts, &Setting, &mut Findings<'_>); 15] = [
    trouble,
    several_servers,
    role,
    loading,
    restarted,
    stepped,
    promoted,
    two_masters,
    persistence,
    rights,
    version,
    hints,
    pace,
    client_clocks,
    untold,
];

/// The findings about one node that its introduction alone tells.
pub(crate) fn on_sight(name: &Arc<str>, facts: &Facts) -> Vec<Finding> {
    let mut sheet = Findings::of_node(name);
    for check in ON_SIGHT {
        check(facts, &mut sheet);
    }
    sheet.findings
}

/// All findings about one server.
pub(super) fn findings(name: &Arc<str>, facts: &Facts, setting: &Setting) -> Vec<Finding> {
    let mut sheet = Findings::of_node(name);
    for check in ON_EXAMINATION {
        check(facts, setting, &mut sheet);
    }
    for check in ON_SIGHT {
        check(facts, &mut sheet);
    }
    sheet.findings
}

fn trouble(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    let Some(trouble) = &facts.trouble else { return };
    let check = match trouble.error.kind() {
        NodeErrorKind::Unreachable | NodeErrorKind::TimedOut => Check::Unreachable,
        NodeErrorKind::Login => Check::Login,
        NodeErrorKind::HostRefused => Check::ProtectedMode,
        NodeErrorKind::Tls => Check::Tls,
        NodeErrorKind::PermissionDenied(_) => Check::MissingRight,
        NodeErrorKind::ReadOnly
        | NodeErrorKind::Busy
        | NodeErrorKind::OutOfSpace
        | NodeErrorKind::WrongData
        | NodeErrorKind::WrongServer
        | NodeErrorKind::Unsupported
        | NodeErrorKind::Misconfigured
        | NodeErrorKind::Other => Check::Failed,
    };
    let cure = trouble.cure.unwrap_or(check.cure());
    sheet.cured(Severity::Warning, check, format!("does not take part: {:#}", trouble.error), cure);
}

fn role(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    match facts.role {
        Some(Role::Master | Role::Cluster) | None => {
            if let Some(reason) = &facts.unfit {
                sheet.note(Severity::Warning, Check::Unfit, format!("does not vote: {reason}"));
            }
        }
        Some(Role::ActiveReplica) => sheet.note(
            Severity::Unsafe,
            Check::ActiveReplica,
            "is an active replica (role:active-replica) and does not vote: other masters overwrite what it grants",
        ),
        Some(Role::Replica) => {
            sheet.note(Severity::Warning, Check::Replica, "is a replica (role:slave) and does not vote");
        }
        Some(Role::Sentinel) => {
            sheet.note(Severity::Warning, Check::Sentinel, "is a Sentinel and does not vote");
        }
        Some(Role::ClusterMember) => sheet.note(
            Severity::Unsafe,
            Check::ClusterMember,
            "is a member of a cluster (cluster_enabled:1): a failover there forgets locks",
        ),
    }
}

/// One address, and several processes behind it; or a proxy that is one server to us and many connections to
/// the server.
fn several_servers(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    let short = |id: &str| id.chars().take(8).collect::<String>();
    let others: Vec<_> = facts.others.iter().map(|id| format!("run_id {}…", short(id))).collect();
    if !others.is_empty() {
        let ours = facts.identity.as_deref().map(short).unwrap_or_default();
        let evidence = format!(
            "is several servers: connections to its address came to run_id {ours}… and to {}",
            others.join(" and ")
        );
        sheet.note(Severity::Unsafe, Check::SeveralServers, evidence);
    } else if facts.finds_connections == Some(false) {
        let evidence = "does not find a connection of ours by the number that it gave it (CLIENT KILL ID)";
        sheet.note(Severity::Warning, Check::Proxy, evidence);
    }
}

fn loading(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    if facts.loading == Some(true) {
        sheet.note(Severity::Warning, Check::Loading, "is still loading its data (loading:1)");
    }
}

fn restarted(facts: &Facts, setting: &Setting, sheet: &mut Findings<'_>) {
    let Some(uptime) = facts.uptime.filter(|_| !is_stepped(facts)) else { return };
    let longest = setting.drift.stretch(setting.max_ttl);
    let age = quorlock_protocol::age(uptime, Past::Master, None, Moment::ORIGIN);
    let left = longest.saturating_sub(age);
    if facts.role != Some(Role::Master) || left.is_zero() {
        return;
    }
    let (up, left) = (duration::format(uptime), duration::format(left));
    if setting.guarded() {
        let evidence = format!("started {up} ago and does not vote for another {left}");
        sheet.note(Severity::Warning, Check::Restarted, evidence);
    } else if forgets(facts) != Some(false) {
        let evidence = format!(
            "started {up} ago, and with the restart guard off it votes although it may have forgotten \
             locks that are held for another {left}"
        );
        let cure = "turn the restart guard on at every client, and wait until it lets the server vote; on the server's very \
                    first start there is nothing to forget";
        sheet.cured(Severity::Unsafe, Check::Restarted, evidence, cure);
    }
}

/// From this difference on it is no matter of clocks that are not quite right.
const STEPPED: Duration = Duration::from_secs(60);

fn stepped(facts: &Facts, setting: &Setting, sheet: &mut Findings<'_>) {
    let Some(uptime) = facts.uptime.filter(|_| is_stepped(facts)) else { return };
    let up = duration::format(uptime);
    let evidence = match (facts.known, facts.turns) {
        (Some(known), _) => {
            format!(
                "says that it started {up} ago, and clients met it as a new process {} ago",
                duration::format(known)
            )
        }
        (None, turns) => {
            let turns = turns.unwrap_or_default();
            format!(
                "says that it started {up} ago, and its event loop has turned {turns} times since, as in seconds"
            )
        }
    };
    let left = if setting.guarded() { quarantined(facts, setting) } else { Duration::ZERO };
    let (severity, so) = if left.is_zero() {
        (Severity::Note, String::new())
    } else {
        (Severity::Warning, format!(", and it does not vote for another {}", duration::format(left)))
    };
    sheet.note(severity, Check::ClockStepped, format!("{evidence}: its clock was put forward meanwhile{so}"));
}

/// Whether its uptime is too long.
fn is_stepped(facts: &Facts) -> bool {
    facts.uptime.is_some_and(|uptime| uptime.saturating_sub(running(facts)) >= STEPPED)
}

/// Whether a restart loses what was granted; `None` if nobody knows.
fn forgets(facts: &Facts) -> Option<bool> {
    match (facts.append_only?, facts.fsync) {
        (true, Some(Fsync::Always)) => Some(false),
        (true, Some(Fsync::EverySecond | Fsync::Never)) | (false, _) => Some(true),
        (true, None) => None,
    }
}

/// What a database that forgets has not set, and how to set it; `None` if the server is none.
fn database_settings(facts: &Facts) -> Option<(&'static str, &'static str)> {
    match facts.software.as_ref()?.name {
        "postgresql" => Some(("fsync or full_page_writes off", "`fsync = on` and `full_page_writes = on`")),
        "mariadb" | "mysql" => Some((
            "innodb_flush_log_at_trx_commit or sync_binlog not 1, or innodb_doublewrite off",
            "`innodb_flush_log_at_trx_commit = 1`, `innodb_doublewrite = ON` and, where `log_bin` is on, `sync_binlog = 1`",
        )),
        _ => None,
    }
}

fn persistence(facts: &Facts, setting: &Setting, sheet: &mut Findings<'_>) {
    if facts.role != Some(Role::Master) || forgets(facts) != Some(true) {
        return;
    }
    let database = database_settings(facts);
    let what = match (database, facts.fsync) {
        (Some((off, _)), _) => format!("a crash of its machine may lose what it granted ({off})"),
        (None, Some(Fsync::EverySecond)) if facts.append_only == Some(true) => {
            "a crash of its machine loses the last second or two (appendfsync everysec)".to_owned()
        }
        (None, Some(Fsync::Never)) if facts.append_only == Some(true) => {
            "a crash of its machine loses the last half minute or so (appendfsync no)".to_owned()
        }
        (None, _) => "a restart loses the locks that it granted (appendonly no)".to_owned(),
    };
    let set = database.map_or("`appendonly yes` and `appendfsync always`", |(_, set)| set);
    if setting.guarded() {
        let wait = duration::format(setting.quarantine.length());
        let evidence =
            format!("{what}; the restart guard keeps it from voting for {wait} after each restart");
        let cure = format!("leave the guard on; to be spared the wait as well, set {set}");
        sheet.cured(Severity::Note, Check::NotPersistent, evidence, cure);
    } else {
        let evidence = format!("{what}, and the restart guard is off");
        let cure = format!(
            "turn the restart guard on at every client, and wait until it lets the server vote; or set {set}"
        );
        sheet.cured(Severity::Unsafe, Check::NotPersistent, evidence, cure);
    }
}

fn client_clocks(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    let Some(others) = &facts.other_clients else { return };
    match &others.clock {
        Some(clock) => {
            sheet.cured(
                Severity::Unsafe,
                Check::ClientClocks,
                format!("{}: {clock}", others.who),
                others.cure,
            );
        }
        None => sheet.cured(Severity::Note, Check::ClientClocks, others.who, others.cure),
    }
}

fn rights(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    for refusal in &facts.refusals {
        let (severity, what) = match refusal.need {
            Feature::Locks => (Severity::Warning, "as every lock must"),
            Feature::Fencing => (Severity::Warning, "as locks must unless fencing is off"),
            Feature::Promotion => (Severity::Note, "without which it does not vote once it was promoted"),
            Feature::Speed => (Severity::Note, "without which acquiring a lock costs it twice the work"),
            Feature::Queue => (Severity::Note, "as those must who wait in a queue"),
            Feature::Offers => {
                (Severity::Note, "without which a lock takes two trips from process to process")
            }
            Feature::Sharing => (Severity::Note, "as shared locks must"),
            Feature::Semaphores => (Severity::Note, "as semaphores must"),
            Feature::Waiting => (Severity::Note, "without which waiters ask again and again"),
        };
        let user = facts.user.as_deref().unwrap_or("…");
        let (barred, cure) = match &refusal.missing {
            Missing::Command => {
                let evidence =
                    format!("does not know the command {}, {what} ({})", refusal.command, refusal.words);
                let cure =
                    "do not rename or disable it there (`rename-command`), or use a server that has it";
                sheet.cured(severity, Check::MissingRight, evidence, cure);
                continue;
            }
            Missing::Right(grant) => match grant.strip_prefix('~') {
                Some("*") => (
                    "touch the key of a lock".to_owned(),
                    "grant the keys of your locks, as in `~locks:*`, and examine with --key-prefix locks:"
                        .to_owned(),
                ),
                Some(keys) => {
                    (format!("touch the keys {keys}"), format!("grant it: `ACL SETUSER {user} {grant}`"))
                }
                None if refusal.need == Feature::Offers => (
                    format!("run {} on its channels", refusal.command),
                    if has_channel_rights(facts) {
                        format!("grant both: `ACL SETUSER {user} &quorlock:inbox:* +subscribe +publish`")
                    } else {
                        format!("grant both: `ACL SETUSER {user} +subscribe +publish`")
                    },
                ),
                None => {
                    (format!("run {}", refusal.command), format!("grant it: `ACL SETUSER {user} {grant}`"))
                }
            },
        };
        let evidence = format!("does not let its user {barred}, {what} ({})", refusal.words);
        sheet.cured(severity, Check::MissingRight, evidence, cure);
    }
    // What refuses a command alone refuses it in a script, too, and is told above.
    let told = facts.refusals.iter().any(|refusal| needed_to_vote(refusal.need));
    if let (Some(Err(error)), false) = (&facts.lock, told) {
        sheet.note(Severity::Warning, Check::LockFails, format!("cannot carry a lock: {error:#}"));
    }
}

/// Whether its users have rights for single channels. Those of Redis 6.0 have them for all.
fn has_channel_rights(facts: &Facts) -> bool {
    facts.software.as_ref().is_none_or(|software| software.name != "redis" || software.numbers() >= [6, 2, 0])
}

fn version(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    let Some(software) = &facts.software else { return };
    let numbers = software.numbers();
    let (name, version) = (software.name, &software.version);
    if name == "redis" && numbers < [6, 0, 0] {
        let evidence = format!("is redis {version}, which knows neither ACLs nor RESP3");
        sheet.note(Severity::Warning, Check::OldVersion, evidence);
    }
    if has_hole(name, numbers) {
        let evidence = format!("is {name} {version}: whoever may run scripts may run code (CVE-2025-49844)");
        sheet.note(Severity::Note, Check::KnownHole, evidence);
    }
}

/// CVE-2025-49844, by the versions in which Redis and Valkey have mended it.
const MENDED: [(&str, [u32; 3]); 8] = [
    ("redis", [6, 2, 20]),
    ("redis", [7, 2, 11]),
    ("redis", [7, 4, 6]),
    ("redis", [8, 0, 4]),
    ("redis", [8, 2, 2]),
    ("valkey", [7, 2, 11]),
    ("valkey", [8, 0, 6]),
    ("valkey", [8, 1, 4]),
];

/// A line of versions that was never mended has the hole, and one that began later has not.
pub(super) fn has_hole(name: &str, version: [u32; 3]) -> bool {
    let mended = || MENDED.iter().filter(|(software, _)| *software == name).map(|(_, version)| version);
    let line = |version: &[u32; 3]| [version[0], version[1]];
    match mended().find(|mended| line(mended) == line(&version)) {
        Some(mended) => version < *mended,
        None => mended().next_back().is_some_and(|last| version < *last),
    }
}

fn hints(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    let told = facts.refusals.iter().any(|refusal| refusal.need == Feature::Waiting);
    if facts.hints == Some(false) && !told {
        let evidence =
            "tells of no changes (no RESP3, or no CLIENT TRACKING): waiters ask again after pauses";
        sheet.note(Severity::Note, Check::NoHints, evidence);
    }
}

fn pace(facts: &Facts, setting: &Setting, sheet: &mut Findings<'_>) {
    let Some(trips) = RoundTrips::of(&facts.round_trips) else { return };
    let most = setting.ttl / 10;
    let limit = node_timeout(setting.node_timeout, Some(RoundTrip::first(trips.median)), setting.ttl);
    let took = format!(
        "answers within {} in half of all cases, and within {} in nearly all",
        duration::format(trips.median),
        duration::format(trips.p99)
    );
    if trips.p99 > most {
        let evidence = format!("{took}: more than a tenth of the TTL of {}", duration::format(setting.ttl));
        sheet.note(Severity::Warning, Check::ShortTtl, evidence);
    } else if trips.p99 > limit {
        let evidence = format!("{took}: its time limit is {}", duration::format(limit));
        sheet.note(Severity::Warning, Check::SlowNode, evidence);
    }
}

fn replicas(facts: &Facts, sheet: &mut Findings<'_>) {
    if facts.service.is_some() {
        return;
    }
    if let (Some(count @ 1..), Some(Role::Master)) = (facts.replicas, facts.role) {
        let counted_by = match &facts.software {
            Some(software) if software.name == "postgresql" => "asynchronous ones in pg_stat_replication",
            Some(software) if software.name == "mariadb" || software.name == "mysql" => "connected",
            Some(_) | None => "connected_slaves",
        };
        let evidence =
            format!("has replicas ({counted_by}:{count}): one that takes its place may lack locks");
        sheet.note(Severity::Warning, Check::Replicas, evidence);
    }
}

/// A service has replicas on purpose. What it needs instead is an old master that falls silent.
fn two_masters(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    if facts.service.is_some() && facts.falls_silent == Some(false) && facts.role == Some(Role::Master) {
        let evidence = "would go on beside its successor (min-replicas-to-write 0) until its Sentinels, or \
                        their silence, have its clients leave it";
        sheet.note(Severity::Note, Check::TwoMasters, evidence);
    }
}

/// A promotion of which nobody notes when it was: the restart guard is off.
fn unguarded(facts: &Facts, sheet: &mut Findings<'_>) {
    if facts.promoted == Some(true) && facts.role == Some(Role::Master) && facts.reign.is_none() {
        let evidence =
            "was a replica and was promoted (master_replid2 is set): locks may not have reached it";
        sheet.note(Severity::Warning, Check::Promoted, evidence);
    }
}

fn promoted(facts: &Facts, setting: &Setting, sheet: &mut Findings<'_>) {
    let Some(reign) = facts.reign else { return };
    let (known, left) = (duration::format(reign), quarantined(facts, setting));
    if left.is_zero() {
        let evidence =
            format!("was promoted at least {known} ago, and all that it may lack has run out since");
        sheet.note(Severity::Note, Check::Promoted, evidence);
    } else {
        let left = duration::format(left);
        let evidence =
            format!("was promoted, which was first seen {known} ago, and does not vote for another {left}");
        sheet.note(Severity::Warning, Check::Promoted, evidence);
    }
}

fn eviction(facts: &Facts, sheet: &mut Findings<'_>) {
    let Some(memory) = &facts.memory else { return };
    if let Some(limit) = memory.limit
        && memory.policy != "noeviction"
    {
        let evidence = format!(
            "may evict locks (maxmemory-policy {}, maxmemory {limit}, {} keys evicted so far)",
            memory.policy, memory.evicted
        );
        sheet.note(Severity::Unsafe, Check::Eviction, evidence);
    }
}

/// From this share of `maxmemory` on it counts as nearly full, in percent.
const NEARLY_FULL: u64 = 90;

fn memory_full(facts: &Facts, sheet: &mut Findings<'_>) {
    let Some(memory) = &facts.memory else { return };
    if let Some(limit @ 1..) = memory.limit
        && memory.policy == "noeviction"
        && memory.used >= limit / 100 * NEARLY_FULL
    {
        let evidence =
            format!("uses {} of {limit} bytes (noeviction): when full, it grants nothing", memory.used);
        sheet.note(Severity::Warning, Check::MemoryFull, evidence);
    }
}

fn untold(facts: &Facts, setting: &Setting, sheet: &mut Findings<'_>) {
    if facts.trouble.is_some() {
        return;
    }
    let fsync_matters = !setting.guarded() && facts.append_only == Some(true);
    let missing = [
        (facts.role.is_none() && facts.unfit.is_none(), "what it is"),
        (facts.identity.is_none() && facts.unfit.is_none(), "whether it is a server of its own"),
        (facts.uptime.is_none(), "when it started"),
        (facts.replicas.is_none() && facts.role == Some(Role::Master), "whether it has replicas"),
        (facts.memory.is_none(), "whether it evicts keys"),
        (facts.append_only.is_none(), "whether it keeps its data"),
        (fsync_matters && facts.fsync.is_none(), "when its data reaches the disk (appendfsync)"),
        (facts.clock.is_none(), "its clock"),
        (facts.lock.is_none() && facts.role == Some(Role::Master), "whether a lock can be taken"),
    ];
    let missing: Vec<_> = missing.into_iter().filter_map(|(untold, what)| untold.then_some(what)).collect();
    if !missing.is_empty() {
        sheet.note(Severity::Unknown, Check::Untold, format!("does not tell {}", missing.join(", ")));
    }
}
