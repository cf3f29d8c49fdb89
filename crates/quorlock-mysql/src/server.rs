//! What a server reports about itself, and whether it may vote. Pure.

use std::collections::HashMap;
use std::time::Duration;

use quorlock::protocol::micros;
use quorlock::{
    node::facts::ClockReading,
    node::{NodeError, NodeErrorKind, Reason},
};

use crate::table::LOCKS;

/// What a server reports about itself.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    variables: HashMap<String, String>,
    /// The account as which the client was authenticated: `locks@%`.
    pub(crate) user: String,
    pub(crate) version: String,
    /// The server's clock, in microseconds since 1970.
    pub(crate) now: u64,
    pub(crate) uptime: Duration,
    /// The number of replicas; `None` if the server does not report it.
    pub(crate) replicas: Option<u64>,
    /// The number of threads that carry out what other servers have written; `None` if the server does not report it.
    pub(crate) replicating: Option<u64>,
    /// Whether it was told to follow another server since its start.
    follows: bool,
    /// The server from which it replicates.
    pub(crate) replicates_from: Option<String>,
}

/// Start times that differ by no more than this are the same: servers report their uptime in whole seconds.
/// In microseconds.
const ONE_START: u64 = 3_000_000;

impl Server {
    /// The relevant settings. A server omits those that it does not have.
    pub(crate) const VARIABLES: [&str; 14] = [
        "version",
        "read_only",
        "super_read_only",
        "innodb_read_only",
        "innodb_flush_log_at_trx_commit",
        "innodb_doublewrite",
        "log_bin",
        "sync_binlog",
        "server_uuid",
        "server_id",
        "gtid_slave_pos",
        "hostname",
        "port",
        "wsrep_on",
    ];

    const ID: [&str; 4] = ["server_id", "hostname", "port", "server_uuid"];

    /// Creates it from settings and status, both with names in lower case.
    pub(crate) fn new(variables: HashMap<String, String>, user: String, now: u64) -> Server {
        let get = |name: &str| variables.get(name).cloned();
        let count = |name: &str| variables.get(name).and_then(|count| count.parse().ok());
        Server {
            user,
            version: get("version").unwrap_or_default(),
            now,
            uptime: Duration::from_secs(count("uptime").unwrap_or_default()),
            replicas: count("slaves_connected").or_else(|| count("replicas_connected")),
            replicating: count("slaves_running"),
            follows: get("slave_heartbeat_period").is_some_and(|period| period.parse() != Ok(0.0)),
            replicates_from: None,
            variables,
        }
    }

    /// The server, by what differs between a primary and its replicas, and mostly between a server and its copy.
    pub(crate) fn id(&self) -> String {
        let known = Server::ID.iter().filter_map(|name| self.variables.get(*name));
        known.map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    /// Returns the statement for where the data are: the server, and when the table of locks was created. It is what
    /// a copy does not carry and a restore changes.
    pub(crate) fn place(&self) -> String {
        let known = Server::ID.iter().filter(|name| self.variables.contains_key(**name));
        let known: Vec<String> = known.map(|name| format!("@@GLOBAL.{name}")).collect();
        format!(
            "CONCAT_WS(' ', {}, (SELECT CREATE_TIME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND \
             TABLE_NAME = '{LOCKS}'))",
            known.join(", ")
        )
    }

    /// Returns the statement for what the server has carried out for other servers, where it has one.
    pub(crate) fn followed(&self) -> &'static str {
        if self.variables.contains_key("gtid_slave_pos") { "@@GLOBAL.gtid_slave_pos" } else { "''" }
    }

    /// Whether it might be a replica of another server, as far as it says to every user: it was one, or only
    /// privileged users may know.
    pub(crate) fn may_replicate(&self) -> bool {
        let was = self.variables.get("gtid_slave_pos").is_some_and(|position| !position.is_empty());
        self.replicating != Some(0) || self.follows || was
    }

    fn is(&self, variable: &str, values: &[&str]) -> bool {
        self.variables
            .get(variable)
            .is_some_and(|value| values.iter().any(|wanted| value.eq_ignore_ascii_case(wanted)))
    }

    pub(crate) fn is_mariadb(&self) -> bool {
        self.version.to_ascii_lowercase().contains("mariadb")
    }

    pub(crate) fn program(&self) -> &'static str {
        if self.is_mariadb() { "mariadb" } else { "mysql" }
    }

    /// The quoted account `'locks'@'%'`, for statements.
    pub(crate) fn quoted_user(&self) -> String {
        let (user, host) = self.user.rsplit_once('@').unwrap_or((&self.user, "%"));
        format!("'{user}'@'{host}'")
    }

    /// Whether a commit is on disk before it is acknowledged.
    pub(crate) fn durable(&self) -> bool {
        let flushes = self.is("innodb_flush_log_at_trx_commit", &["1", "3"]);
        let whole_pages = !self.is("innodb_doublewrite", &["OFF", "0", "DETECT_ONLY"]);
        // A crash rolls back what the binary log lacks.
        let logs = !self.is("log_bin", &["ON", "1"]) || self.is("sync_binlog", &["1"]);
        flushes && whole_pages && logs
    }

    /// When the server started, by its clock.
    pub(crate) fn started(&self) -> u64 {
        self.now.saturating_sub(micros(self.uptime))
    }

    /// Whether that was its last start.
    pub(crate) fn is_start(&self, started: u64) -> bool {
        self.started().abs_diff(started) <= ONE_START
    }

    pub(crate) fn is_replica(&self) -> bool {
        self.replicates_from.is_some() || self.takes_no_writes()
    }

    fn takes_no_writes(&self) -> bool {
        // MariaDB uses words for it since 12.0.
        let read_only = |name| self.variables.contains_key(name) && !self.is(name, &["OFF", "0", "NO"]);
        ["read_only", "super_read_only", "innodb_read_only"].into_iter().any(read_only)
    }

    /// The offset of its clock from ours, which showed `wall` when it was queried.
    pub(crate) fn reading(&self, wall: Duration, round_trip: Duration) -> ClockReading {
        let [theirs, ours] = [self.now, micros(wall.saturating_add(round_trip / 2))]
            .map(|time| i64::try_from(time).unwrap_or(i64::MAX));
        ClockReading::new(theirs.saturating_sub(ours), round_trip / 2)
    }

    /// Refuses a server that may not vote.
    pub(crate) fn check(&self) -> Result<(), NodeError> {
        let unfit = |kind, words: String| Err(NodeError::Unfit { kind, reason: Reason::new(words) });
        let (program, version) = (self.program(), &self.version);
        let mut numbers =
            version.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
        let found = [numbers.next(), numbers.next()].map(Option::unwrap_or_default);
        let least = if self.is_mariadb() { [10, 5] } else { [8, 0] };
        if found < least {
            let [major, minor] = least;
            return unfit(
                NodeErrorKind::Unsupported,
                format!("is {program} {version}, which is too old: use {major}.{minor} or newer"),
            );
        }
        if self.is("wsrep_on", &["ON", "1"]) {
            return unfit(
                NodeErrorKind::WrongServer,
                "is a member of a Galera cluster, whose members may acknowledge a write before the others have it on disk: use a \
                 server of its own"
                    .to_owned(),
            );
        }
        if let Some(source) = &self.replicates_from {
            return unfit(NodeErrorKind::ReadOnly, format!("is a replica of {source}: name the primary"));
        }
        if self.takes_no_writes() {
            return unfit(
                NodeErrorKind::ReadOnly,
                "takes no writes (`read_only`): name the primary, or set `read_only` to OFF".to_owned(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(settings: &[(&str, &str)]) -> Server {
        let usual = [
            ("version", "10.11.19-MariaDB"),
            ("innodb_flush_log_at_trx_commit", "1"),
            ("innodb_doublewrite", "ON"),
            ("log_bin", "OFF"),
            ("sync_binlog", "0"),
            ("read_only", "OFF"),
            ("uptime", "100"),
        ];
        let variables =
            usual.iter().chain(settings).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Server::new(variables.collect(), "locks@%".to_owned(), 1_000_000_000)
    }

    #[test]
    fn an_unfit_server_is_refused_with_a_remedy() {
        assert!(server(&[]).check().is_ok());
        assert!(server(&[("version", "8.0.36")]).check().is_ok());
        for (settings, words) in [
            (
                &[("version", "10.4.30-MariaDB")][..],
                "is mariadb 10.4.30-MariaDB, which is too old: use 10.5 or newer",
            ),
            (&[("version", "5.7.44")], "is mysql 5.7.44, which is too old: use 8.0 or newer"),
            (
                &[("read_only", "ON")],
                "takes no writes (`read_only`): name the primary, or set `read_only` to OFF",
            ),
            (
                &[("read_only", "NO_LOCK_NO_ADMIN")],
                "takes no writes (`read_only`): name the primary, or set `read_only` to OFF",
            ),
        ] {
            let error = server(settings).check().unwrap_err();
            assert!(error.is_permanent() && !error.may_have_acted());
            assert_eq!(error.to_string(), words);
        }
        let galera = server(&[("wsrep_on", "ON")]).check().unwrap_err();
        assert_eq!(galera.kind(), NodeErrorKind::WrongServer);
        let mut copy = server(&[]);
        copy.replicates_from = Some("db-1".to_owned());
        assert_eq!(copy.check().unwrap_err().to_string(), "is a replica of db-1: name the primary");
    }

    #[test]
    fn three_settings_make_commits_durable() {
        assert!(server(&[]).durable());
        assert!(server(&[("log_bin", "ON"), ("sync_binlog", "1")]).durable());
        for forgets in [
            &[("innodb_flush_log_at_trx_commit", "2")][..],
            &[("innodb_flush_log_at_trx_commit", "0")],
            &[("innodb_doublewrite", "OFF")],
            &[("log_bin", "ON")],
        ] {
            assert!(!server(forgets).durable(), "{forgets:?}");
        }
    }

    #[test]
    fn a_start_is_recognised() {
        let server = server(&[]);
        assert_eq!(server.started(), 900_000_000);
        assert!(server.is_start(902_000_000) && server.is_start(898_000_000));
        assert!(!server.is_start(904_000_001));
    }

    #[test]
    fn a_user_is_quoted_for_statements() {
        assert_eq!(server(&[]).quoted_user(), "'locks'@'%'");
    }
}
