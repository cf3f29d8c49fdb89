//! What a server reports about itself, and whether it may vote.

use std::time::Duration;

use quorlock::{
    node::facts::{ClockReading, Facts, Fsync, Location, Memory, Role, Software},
    node::{NodeError, NodeErrorKind},
};
use tokio_postgres::{Error, Row};

use super::backend::Backend;
use crate::error::{failed, unfit};
use crate::request::micros;
use crate::url::{DatabaseUrl, Host};

/// The oldest supported version of PostgreSQL.
const OLDEST: i32 = 120_000;

/// Queries everything about the server in one round trip. The timeline is not from `pg_control_checkpoint()`,
/// which still reports the old one between a promotion and the next checkpoint.
pub(super) const SERVER_FACTS: &str = "
    SELECT current_setting('server_version_num')::int,
        current_setting('server_version'),
        pg_is_in_recovery(),
        (SELECT system_identifier FROM pg_control_system()),
        CASE WHEN pg_is_in_recovery() THEN NULL ELSE substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END,
        current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on',
        (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::int8,
        (extract(epoch FROM clock_timestamp()) * 1000000)::int8,
        current_user::text,
        current_database()::text,
        (SELECT oid || ' ' || current_setting('port') FROM pg_database WHERE datname = current_database()),
        (SELECT CASE WHEN current_setting('synchronous_standby_names') = '' THEN count(*)
            WHEN bool_or(sync_state IS NULL) THEN NULL
            ELSE count(*) FILTER (WHERE sync_state NOT IN ('sync', 'quorum')) END
            FROM pg_stat_replication),
        current_setting('synchronous_standby_names') <> '' AND NOT EXISTS (
            SELECT FROM pg_stat_replication WHERE coalesce(sync_state, 'sync') IN ('sync', 'quorum')),
        a.pid, a.usesysid, (extract(epoch FROM a.backend_start) * 1000000)::int8
    FROM pg_stat_get_activity(pg_backend_pid()) a";

/// What the server reports about itself.
pub(super) struct Server {
    pub(super) version: i32,
    pub(super) version_text: String,
    pub(super) backend: Backend,
    pub(super) in_recovery: bool,
    pub(super) system: i64,
    pub(super) timeline: Option<String>,
    pub(super) durable: bool,
    pub(super) started: i64,
    pub(super) clock: i64,
    pub(super) user: String,
    pub(super) database: String,
    /// The OID of the database, and the server's port.
    pub(super) spot: String,
    /// The number of asynchronous standbys; `None` if the user may not know which are.
    pub(super) replicas: Option<i64>,
    /// Whether no standby is there that commits wait for.
    pub(super) lacks_standby: bool,
}

impl Server {
    pub(super) fn read(row: &Row) -> Result<Server, Error> {
        Ok(Server {
            version: row.try_get(0)?,
            version_text: row.try_get(1)?,
            in_recovery: row.try_get(2)?,
            system: row.try_get(3)?,
            timeline: row.try_get(4)?,
            durable: row.try_get(5)?,
            started: row.try_get(6)?,
            clock: row.try_get(7)?,
            user: row.try_get(8)?,
            database: row.try_get(9)?,
            spot: row.try_get(10)?,
            replicas: row.try_get(11)?,
            lacks_standby: row.try_get(12)?,
            backend: Backend::read(row, 13)?,
        })
    }

    /// Checks that the server may vote.
    pub(super) fn check(&self, greeted_by: i32) -> Result<(), NodeError> {
        if self.version < OLDEST {
            let words = format!(
                "it is PostgreSQL {}, and the oldest supported version is 12: update it",
                self.version_text
            );
            return Err(unfit(NodeErrorKind::Unsupported, words));
        }
        if self.in_recovery {
            let words = "it is a standby, which is read-only: give the address of the primary";
            return Err(unfit(NodeErrorKind::ReadOnly, words));
        }
        if self.backend.pid() != greeted_by {
            let words = format!(
                "a pooler is in between (the greeting is of process {greeted_by}, and process {} answers), which may give \
                 each statement to another process: give the server's own address; a node keeps few connections",
                self.backend.pid()
            );
            return Err(unfit(NodeErrorKind::WrongServer, words));
        }
        if self.lacks_standby {
            // No timeout of the server ends that wait, after which the commit would count without the standby.
            let words = "its commits wait for a synchronous standby, and none is connected: start one, or take it from \
                         `synchronous_standby_names`";
            return Err(failed(NodeErrorKind::Busy, words));
        }
        Ok(())
    }

    /// The server, as one voter. It changes with each promotion and, if a crash may lose acknowledged writes,
    /// with each start.
    pub(super) fn voter(&self) -> String {
        let timeline = self.timeline.as_deref().unwrap_or("?");
        if self.durable {
            format!("{}:{timeline}", self.system.cast_unsigned())
        } else {
            format!("{}:{timeline}:{}", self.system.cast_unsigned(), self.started)
        }
    }

    /// Where its data are, as far as the server itself says: what a copy of the data does not carry.
    pub(super) fn place(&self) -> String {
        format!("{} {}", self.voter(), self.spot)
    }

    /// The age of the server's data: since the cluster was created (the seconds since 1970 are part of its
    /// identifier) or, if a crash may have lost something, since the start.
    pub(super) fn data_age(&self) -> Duration {
        let since = if self.durable {
            (self.system.cast_unsigned() >> 32) * 1_000_000
        } else {
            self.started.cast_unsigned()
        };
        Duration::from_micros(self.clock.cast_unsigned().saturating_sub(since))
    }

    pub(super) fn facts(&self, url: &DatabaseUrl, wall: Duration, round_trip: Duration) -> Facts {
        let mut facts = Facts::default();
        facts.software = Some(Software::new("postgresql", self.version_text.clone()));
        facts.role = Some(if self.in_recovery { Role::Replica } else { Role::Master });
        facts.append_only = Some(true);
        facts.fsync = Some(if self.durable { Fsync::Always } else { Fsync::Never });
        facts.replicas = self.replicas.and_then(|count| u64::try_from(count).ok());
        facts.memory = Some(Memory::new(0, None, "noeviction"));
        facts.hints = Some(true);
        facts.user = Some(self.user.as_str().into());
        facts.round_trips.push(round_trip);
        let ours = wall + round_trip / 2;
        facts.clock = Some(ClockReading::new(self.clock.saturating_sub(micros(ours)), round_trip / 2));
        let host = match &url.host {
            Host::Tcp(host) => Some(host.clone()),
            Host::Folder(_) => None,
        };
        facts.place =
            Some(Location::new(host, Vec::new(), url.encrypted || matches!(url.host, Host::Folder(_))));
        facts
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn server() -> Server {
        Server {
            version: 150_000,
            version_text: "15.0".into(),
            backend: Backend::of(7),
            in_recovery: false,
            system: -1,
            timeline: Some("0000000A".into()),
            durable: true,
            started: 5,
            clock: 9,
            user: "app".into(),
            database: "orders".into(),
            spot: "16384 5432".into(),
            replicas: Some(0),
            lacks_standby: false,
        }
    }

    #[test]
    fn a_server_that_is_too_old_is_refused_by_its_version() {
        assert!(server().check(7).is_ok());
        let old = Server { version: 110_022, version_text: "11.22".into(), ..server() };
        let refused = old.check(7).unwrap_err();
        assert_eq!(refused.kind(), NodeErrorKind::Unsupported);
        assert!(
            refused.to_string().contains("11.22") && refused.to_string().contains("update it"),
            "{refused}"
        );
    }

    #[test]
    fn a_history_is_a_timeline_and_a_start_if_not_durable() {
        assert_eq!(server().voter(), "18446744073709551615:0000000A");
        assert_eq!(Server { durable: false, ..server() }.voter(), "18446744073709551615:0000000A:5");
    }
}
