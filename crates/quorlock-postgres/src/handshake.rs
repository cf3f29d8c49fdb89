//! What is found out and set up over a new connection, before its first vote.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use quorlock::protocol::Moment;
use quorlock::{
    node::facts::{ClockReading, Facts, Fsync, Location, Memory, Role, Software},
    node::{Access, Identity, NodeError, NodeErrorKind, Seams},
};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use crate::connect::{Opened, open};
use crate::error::{failed, of_statement, reason, unfit};
use crate::request::{Statements, micros};
use crate::session::Session;
use crate::shedlock;
use crate::url::{DatabaseUrl, Host};

/// A statement that waits for a row is given up after this part of the time that a round waits for a node.
const LOCK_PART: u32 = 2;
/// How long a round waits for a node, unless that is set.
const NODE_LIMIT: Duration = Duration::from_secs(1);
/// How long making a connection may take in all, unless that is set.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// For how long the end of a predecessor is waited for.
const PREDECESSOR_LIMIT: Duration = Duration::from_millis(500);
/// The oldest version that it works with.
const OLDEST: i32 = 120_000;
/// The version of the schema that this program makes and knows.
const VERSION: i32 = 1;

/// What the connections of a node have in common.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) url: DatabaseUrl,
    pub(crate) seams: Seams,
    /// The latest timeline of each system that was met.
    timelines: Arc<Mutex<HashMap<i64, u32>>>,
}

impl Settings {
    pub(crate) fn new(url: DatabaseUrl, seams: &Seams) -> Settings {
        Settings { url, seams: seams.clone(), timelines: Arc::default() }
    }

    /// How long a statement may take.
    pub(crate) fn limit(&self) -> Duration {
        self.seams.node_timeout().unwrap_or(NODE_LIMIT).max(Duration::from_millis(20))
    }

    fn connect_timeout(&self) -> Duration {
        self.seams.connect_timeout().unwrap_or(CONNECT_LIMIT)
    }
}

/// What each connection holds in the server for as long as it lives: a number that its successor waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Witness(i64);

/// Connects, looks whether the server may vote, and sees to it that nothing of the predecessor is carried out any
/// more, within a bound.
///
/// # Errors
///
/// Why there is no connection.
pub(crate) async fn connect(
    settings: &Settings,
    predecessor: &mut Option<Witness>,
) -> Result<(Session, Facts), NodeError> {
    let clock = settings.seams.clock();
    let limit = settings.connect_timeout();
    let connecting = Box::pin(greet(settings, predecessor));
    match select(connecting, clock.sleep_until(clock.now() + limit)).await {
        Either::Left((connected, _)) => connected,
        Either::Right(_) => {
            let reason = format!("no connection within {limit:?}").into();
            Err(NodeError::Unreachable { reason })
        }
    }
}

async fn greet(
    settings: &Settings,
    predecessor: &mut Option<Witness>,
) -> Result<(Session, Facts), NodeError> {
    let Opened { client, mut carrier, greeted_by } = open(&settings.url, &settings.seams).await?;
    let (session, facts) = {
        let work = Box::pin(introduce(settings, &client, greeted_by, predecessor));
        let carrying = Box::pin(futures::future::poll_fn(|context| {
            loop {
                match carrier.poll_message(context) {
                    std::task::Poll::Ready(Some(Ok(_))) => {}
                    std::task::Poll::Ready(Some(Err(error))) => return std::task::Poll::Ready(Some(error)),
                    std::task::Poll::Ready(None) => return std::task::Poll::Ready(None),
                    std::task::Poll::Pending => return std::task::Poll::Pending,
                }
            }
        }));
        match select(work, carrying).await {
            Either::Left((introduced, _)) => introduced?,
            // What it said first is in the answer to the work.
            Either::Right((ended, work)) => {
                work.await?;
                let words = "the connection ended while it began";
                let reason = ended.map_or_else(|| words.into(), |error| reason(words, &error));
                return Err(NodeError::Unreachable { reason });
            }
        }
    };
    let Introduced { identity, statements, shedlock, witness, round_trip } = session;
    *predecessor = Some(witness);
    Ok((Session { client: Arc::new(client), carrier, statements, shedlock, identity, round_trip }, facts))
}

struct Introduced {
    identity: Arc<Identity>,
    statements: Statements,
    shedlock: Option<shedlock::Prepared>,
    witness: Witness,
    round_trip: Duration,
}

async fn introduce(
    settings: &Settings,
    client: &Client,
    greeted_by: i32,
    predecessor: &mut Option<Witness>,
) -> Result<(Introduced, Facts), NodeError> {
    let clock = settings.seams.clock();
    client.batch_execute(&setting_up(settings.limit())).await.map_err(before)?;
    let sent = clock.now();
    let wall = clock.wall();
    let row = client.query_one(QUESTIONS, &[]).await.map_err(before)?;
    let round_trip = clock.now().since(sent);
    let server = Server::read(&row).map_err(before)?;
    let mut facts = server.facts(&settings.url, wall, round_trip);
    server.check(greeted_by)?;
    let identity = server.identity();
    settings.check_timeline(&server)?;
    if let Some(layout) = &settings.url.shedlock {
        return introduce_shedlock(settings, client, layout, (server, sent, round_trip, facts), predecessor)
            .await;
    }
    if !server.has_schema {
        create(client, &server).await?;
    }
    check_schema(client).await?;
    if let Some(gone) = *predecessor
        && !end(client, gone, settings).await?
    {
        tracing::warn!(
            node = %settings.url,
            "the process that served the connection before does not end; what it does late is refused by tombstones"
        );
    }
    let witness = Witness(settings.seams.entropy().next_u64().cast_signed());
    let told: [&(dyn ToSql + Sync); 2] = [&witness.0, &identity];
    let channel = format!("quorlock_{:016x}", witness.0);
    let listen = format!("LISTEN quorlock; LISTEN {channel}; SELECT quorlock.sweep(100)");
    let (begun, statements, listening) = futures::join!(
        client
            .query_one("SELECT pg_try_advisory_lock($1), quorlock.known_since($2), quorlock.clock()", &told),
        Statements::prepare(client, channel),
        client.batch_execute(&listen)
    );
    let begun = begun.map_err(before)?;
    let statements = statements.map_err(before)?;
    listening.map_err(before)?;
    let since: i64 = begun.try_get(1).map_err(before)?;
    let now: i64 = begun.try_get(2).map_err(before)?;
    let age = Duration::from_micros(u64::try_from(now.saturating_sub(since)).unwrap_or_default());
    note_max_ttl(settings, client, &mut facts).await?;
    facts.identity = Some(identity.as_str().into());
    facts.uptime = Some(age);
    let identity = Arc::new(Identity::new(identity, sent, age));
    Ok((Introduced { identity, statements, shedlock: None, witness, round_trip }, facts))
}

/// The same where locks are rows of `ShedLock`'s table, beside which nothing is noted.
async fn introduce_shedlock(
    settings: &Settings,
    client: &Client,
    layout: &shedlock::Layout,
    (server, sent, round_trip, mut facts): (Server, Moment, Duration, Facts),
    predecessor: &mut Option<Witness>,
) -> Result<(Introduced, Facts), NodeError> {
    let prepared = layout.prepare(client, settings.seams.clock(), &mut facts).await.map_err(unsent)?;
    if let Some(gone) = *predecessor
        && !end(client, gone, settings).await?
    {
        let words = "the process that served the connection before does not end, and the table has no tombstones \
                     against what it does late: end it by `pg_terminate_backend`";
        return Err(NodeError::Unreachable { reason: words.into() });
    }
    let witness = Witness(settings.seams.entropy().next_u64().cast_signed());
    let locked = client.query_one("SELECT pg_try_advisory_lock($1)", &[&witness.0]).await;
    locked.map_err(before)?;
    let (identity, age) = (server.identity(), server.data_age());
    facts.identity = Some(identity.as_str().into());
    facts.uptime = Some(age);
    facts.hints = Some(false);
    let (identity, statements) = (Arc::new(Identity::new(identity, sent, age)), Statements::none());
    Ok((Introduced { identity, statements, shedlock: Some(prepared), witness, round_trip }, facts))
}

/// What holds for the session. The server's own time limits come before those of the client, so that one row
/// that another transaction keeps does not stop all that is asked behind it. All is found by its key: a plan that scans
/// a small table, or makes a bitmap of an index, reads every old version of its rows again and again.
fn setting_up(limit: Duration) -> String {
    let lock = (limit / LOCK_PART).as_millis().max(1);
    let statement = (limit * 3 / 4).as_millis().max(1);
    format!(
        "SET statement_timeout = {statement}; SET lock_timeout = {lock}; SET idle_in_transaction_session_timeout = {};
         SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off;
         SET default_transaction_deferrable = off; SET client_min_messages = error; SET plan_cache_mode = force_generic_plan;
         SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off;
         SET DateStyle = ISO; SET bytea_output = hex; SET search_path = pg_catalog;
         SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
        limit.as_millis().max(1)
    )
}

/// All that is asked of the server, in one round trip. Not `pg_control_checkpoint()` for the timeline: that still
/// has the old one between a promotion and the next checkpoint.
const QUESTIONS: &str = "
    SELECT current_setting('server_version_num')::int,
        current_setting('server_version'),
        pg_backend_pid(),
        pg_is_in_recovery(),
        (SELECT system_identifier FROM pg_control_system()),
        CASE WHEN pg_is_in_recovery() THEN NULL ELSE substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END,
        current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on',
        (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::int8,
        (extract(epoch FROM clock_timestamp()) * 1000000)::int8,
        to_regnamespace('quorlock') IS NOT NULL,
        current_user::text,
        current_database()::text,
        (SELECT count(*) FROM pg_stat_replication WHERE sync_state IS DISTINCT FROM 'sync'
            AND sync_state IS DISTINCT FROM 'quorum')";

/// What the server says of itself.
struct Server {
    version: i32,
    version_text: String,
    pid: i32,
    in_recovery: bool,
    system: i64,
    timeline: Option<String>,
    durable: bool,
    started: i64,
    clock: i64,
    has_schema: bool,
    user: String,
    database: String,
    replicas: i64,
}

impl Server {
    fn read(row: &Row) -> Result<Server, Error> {
        Ok(Server {
            version: row.try_get(0)?,
            version_text: row.try_get(1)?,
            pid: row.try_get(2)?,
            in_recovery: row.try_get(3)?,
            system: row.try_get(4)?,
            timeline: row.try_get(5)?,
            durable: row.try_get(6)?,
            started: row.try_get(7)?,
            clock: row.try_get(8)?,
            has_schema: row.try_get(9)?,
            user: row.try_get(10)?,
            database: row.try_get(11)?,
            replicas: row.try_get(12)?,
        })
    }

    /// Whether it may vote.
    fn check(&self, greeted_by: i32) -> Result<(), NodeError> {
        if self.version < OLDEST {
            let words = format!(
                "it is PostgreSQL {}, and 12 is the oldest that can be a node: update it",
                self.version_text
            );
            return Err(unfit(NodeErrorKind::Unsupported, words));
        }
        if self.in_recovery {
            let words = "it is a standby, and takes no writes: give the address of the primary";
            return Err(unfit(NodeErrorKind::ReadOnly, words));
        }
        if self.pid != greeted_by {
            let words = format!(
                "a pooler is in between (the greeting is of process {greeted_by}, and process {} answers), which may give \
                 each statement to another process: give the server's own address; a node keeps few connections",
                self.pid
            );
            return Err(unfit(NodeErrorKind::WrongServer, words));
        }
        Ok(())
    }

    /// The history of its data. It changes with each promotion; and where a crash may lose what was answered, with
    /// each start.
    fn identity(&self) -> String {
        let timeline = self.timeline.as_deref().unwrap_or("?");
        if self.durable {
            format!("{}:{timeline}", self.system.cast_unsigned())
        } else {
            format!("{}:{timeline}:{}", self.system.cast_unsigned(), self.started)
        }
    }

    /// How far its data reach back: to when the cluster was made, whose seconds since 1970 are in its identifier; or
    /// to the start, where a crash may have lost something.
    fn data_age(&self) -> Duration {
        let since = if self.durable {
            (self.system.cast_unsigned() >> 32) * 1_000_000
        } else {
            self.started.cast_unsigned()
        };
        Duration::from_micros(self.clock.cast_unsigned().saturating_sub(since))
    }

    fn facts(&self, url: &DatabaseUrl, wall: Duration, round_trip: Duration) -> Facts {
        let mut facts = Facts::default();
        facts.software = Some(Software::new("postgresql", self.version_text.clone()));
        facts.role = Some(if self.in_recovery { Role::Replica } else { Role::Master });
        facts.append_only = Some(true);
        facts.fsync = Some(if self.durable { Fsync::Always } else { Fsync::Never });
        facts.replicas = u64::try_from(self.replicas).ok();
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

impl Settings {
    /// A server with an earlier timeline than was met here is one that another has taken the place of.
    fn check_timeline(&self, server: &Server) -> Result<(), NodeError> {
        let Some(timeline) =
            server.timeline.as_deref().and_then(|digits| u32::from_str_radix(digits, 16).ok())
        else {
            return Ok(());
        };
        let mut timelines = self.timelines.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = timelines.entry(server.system).or_insert(timeline);
        if timeline < *latest {
            let words = format!(
                "it is a primary that was replaced: its timeline is {timeline}, and {latest} was met here before; stop it, \
                 or make it a standby of its successor"
            );
            return Err(unfit(NodeErrorKind::WrongServer, words));
        }
        *latest = timeline;
        Ok(())
    }
}

/// Creates the schema.
async fn create(client: &Client, server: &Server) -> Result<(), NodeError> {
    // One client at a time: the others find it made.
    let script = format!(
        "BEGIN; SET LOCAL statement_timeout = '5s'; SET LOCAL lock_timeout = '5s'; SELECT pg_advisory_xact_lock(8102099357864587376);
         {}; COMMIT",
        crate::SCHEMA
    );
    let Err(error) = client.batch_execute(&script).await else { return Ok(()) };
    drop(client.batch_execute("ROLLBACK").await);
    let code = error.code().cloned();
    if code == Some(SqlState::DUPLICATE_SCHEMA) {
        return Ok(());
    }
    if code == Some(SqlState::INSUFFICIENT_PRIVILEGE) {
        let (user, database) = (quoted(&server.user), quoted(&server.database));
        let words = format!(
            "there is no schema `quorlock` in the database yet, and the user may not create it: `GRANT CREATE ON DATABASE \
             {database} TO {user}` for the first use, or run the script of docs/postgres.md as another user and `GRANT \
             USAGE ON SCHEMA quorlock TO {user}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA quorlock TO \
             {user}`"
        );
        let reason = reason(words, &error);
        return Err(NodeError::Failed { kind: NodeErrorKind::PermissionDenied(Access::Operation), reason });
    }
    Err(before(error))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The columns of all tables, as the script makes them.
const COLUMNS: &str = "histories.name:text histories.since:bigint intents.expires:bigint intents.key:bytea \
                       intents.waiter:bytea locks.buried:bigint locks.counter:bigint locks.expires:bigint locks.key:bytea \
                       locks.number:bigint locks.queued:boolean locks.released:bigint locks.token:bytea \
                       locks.told:bigint locks.wanted:smallint max_ttls.expires:bigint \
                       max_ttls.millis:bigint max_ttls.prefix:bytea meta.swept:bytea meta.version:integer \
                       readers.attempt:bytea readers.expires:bigint readers.key:bytea readers.token:bytea \
                       tombstones.attempt:bytea tombstones.expires:bigint tombstones.key:bytea \
                       waiters.channel:text waiters.context:bytea waiters.expires:bigint waiters.key:bytea waiters.since:bigint \
                       waiters.turn_key:bytea waiters.waiter:bytea";

/// Looks whether the schema is the one that this program makes.
async fn check_schema(client: &Client) -> Result<(), NodeError> {
    let columns = client.query_one(
        "SELECT string_agg(c.relname || '.' || a.attname || ':' || format_type(a.atttypid, NULL), ' '
                ORDER BY c.relname COLLATE \"C\", a.attname COLLATE \"C\"),
            coalesce(bool_and(c.relpersistence = 'p'), false)
         FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
         WHERE c.relnamespace = to_regnamespace('quorlock') AND c.relkind IN ('r', 'p')",
        &[],
    );
    let version = client.query_opt("SELECT version FROM quorlock.meta", &[]);
    let (columns, version) = futures::join!(columns, version);
    let columns = columns.map_err(before)?;
    let (found, logged): (Option<String>, bool) =
        (columns.try_get(0).map_err(before)?, columns.try_get(1).map_err(before)?);
    let version: Option<i32> = match version {
        Ok(row) => row.map(|row| row.try_get(0)).transpose().map_err(before)?,
        Err(error)
            if [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_COLUMN]
                .iter()
                .any(|code| error.code() == Some(code)) =>
        {
            None
        }
        Err(error) => return Err(before(error)),
    };
    if let Some(newer) = version.filter(|version| *version > VERSION) {
        let words = format!(
            "the schema `quorlock` there is of version {newer}, made by a newer program, and this one knows version \
             {VERSION}: update this program"
        );
        return Err(failed(NodeErrorKind::Unsupported, words));
    }
    if version != Some(VERSION) || found.as_deref() != Some(COLUMNS) {
        let words = "the schema `quorlock` there is not the one that this program makes: rename it, or drop it while no \
                     lock is held, and it is made anew on the next use";
        return Err(failed(NodeErrorKind::Misconfigured, words));
    }
    if !logged {
        let words = "a table of the schema `quorlock` is unlogged, and is emptied by a crash: `ALTER TABLE … SET LOGGED`";
        return Err(failed(NodeErrorKind::Misconfigured, words));
    }
    Ok(())
}

/// Ends the backend of the connection before this one, and waits until it has ended: nothing that was sent to it
/// is carried out after that. Says whether it has ended within a bound: it has not where it was stopped.
async fn end(client: &Client, Witness(number): Witness, settings: &Settings) -> Result<bool, NodeError> {
    let bits = number.cast_unsigned();
    let halves = [bits >> 32, bits & u64::from(u32::MAX)].map(|half| u32::try_from(half).unwrap_or_default());
    let rows = client
        .query(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
                AND classid = $1 AND objid = $2 AND pid <> pg_backend_pid()",
            &[&halves[0], &halves[1]],
        )
        .await
        .map_err(before)?;
    if rows.is_empty() {
        return Ok(true);
    }
    let clock = settings.seams.clock();
    let until = clock.now() + PREDECESSOR_LIMIT;
    while clock.now() < until {
        let row = client.query_one("SELECT pg_try_advisory_lock($1)", &[&number]).await.map_err(before)?;
        if row.try_get(0).map_err(before)? {
            return Ok(true);
        }
        clock.sleep_until(clock.now() + PREDECESSOR_LIMIT / 50).await;
    }
    Ok(false)
}

async fn note_max_ttl(settings: &Settings, client: &Client, facts: &mut Facts) -> Result<(), NodeError> {
    let Some(notes) = settings.seams.max_ttls().filter(|_| settings.seams.guards_restarts()) else {
        return Ok(());
    };
    let ours = i64::try_from(notes.ours().as_millis()).unwrap_or(i64::MAX);
    let prefix = settings.seams.key_prefix().as_bytes();
    let row = client.query_one("SELECT quorlock.max_ttl($1, $2)", &[&prefix, &ours]).await.map_err(before)?;
    let theirs: i64 = row.try_get(0).map_err(before)?;
    if let Some(theirs) = u64::try_from(theirs).ok().filter(|theirs| *theirs > 0).map(Duration::from_millis) {
        facts.max_ttl = Some(theirs);
        if let Some(theirs) = notes.hear(theirs) {
            tracing::warn!(node = %settings.url, ?theirs, "other clients have another max_ttl");
        }
    }
    Ok(())
}

/// An error of a connection over which nothing was asked yet.
fn before(error: Error) -> NodeError {
    unsent(of_statement(error))
}

fn unsent(error: NodeError) -> NodeError {
    if let NodeError::Disconnected { reason } = error { NodeError::Unreachable { reason } } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        Server {
            version: 150_000,
            version_text: "15.0".into(),
            pid: 7,
            in_recovery: false,
            system: -1,
            timeline: Some("0000000A".into()),
            durable: true,
            started: 5,
            clock: 9,
            has_schema: true,
            user: "app".into(),
            database: "orders".into(),
            replicas: 0,
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
    fn a_history_is_that_of_a_timeline_and_where_a_crash_forgets_that_of_a_start() {
        assert_eq!(server().identity(), "18446744073709551615:0000000A");
        assert_eq!(Server { durable: false, ..server() }.identity(), "18446744073709551615:0000000A:5");
    }

    #[test]
    fn a_primary_that_was_replaced_is_refused_by_those_who_have_met_its_successor() {
        let url = DatabaseUrl::parse("postgres://db/x").unwrap();
        let settings = Settings::new(url, &Seams::default());
        let successor = Server { timeline: Some("0000000B".into()), ..server() };
        assert!(settings.check_timeline(&server()).is_ok());
        assert!(settings.check_timeline(&successor).is_ok());
        assert!(settings.check_timeline(&server()).is_err());
        assert!(settings.check_timeline(&Server { system: 3, ..server() }).is_ok(), "another cluster");
    }
}
