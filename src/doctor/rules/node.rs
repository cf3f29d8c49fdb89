//! Findings about one node.

use std::sync::Arc;
use std::time::Duration;

use super::{Findings, age_with, duration, needed_to_vote, quarantined, running, standing};
use crate::doctor::finding::{Check, Finding, Severity};
use crate::doctor::report::{RoundTrips, Standing};
use crate::doctor::setting::Setting;
use crate::node::NodeErrorKind;
use crate::node::facts::{Exposure, Facts, Feature, Fsync, Missing, Role};
use quorlock_protocol::{Past, RoundTrip, node_timeout};

/// The checks of facts from the handshake, which also run at each connection.
const ON_SIGHT: [fn(&Facts, &mut Findings<'_>); 5] = [replicas, unguarded, eviction, memory_full, set_back];

/// The checks that need the settings, or requests of their own.
const ON_EXAMINATION: [fn(&Facts, &Setting, &mut Findings<'_>); 18] = [
    failure,
    several_servers,
    role,
    loading,
    restarted,
    stepped,
    promoted,
    two_masters,
    persistence,
    never_forgets,
    rights,
    version,
    concerns,
    hints,
    pace,
    client_clocks,
    exposed_files,
    untold,
];

/// Returns the findings about one node from its handshake alone.
pub(crate) fn on_sight(name: &Arc<str>, facts: &Facts) -> Vec<Finding> {
    let mut sheet = Findings::of_node(name);
    for check in ON_SIGHT {
        check(facts, &mut sheet);
    }
    sheet.findings
}

/// Returns all findings about one server.
pub(super) fn findings(name: &Arc<str>, facts: &Facts, setting: &Setting) -> Vec<Finding> {
    let mut sheet = Findings::of_node(name);
    for check in ON_EXAMINATION {
        check(facts, setting, &mut sheet);
    }
    for check in ON_SIGHT {
        check(facts, &mut sheet);
    }
    without_vote(facts, setting, &mut sheet);
    sheet.findings
}

/// Reports what no other check has given a cause for: `--strict` waits for every vote.
fn without_vote(facts: &Facts, setting: &Setting, sheet: &mut Findings<'_>) {
    let mut causes = sheet.findings.iter().filter(|finding| finding.severity <= Severity::Warning);
    let (check, evidence) = match standing(facts, setting) {
        Standing::Excluded { reason } if causes.next().is_none() => {
            (Check::Unfit, format!("does not vote: {reason}"))
        }
        Standing::Quarantined { left } if !causes.any(|finding| QUARANTINED.contains(&finding.check)) => {
            (Check::Restarted, format!("does not vote for another {}", duration::format(left)))
        }
        Standing::Votes | Standing::Unknown | Standing::Excluded { .. } | Standing::Quarantined { .. } => {
            return;
        }
    };
    sheet.note(Severity::Warning, check, evidence);
}

/// The checks that say until when a node does not vote.
const QUARANTINED: [Check; 3] = [Check::Restarted, Check::ClockStepped, Check::Promoted];

fn failure(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    let Some(failure) = &facts.failure else { return };
    let check = match failure.error.kind() {
        NodeErrorKind::Unreachable => Check::Unreachable,
        NodeErrorKind::TimedOut => Check::Unresponsive,
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
        | NodeErrorKind::Other
        | _ => Check::Failed,
    };
    let cure = failure.cure.or(of_error(failure.error.kind())).unwrap_or(check.cure());
    sheet.cured(Severity::Warning, check, format!("does not take part: {:#}", failure.error), cure);
}

/// Returns the fix of an error that does not mean that there is another kind of server; nothing of one that may.
#[expect(clippy::wildcard_enum_match_arm, reason = "all others have a check of their own, or may mean that")]
fn of_error(kind: NodeErrorKind) -> Option<&'static str> {
    match kind {
        NodeErrorKind::Busy => Some("wait for it; if it lasts, do what the error says"),
        NodeErrorKind::Misconfigured | NodeErrorKind::WrongServer => {
            Some("correct the address or the setting that the error names")
        }
        NodeErrorKind::OutOfSpace => {
            Some("free memory or disk there, as the error says: it takes no writes before")
        }
        _ => None,
    }
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
            "is an active replica (role:active-replica) and does not vote: other masters overwrite its keys",
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
            "is a cluster member (cluster_enabled:1): a failover of the cluster loses locks",
        ),
    }
}

/// Reports an address with several processes, or a proxy that accepts one connection and opens several to the
/// server.
fn several_servers(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    let short = |id: &str| id.chars().take(8).collect::<String>();
    let others: Vec<_> = facts.others.iter().map(|id| format!("run_id {}…", short(id))).collect();
    if !others.is_empty() {
        let ours = facts.identity.as_deref().map(short).unwrap_or_default();
        let evidence = format!(
            "is several servers: connections to its address reached run_id {ours}… and {}",
            others.join(" and ")
        );
        sheet.note(Severity::Unsafe, Check::SeveralServers, evidence);
    } else if facts.finds_connections == Some(false) {
        let evidence = "does not find our connection by the ID that it assigned (CLIENT KILL ID)";
        sheet.note(Severity::Warning, Check::Proxy, evidence);
    }
}

fn loading(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    if facts.loading == Some(true) {
        sheet.note(Severity::Warning, Check::Loading, "is still loading its data (loading:1)");
    }
}

fn restarted(facts: &Facts, setting: &Setting, sheet: &mut Findings<'_>) {
    let Some(uptime) = facts.uptime.filter(|_| !is_stepped(facts, setting)) else { return };
    let left = forgotten_for(facts, running(facts), setting);
    if facts.role != Some(Role::Master) || left.is_zero() {
        return;
    }
    let (up, left) = (duration::format(uptime), duration::format(left));
    if setting.guarded() {
        let evidence = format!("started {up} ago and does not vote for another {left}");
        sheet.note(Severity::Warning, Check::Restarted, evidence);
    } else if forgets(facts) != Some(false) {
        let evidence = format!(
            "started {up} ago, and with the restart guard off it votes although it may have lost \
             locks that are held for another {left}"
        );
        let cure = "turn the restart guard on at every client, and wait until it lets the server vote; on the server's very \
                    first start there is nothing to forget";
        sheet.cured(Severity::Unsafe, Check::Restarted, evidence, cure);
    }
}

/// Returns for how long locks may still be held that a process forgot which runs for this long.
fn forgotten_for(facts: &Facts, runs: Duration, setting: &Setting) -> Duration {
    // Also those of other clients, for which the quarantine is longer.
    let longest = setting.drift.stretch(setting.max_ttl).max(setting.quarantine.length());
    longest.saturating_sub(age_with(facts, runs, Past::Master))
}

/// A larger difference means that the clock was set, not that it is inaccurate.
const STEPPED: Duration = Duration::from_secs(60);
/// A larger difference is worth a word if it decides whether the node votes. Uptimes are in whole seconds.
const APART: Duration = Duration::from_secs(2);

fn stepped(facts: &Facts, setting: &Setting, sheet: &mut Findings<'_>) {
    let Some(uptime) = facts.uptime.filter(|_| is_stepped(facts, setting)) else { return };
    let up = duration::format(uptime);
    let evidence = match (facts.known, facts.turns) {
        (Some(known), _) => {
            format!(
                "reports that it started {up} ago, but clients know the process or its data for {} only",
                duration::format(known)
            )
        }
        (None, turns) => {
            let turns = turns.unwrap_or_default();
            format!("reports that it started {up} ago, but its event loop has only run {turns} times since")
        }
    };
    let left = if setting.guarded() { quarantined(facts, setting) } else { Duration::ZERO };
    let (severity, so) = if left.is_zero() {
        (Severity::Note, String::new())
    } else {
        (Severity::Warning, format!(", and it does not vote for another {}", duration::format(left)))
    };
    let cause = "its clock was set forward since, or its data were replaced";
    sheet.note(severity, Check::ClockStepped, format!("{evidence}: {cause}{so}"));
}

/// How long a server whose clock was set back is worth a word: its vote counts soon.
const SET_BACK: Duration = Duration::from_secs(60);

fn set_back(facts: &Facts, sheet: &mut Findings<'_>) {
    // Only Redis reports its memory.
    let is_set_back = facts.memory.is_some() && facts.uptime.is_none() && facts.loading != Some(true);
    if !is_set_back || facts.never_forgets || running(facts) >= SET_BACK {
        return;
    }
    let age = duration::format(running(facts));
    let evidence = format!(
        "reports no possible uptime, as its clock was ahead when it started and was set back since: it is no older than \
         the {age} for which clients know it, and votes one `max_ttl` after the first of them"
    );
    sheet.note(Severity::Warning, Check::ClockStepped, evidence);
}

/// Returns whether the reported uptime is too long.
fn is_stepped(facts: &Facts, setting: &Setting) -> bool {
    let Some(uptime) = facts.uptime else { return false };
    let forgotten_for = |runs| forgotten_for(facts, runs, setting);
    let excess = uptime.saturating_sub(running(facts));
    let decides = forgotten_for(uptime).is_zero() && !forgotten_for(running(facts)).is_zero();
    excess >= STEPPED || (excess > APART && decides)
}

/// Returns whether a restart loses grants; `None` if that is unknown.
fn forgets(facts: &Facts) -> Option<bool> {
    match (facts.append_only?, facts.fsync) {
        (true, Some(Fsync::Always)) => Some(false),
        (true, Some(Fsync::EverySecond | Fsync::Never)) | (false, _) => Some(true),
        (true, None) => None,
    }
}

/// Returns the missing settings of a database that may lose grants, and the right ones; `None` for another
/// server.
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
    if facts.role != Some(Role::Master) || forgets(facts) != Some(true) || facts.never_forgets {
        return;
    }
    let database = database_settings(facts);
    let what = match (database, facts.fsync) {
        (Some((off, _)), _) => format!("a crash of its machine may lose granted locks ({off})"),
        (None, Some(Fsync::EverySecond)) if facts.append_only == Some(true) => {
            "a crash of its machine loses the last second or two (appendfsync everysec)".to_owned()
        }
        (None, Some(Fsync::Never)) if facts.append_only == Some(true) => {
            "a crash of its machine loses up to about half a minute (appendfsync no)".to_owned()
        }
        (None, _) => "a restart loses its locks (appendonly no)".to_owned(),
    };
    let set = database.map_or("`appendonly yes` and `appendfsync always`", |(_, set)| set);
    if setting.guarded() {
        let wait = duration::format(setting.quarantine.length());
        let evidence =
            format!("{what}; the restart guard keeps it from voting for {wait} after each restart");
        let cure = format!("keep the guard on; to avoid the wait, set {set}");
        sheet.cured(Severity::Note, Check::NotPersistent, evidence, cure);
    } else {
        let evidence = format!("{what}, and the restart guard is off");
        let cure = format!(
            "turn the restart guard on at every client, and wait until it lets the server vote; or set {set}"
        );
        sheet.cured(Severity::Unsafe, Check::NotPersistent, evidence, cure);
    }
}

/// Repeats what the operator says, or what the server's settings say against it.
fn never_forgets(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    if !facts.never_forgets {
        return;
    }
    if forgets(facts) == Some(true) && facts.role == Some(Role::Master) {
        let evidence = "never forgets by the operator's word (`?forgets=never`), and so votes right after a restart; its \
                        settings are those of a server that may lose granted locks";
        let cure = "right only for a service that keeps each write outside of the server; otherwise leave `?forgets=never` \
                    out, or set `appendonly yes` and `appendfsync always`";
        sheet.cured(Severity::Warning, Check::NeverForgets, evidence, cure);
    } else {
        let evidence = "never forgets by the operator's word (`?forgets=never`), and so votes right after a restart, failover \
                        or promotion";
        sheet.note(Severity::Note, Check::NeverForgets, evidence);
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

fn exposed_files(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    match &facts.exposure {
        None => {}
        Some(Exposure::Readable(evidence)) => {
            let evidence =
                format!("can be read by any user of this host, who can stop its locks: {evidence}");
            sheet.note(Severity::Warning, Check::ExposedFiles, evidence);
        }
        Some(Exposure::Writable(evidence)) => {
            let evidence =
                format!("can be changed by any user of this host, who can take locks away: {evidence}");
            sheet.note(Severity::Unsafe, Check::ExposedFiles, evidence);
        }
    }
}

fn rights(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    for refusal in &facts.refusals {
        let (severity, what) = match refusal.need {
            Feature::Locks => (Severity::Warning, "which every lock needs"),
            Feature::Fencing => (Severity::Warning, "which locks need unless fencing is off"),
            Feature::Speed => {
                (Severity::Note, "without which acquiring a lock costs the server twice the work")
            }
            Feature::Queue => (Severity::Note, "which waiting in a queue needs"),
            Feature::Offers => {
                (Severity::Note, "without which a lock takes two round trips from process to process")
            }
            Feature::Sharing => (Severity::Note, "which shared locks need"),
            Feature::Waiting => (Severity::Note, "without which waiters poll"),
        };
        let user = facts.user.as_deref().unwrap_or("…");
        let granted = |which: &str, rights: &str| {
            format!(
                "grant {which}: `ACL SETUSER {user} {rights}`; keep it by `CONFIG REWRITE`, or `ACL SAVE` with an ACL file: \
                 a restart undoes it otherwise"
            )
        };
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
                    "access the key of a lock".to_owned(),
                    "grant the keys of your locks, as in `~locks:*`, and run doctor with --key-prefix locks:"
                        .to_owned(),
                ),
                Some(keys) => (format!("access the keys {keys}"), granted("it", grant)),
                None if refusal.need == Feature::Offers => (
                    format!("run {} on its channels", refusal.command),
                    if has_channel_rights(facts) {
                        let channels =
                            Some(&**grant).filter(|grant| grant.starts_with('&')).unwrap_or("&PREFIX*");
                        granted("both", &format!("{channels} +subscribe +publish"))
                    } else {
                        granted("both", "+subscribe +publish")
                    },
                ),
                None => (format!("run {}", refusal.command), granted("it", grant)),
            },
        };
        let evidence = format!("does not let its user {barred}, {what} ({})", refusal.words);
        sheet.cured(severity, Check::MissingRight, evidence, cure);
    }
    // A command that is refused alone is also refused in a script, and is reported above.
    let reported = facts.refusals.iter().any(|refusal| needed_to_vote(refusal.need));
    if let (Some(Err(error)), false) = (&facts.lock, reported) {
        let cure = of_error(error.kind()).unwrap_or(Check::LockFails.cure());
        sheet.cured(Severity::Warning, Check::LockFails, format!("failed a test lock: {error:#}"), cure);
    }
}

/// Returns whether the server has permissions for single channels. Redis 6.0 does not.
fn has_channel_rights(facts: &Facts) -> bool {
    facts.software.as_ref().is_none_or(|software| software.name != "redis" || software.numbers() >= [6, 2, 0])
}

fn concerns(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    for concern in &facts.concerns {
        let severity = if concern.is_unsafe { Severity::Unsafe } else { Severity::Warning };
        sheet.cured(severity, Check::Store, &*concern.evidence, concern.cure);
    }
}

fn version(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    let Some(software) = &facts.software else { return };
    let numbers = software.numbers();
    let (name, version) = (software.name, &software.version);
    if name == "redis" && numbers < [6, 0, 0] {
        let evidence = format!("is redis {version}, which supports neither ACLs nor RESP3");
        sheet.note(Severity::Warning, Check::OldVersion, evidence);
    }
    if has_hole(name, numbers) {
        let evidence =
            format!("is {name} {version}: users that may run scripts can execute code (CVE-2025-49844)");
        sheet.note(Severity::Note, Check::KnownHole, evidence);
    }
}

/// The versions of Redis and Valkey that fix CVE-2025-49844.
const FIXED: [(&str, [u32; 3]); 8] = [
    ("redis", [6, 2, 20]),
    ("redis", [7, 2, 11]),
    ("redis", [7, 4, 6]),
    ("redis", [8, 0, 4]),
    ("redis", [8, 2, 2]),
    ("valkey", [7, 2, 11]),
    ("valkey", [8, 0, 6]),
    ("valkey", [8, 1, 4]),
];

/// A release series without a fixed version is vulnerable if it is older than the newest fixed one.
pub(super) fn has_hole(name: &str, version: [u32; 3]) -> bool {
    let fixed = || FIXED.iter().filter(|(software, _)| *software == name).map(|(_, version)| version);
    let line = |version: &[u32; 3]| [version[0], version[1]];
    match fixed().find(|fixed| line(fixed) == line(&version)) {
        Some(fixed) => version < *fixed,
        None => fixed().next_back().is_some_and(|last| version < *last),
    }
}

fn hints(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    let reported = facts.refusals.iter().any(|refusal| refusal.need == Feature::Waiting);
    if facts.hints == Some(false) && !reported {
        let evidence = "does not notify clients of changes (no RESP3, or no CLIENT TRACKING): waiters retry after pauses";
        sheet.note(Severity::Note, Check::NoHints, evidence);
    }
}

fn pace(facts: &Facts, setting: &Setting, sheet: &mut Findings<'_>) {
    let Some(trips) = RoundTrips::of(&facts.round_trips) else { return };
    let most = setting.ttl / 10;
    let limit = node_timeout(setting.node_timeout, Some(RoundTrip::first(trips.median)), setting.ttl);
    let took = format!(
        "answers within {} (median) and {} (99th percentile)",
        duration::format(trips.median),
        duration::format(trips.p99)
    );
    if trips.p99 > most {
        let evidence = format!("{took}: more than a tenth of the TTL of {}", duration::format(setting.ttl));
        sheet.note(Severity::Warning, Check::ShortTtl, evidence);
    } else if trips.p99 > limit {
        let evidence = format!("{took}: its node timeout is {}", duration::format(limit));
        sheet.note(Severity::Warning, Check::SlowNode, evidence);
    }
}

fn replicas(facts: &Facts, sheet: &mut Findings<'_>) {
    if facts.service.is_some() || facts.never_forgets {
        return;
    }
    if let (Some(count @ 1..), Some(Role::Master)) = (facts.replicas, facts.role) {
        let (counted_by, cure) = match facts.software.as_ref().map(|software| software.name) {
            Some("postgresql") => (
                "asynchronous ones in pg_stat_replication",
                "leave the restart guard on, which treats a promotion like a restart; or name them in \
                 `synchronous_standby_names`",
            ),
            Some("mariadb" | "mysql") => (
                "connected",
                "leave the restart guard on, which treats a promotion like a restart, and let nothing lead the \
                 address back to the old primary",
            ),
            Some(_) | None => ("connected_slaves", Check::Replicas.cure()),
        };
        let evidence = format!("has replicas ({counted_by}:{count}): one that is promoted may lack locks");
        sheet.cured(Severity::Warning, Check::Replicas, evidence, cure);
    }
}

/// A service has replicas on purpose. It needs a master that stops accepting writes when it is replaced.
fn two_masters(facts: &Facts, _: &Setting, sheet: &mut Findings<'_>) {
    if facts.service.is_some() && facts.falls_silent == Some(false) && facts.role == Some(Role::Master) {
        let evidence = "would keep voting together with its successor (min-replicas-to-write 0) until its Sentinels, or \
                        their silence, make clients leave it";
        sheet.note(Severity::Note, Check::TwoMasters, evidence);
    }
}

/// Reports a promotion whose time nothing records, because the restart guard is off.
fn unguarded(facts: &Facts, sheet: &mut Findings<'_>) {
    if facts.promoted == Some(true)
        && !facts.never_forgets
        && facts.role == Some(Role::Master)
        && facts.master_since.is_none()
    {
        let evidence = "was a replica and was promoted (master_replid2 is set): locks may not have been replicated to it";
        sheet.note(Severity::Warning, Check::Promoted, evidence);
    }
}

fn promoted(facts: &Facts, setting: &Setting, sheet: &mut Findings<'_>) {
    let Some(master_since) = facts.master_since.filter(|_| !facts.never_forgets) else { return };
    let (known, left) = (duration::format(master_since), quarantined(facts, setting));
    if left.is_zero() {
        let evidence =
            format!("was promoted at least {known} ago, and the locks that it may lack have expired since");
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

/// The share of `maxmemory` from which it counts as nearly full, in percent.
const NEARLY_FULL: u64 = 90;

fn memory_full(facts: &Facts, sheet: &mut Findings<'_>) {
    let Some(memory) = &facts.memory else { return };
    if let Some(limit @ 1..) = memory.limit
        && memory.policy == "noeviction"
        && memory.used >= limit / 100 * NEARLY_FULL
    {
        let evidence =
            format!("uses {} of {limit} bytes (noeviction): when full, it grants no locks", memory.used);
        sheet.note(Severity::Warning, Check::MemoryFull, evidence);
    }
}

fn untold(facts: &Facts, setting: &Setting, sheet: &mut Findings<'_>) {
    if facts.failure.is_some() {
        return;
    }
    let fsync_matters = !setting.guarded() && facts.append_only == Some(true);
    let missing = [
        (facts.role.is_none() && facts.unfit.is_none(), "its role"),
        (facts.identity.is_none() && facts.unfit.is_none(), "whether it is a separate server"),
        (facts.uptime.is_none(), "when it started"),
        (facts.replicas.is_none() && facts.role == Some(Role::Master), "whether it has replicas"),
        (facts.memory.is_none(), "whether it evicts keys"),
        (facts.append_only.is_none(), "whether it persists its data"),
        (fsync_matters && facts.fsync.is_none(), "when it syncs its data to disk (appendfsync)"),
        (facts.clock.is_none(), "its clock"),
        (facts.lock.is_none() && facts.role == Some(Role::Master), "whether a lock can be acquired"),
    ];
    let missing: Vec<_> = missing.into_iter().filter_map(|(untold, what)| untold.then_some(what)).collect();
    if !missing.is_empty() {
        let is_postgres = facts.software.as_ref().is_some_and(|software| software.name == "postgresql");
        let cure = if is_postgres { "grant the user the role `pg_monitor`" } else { Check::Untold.cure() };
        sheet.cured(
            Severity::Unknown,
            Check::Untold,
            format!("does not report {}", missing.join(", ")),
            cure,
        );
    }
}
