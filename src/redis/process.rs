//! Identifies the server process, and decides whether it may vote.

use std::time::Duration;

use super::error::{MEMBER, NO_MEMBER, failed};
use super::info::{Info, promoted, short, turns, uptime};
use super::settings::Membership;
use crate::node::{NodeError, NodeErrorKind};

/// The longest accepted `run_id`, in bytes. Redis and Valkey have 40 hexadecimal digits.
const LONGEST_RUN_ID: usize = 128;

/// Such a server grants locks that another master overwrites.
const ACTIVE_REPLICA: &str = "it is an active replica (role:active-replica): another master overwrites its locks; \
     use a server that is only a master";

/// What a server reports about its process.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Process {
    pub(super) run_id: String,
    /// How long it has been running, by its own wall clock.
    pub(super) uptime: Duration,
    /// Whether it reports no possible one, as its clock was set back after the start.
    pub(super) clock_set_back: bool,
    /// How often its event loop has run, if it counts that.
    pub(super) turns: Option<u64>,
    /// If it was promoted: its history ID since then.
    pub(super) history: Option<String>,
}

impl Process {
    /// Parses a reply to `INFO`. Only an independent master that has loaded its data may vote.
    pub(super) fn fit_to_vote(info: &Info<'_>, membership: Membership) -> Result<Process, NodeError> {
        let field = |name: &str| info.field(name).unwrap_or_default();
        let is = |name: &str, value: &str| field(name) == value;
        if is("redis_mode", "sentinel") || is("server_mode", "sentinel") {
            return unfit(
                NodeErrorKind::WrongServer,
                "it is a sentinel (redis_mode:sentinel), which stores no keys; use the master's address",
            );
        }
        let in_cluster =
            is("redis_mode", "cluster") || is("server_mode", "cluster") || is("cluster_enabled", "1");
        match membership {
            Membership::Alone if in_cluster => {
                return unfit(NodeErrorKind::WrongServer, MEMBER);
            }
            Membership::OfCluster if !in_cluster => {
                return unfit(NodeErrorKind::WrongServer, NO_MEMBER);
            }
            Membership::Alone | Membership::OfCluster => {}
        }
        match field("role") {
            "master" => {}
            "slave" | "replica" => {
                return unfit(
                    NodeErrorKind::ReadOnly,
                    "it is a replica (role:slave), which may lag behind its master; use the master's address",
                );
            }
            "active-replica" => return unfit(NodeErrorKind::WrongServer, ACTIVE_REPLICA),
            "" => {
                return unfit(
                    NodeErrorKind::WrongServer,
                    "it does not report its role (no role in its INFO), and only `role:master` votes",
                );
            }
            role => {
                let reason = format!("it reports the role {}, and only `role:master` votes", short(role));
                return unfit(NodeErrorKind::WrongServer, &reason);
            }
        }
        if is("loading", "1") {
            return Err(failed(NodeErrorKind::Busy, "it is still loading its data (loading:1)"));
        }
        let run_id = field("run_id");
        if !named(run_id) {
            return unfit(
                NodeErrorKind::Unsupported,
                "its INFO has no run_id, so a restart would go unnoticed; use Redis or Valkey",
            );
        }
        // A clock that was set back causes an implausible uptime. The minimum age is zero then, as if the
        // field were missing.
        let (uptime, clock_set_back) = uptime(info).map_or((Duration::ZERO, true), |uptime| (uptime, false));
        let history = (promoted(info) == Some(true)).then(|| history_in(info)).transpose()?;
        Ok(Process { run_id: run_id.into(), uptime, clock_set_back, turns: turns(info), history })
    }
}

/// Returns the history ID of the server's data, which changes with each promotion.
pub(super) fn history_in(info: &Info<'_>) -> Result<String, NodeError> {
    match info.field("master_replid") {
        Some(id) if named(id) => Ok(id.into()),
        Some(_) | None => unfit(
            NodeErrorKind::Unsupported,
            "its INFO has no master_replid, so a promotion would go unnoticed",
        ),
    }
}

fn unfit<T>(kind: NodeErrorKind, reason: &str) -> Result<T, NodeError> {
    Err(NodeError::Unfit { kind, reason: reason.into() })
}

/// Returns whether the ID is fit for messages and logs.
fn named(id: &str) -> bool {
    !id.is_empty() && id.len() <= LONGEST_RUN_ID && id.bytes().all(|b| b.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_mode:standalone\r\nrun_id:abc\r\nuptime_in_seconds:90\r\nloading:0\r\nrole:master\r\nmaster_replid:f00\r\nmaster_replid2:000\r\nsecond_repl_offset:-1\r\ncluster_enabled:0\r\n";

    fn fit_to_vote(info: &str, membership: Membership) -> Result<Process, NodeError> {
        Process::fit_to_vote(&Info::of(info), membership)
    }

    #[test]
    fn an_independent_master_may_vote() {
        let process = |history| Process { history, ..process("abc", 90) };
        assert_eq!(fit_to_vote(INFO, Membership::Alone), Ok(process(None)));
        for promotion in ["replid2:0a0", "replid2:000\r\nsecond_repl_offset:15"] {
            let info = INFO.replace("second_repl_offset:-1\r\n", "").replace("replid2:000", promotion);
            assert_eq!(fit_to_vote(&info, Membership::Alone), Ok(process(Some("f00".into()))), "{info}");
            let nameless = info.replace("replid:f00", "replid:");
            assert!(
                fit_to_vote(&nameless, Membership::Alone).is_err(),
                "another promotion would go unnoticed"
            );
        }
    }

    #[test]
    fn an_implausible_uptime_is_no_age() {
        let info = INFO.replace("seconds:90", "seconds:-5");
        assert_eq!(fit_to_vote(&info, Membership::Alone).unwrap().uptime, Duration::ZERO);
    }

    #[test]
    fn an_unfit_server_is_refused_with_the_reason() {
        for (have, instead, reason, lasts) in [
            ("role:master", "role:slave", "replica (role:slave)", true),
            ("redis_mode:standalone", "redis_mode:sentinel", "sentinel", true),
            ("cluster_enabled:0", "cluster_enabled:1", "cluster member", true),
            ("run_id:abc", "run_id:", "no run_id", true),
            ("run_id:abc", "run_id:a\x1b[2Jc", "no run_id", true),
            ("loading:0", "loading:1", "still loading", false),
            ("role:master", "role:active-replica", "another master overwrites", true),
            ("role:master", "role:king", "reports the role king,", true),
            ("role:master", "role:Master", "only `role:master` votes", true),
            ("role:master", "role:\x1b[2J", r"reports the role \u{1b}[2J,", true),
            ("role:master", "role:", "does not report its role", true),
            ("role:master", "nothing:1", "no role in its INFO", true),
        ] {
            let error = fit_to_vote(&INFO.replace(have, instead), Membership::Alone).unwrap_err();
            assert!(error.to_string().contains(reason) && error.is_permanent() == lasts, "{error:?}");
        }
    }

    #[test]
    fn only_cluster_members_vote_as_cluster_members() {
        let member = INFO.replace("cluster_enabled:0", "cluster_enabled:1");
        assert!(fit_to_vote(&member, Membership::OfCluster).is_ok());
        let cure = fit_to_vote(&member, Membership::Alone).unwrap_err().to_string();
        assert!(cure.contains("redis+cluster://"), "{cure}");
        let alone = fit_to_vote(INFO, Membership::OfCluster).unwrap_err();
        assert!(alone.to_string().contains("not a cluster member") && alone.is_permanent(), "{alone}");
        let replica = member.replace("role:master", "role:slave");
        assert!(fit_to_vote(&replica, Membership::OfCluster).is_err());
    }

    fn process(run_id: &str, uptime: u64) -> Process {
        let uptime = Duration::from_secs(uptime);
        Process { run_id: run_id.into(), uptime, clock_set_back: false, turns: None, history: None }
    }
}
