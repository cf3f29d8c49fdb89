//! Prepares a new connection: login, checks, tables, and the identity under which it votes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use quorlock::{
    node::facts::{Facts, Fsync, Memory, Role, Software},
    node::shedlock::Table,
    node::{Identity, NodeError, NodeErrorKind, Reason, Seams},
};

use crate::address::Database;
use crate::connection::{Connection, Row};
use crate::error::Failure;
use crate::server::Server;
use crate::shedlock::{self, Predecessor};
use crate::table::{COLUMNS, CREATE, HISTORY, Known, LOCKS, MARK, NOW, bytes, literal, number, text, unread};

/// A connection that may vote.
pub(crate) struct Ready {
    pub(crate) connection: Connection,
    pub(crate) identity: Arc<Identity>,
    /// Empty for `ShedLock`'s table, which has no note.
    pub(crate) known: Known,
    pub(crate) facts: Facts,
    pub(crate) round_trip: Duration,
    /// Set if locks are rows of `ShedLock`'s table.
    pub(crate) shedlock: Option<Table>,
    /// Whether statements have a timeout.
    pub(crate) is_mariadb: bool,
}

/// The default node timeout.
const NODE_LIMIT: Duration = Duration::from_secs(1);
/// The default connect timeout.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// The timeout of a packet of statements, unless the node timeout is longer.
const PACKET_LIMIT: Duration = Duration::from_secs(3);

/// Connects, checks whether the server can vote, and creates missing tables.
pub(crate) async fn connect(
    database: &Database,
    seams: &Seams,
    predecessor: &mut Predecessor,
) -> Result<Ready, NodeError> {
    let limit = seams.connect_timeout().unwrap_or(CONNECT_LIMIT);
    let mut connection = Connection::open(database, seams, limit).await?;
    let done = introduce(&mut connection, database, seams, predecessor).await;
    let Introduced { identity, known, facts, round_trip, shedlock, is_mariadb } = match done {
        Ok(introduced) => introduced,
        Err(error) => {
            connection.close().await;
            return Err(error);
        }
    };
    connection.set_timeout(PACKET_LIMIT.max(seams.node_timeout().unwrap_or_default()));
    Ok(Ready { connection, identity: Arc::new(identity), known, facts, round_trip, shedlock, is_mariadb })
}

struct Introduced {
    identity: Identity,
    known: Known,
    facts: Facts,
    round_trip: Duration,
    shedlock: Option<Table>,
    is_mariadb: bool,
}

async fn introduce(
    connection: &mut Connection,
    database: &Database,
    seams: &Seams,
    predecessor: &mut Predecessor,
) -> Result<Introduced, NodeError> {
    let clock = seams.clock();
    prepare_session(connection).await?;
    let sent = clock.now();
    let wall = clock.wall();
    let mut server = introduce_server(connection).await?;
    let answered = clock.now();
    let round_trip = answered.since(sent);
    server.replicates_from = replication_source(connection, &server).await?;
    let mut facts = facts(&server);
    facts.clock = Some(server.reading(wall, round_trip));
    facts.user = Some(server.user.as_str().into());
    server.check()?;
    let is_mariadb = server.is_mariadb();
    if let Some(name) = database.shedlock() {
        limit_statements(connection, &server, seams).await?;
        let introducing =
            shedlock::introduce(connection, name, &server, (seams, sent), predecessor, &mut facts);
        let (table, identity) = Box::pin(introducing).await?;
        facts.identity = Some(identity.id.as_ref().into());
        facts.uptime = Some(identity.age);
        let (known, shedlock) = (Known::default(), Some(table));
        return Ok(Introduced { identity, known, facts, round_trip, shedlock, is_mariadb });
    }
    create_tables(connection, &server, database).await?;
    limit_statements(connection, &server, seams).await?;
    check_rights(connection).await?;
    let (note, known) = note_history(connection, &server, seams).await?;
    let identity = Identity::new(note.history.clone(), sent, note.age(&server));
    facts.identity = Some(note.history.as_str().into());
    facts.uptime = Some(identity.age);
    Ok(Introduced { identity, known, facts, round_trip, shedlock: None, is_mariadb })
}

/// Session settings that both servers support: UTC, row locks only, lock waits shorter than the packet
/// timeout, and nothing that the server's settings take from a session: rows, writes, or the connection
/// between two heartbeats.
async fn prepare_session(connection: &mut Connection) -> Result<(), NodeError> {
    let statements = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; \
                      SET SESSION autocommit = 1, time_zone = '+00:00', innodb_lock_wait_timeout = 1, lock_wait_timeout = 1, \
                      sql_select_limit = 18446744073709551615, sql_big_selects = 1, wait_timeout = 28800, \
                      sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'";
    connection.run(statements.to_owned()).await.map(drop).map_err(Failure::before_anything_changed)
}

/// Queries the server's settings and status, in one round trip.
async fn introduce_server(connection: &mut Connection) -> Result<Server, NodeError> {
    let statements = format!(
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ({}); \
         SHOW GLOBAL STATUS WHERE Variable_name IN ('Uptime', 'Slaves_connected', \
         'Replicas_connected', 'Slaves_running', 'Slave_heartbeat_period'); \
         SELECT CURRENT_USER(), {NOW}",
        Server::VARIABLES.map(|name| format!("'{name}'")).join(", ")
    );
    let sets = connection.run(statements).await.map_err(Failure::before_anything_changed)?;
    let mut settings = HashMap::new();
    for row in sets.iter().take(2).flatten() {
        if let (Some(name), Some(value)) = (text(row, 0), text(row, 1)) {
            settings.insert(name.to_ascii_lowercase(), value);
        }
    }
    let last = sets.get(2).and_then(|set| set.first());
    let (user, now) = (last.and_then(|row| text(row, 0)), last.and_then(|row| number(row, 1)));
    match (user, now) {
        (Some(user), Some(now)) => Ok(Server::new(settings, user, now)),
        _ => Err(unread("its settings").before_anything_changed()),
    }
}

/// Sets MariaDB's timeouts for statements and for transactions left open by their client.
async fn limit_statements(
    connection: &mut Connection,
    server: &Server,
    seams: &Seams,
) -> Result<(), NodeError> {
    if !server.is_mariadb() {
        return Ok(());
    }
    let statement = format!("{}, idle_transaction_timeout = 2", timeout(node_limit(seams)));
    connection.run(statement).await.map(drop).map_err(Failure::before_anything_changed)
}

/// Returns how long a client waits for an answer, if its TTL allows that.
pub(crate) fn node_limit(seams: &Seams) -> Duration {
    seams.node_timeout().unwrap_or(NODE_LIMIT)
}

/// Sets MariaDB's timeout for statements whose client waits this long: shorter, so that the error arrives that says why.
pub(crate) fn timeout(limit: Duration) -> String {
    format!("SET SESSION max_statement_time = {}", (limit * 3 / 4).as_secs_f64().max(0.01))
}

/// Returns the server from which this one replicates, if it does.
///
/// # Errors
///
/// If the user may not know, and it might.
async fn replication_source(
    connection: &mut Connection,
    server: &Server,
) -> Result<Option<String>, NodeError> {
    let statement = if server.is_mariadb() { "SHOW ALL REPLICAS STATUS" } else { "SHOW REPLICA STATUS" };
    let mut asked = connection.run(statement.to_owned()).await;
    if asked.as_ref().is_err_and(|failure| matches!(failure, Failure::Refused(_)) && !failure.is_denied()) {
        // MySQL before 8.0.22.
        asked = connection.run("SHOW SLAVE STATUS".to_owned()).await;
    }
    let sets = match asked {
        Ok(sets) => sets,
        Err(refused) if refused.is_denied() => {
            return match server.replicating {
                Some(1..) => Ok(Some("another server".to_owned())),
                _ if server.may_replicate() => Err(may_not_know(server, refused.into_node_error())),
                _ => Ok(None),
            };
        }
        Err(failure) => return Err(failure.before_anything_changed()),
    };
    let named = |row: &Row, names: &[&str]| text(row, row.column(names)?);
    let source = sets.iter().flatten().find_map(|row| {
        let threads =
            [["Slave_IO_Running", "Replica_IO_Running"], ["Slave_SQL_Running", "Replica_SQL_Running"]];
        let runs = threads.iter().any(|names| named(row, names).is_some_and(|state| state != "No"));
        let host = named(row, &["Master_Host", "Source_Host"]).unwrap_or_default();
        runs.then_some(host)
    });
    Ok(source)
}

/// The error if the user may not know whether the server replicates.
fn may_not_know(server: &Server, error: NodeError) -> NodeError {
    let (user, right) =
        (server.quoted_user(), if server.is_mariadb() { "REPLICA MONITOR" } else { "REPLICATION CLIENT" });
    let words = format!(
        "the user may not ask whether it is a replica, whose primary would grant the same locks: run `GRANT {right} ON \
         *.* TO {user}`"
    );
    NodeError::Failed { kind: error.kind(), reason: Reason::new(words).because(error) }
}

/// Creates the tables if they are missing, and refuses tables of another shape.
async fn create_tables(
    connection: &mut Connection,
    server: &Server,
    database: &Database,
) -> Result<(), NodeError> {
    if shape(connection).await? == Shape::Missing {
        for statement in CREATE {
            if let Err(failure) = connection.run(statement.to_owned()).await {
                let denied = failure.is_denied();
                let error = failure.into_node_error();
                return Err(if denied { may_not_create(server, database, error) } else { error });
            }
        }
        if shape(connection).await? == Shape::Missing {
            // They exist by now but are invisible: the user has no privilege on them.
            return Err(denied(server, database));
        }
    }
    Ok(())
}

/// Tries each privilege that is needed later, by statements that change nothing, so that a missing one is
/// reported now and not at the first lock. Without `DELETE` dead rows would only accumulate.
async fn check_rights(connection: &mut Connection) -> Result<(), NodeError> {
    let statements = format!(
        "SELECT name FROM {LOCKS} WHERE FALSE; INSERT INTO {LOCKS} (name, nonce) SELECT x'', 0 FROM DUAL WHERE FALSE; \
         UPDATE {LOCKS} SET nonce = 0 WHERE name = x'' AND FALSE; DELETE FROM {LOCKS} WHERE name = x'' AND FALSE; \
         INSERT INTO {HISTORY} (id, history, server, started, durable, noted_at) SELECT 1, x'', x'', 0, 0, 0 FROM DUAL \
         WHERE FALSE; UPDATE {HISTORY} SET durable = 0 WHERE id = 1 AND FALSE"
    );
    connection.run(statements).await.map(drop).map_err(Failure::before_anything_changed)
}

#[derive(PartialEq, Eq)]
enum Shape {
    Right,
    Missing,
}

async fn shape(connection: &mut Connection) -> Result<Shape, NodeError> {
    let statements = format!(
        "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN \
         ('{LOCKS}', '{HISTORY}'); SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, COLUMN_KEY FROM \
         information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ('{LOCKS}', '{HISTORY}')"
    );
    let sets = connection.run(statements).await.map_err(Failure::before_anything_changed)?;
    let (tables, columns) = (sets.first().into_iter().flatten(), sets.get(1).into_iter().flatten());
    let mut found = 0;
    for table in tables {
        let (name, engine) = (text(table, 0).unwrap_or_default(), text(table, 1).unwrap_or_default());
        if !engine.eq_ignore_ascii_case("InnoDB") {
            let words = format!(
                "the table `{name}` has the engine {engine}, which cannot hold locks: drop it while no lock is held, or \
                 `ALTER TABLE {name} ENGINE=InnoDB`"
            );
            return Err(misconfigured(words));
        }
        found += 1;
    }
    if found < 2 {
        return Ok(Shape::Missing);
    }
    let columns: Vec<[String; 4]> = columns
        .map(|row| {
            let [table, column, kind, key] = [0, 1, 2, 3].map(|place| text(row, place).unwrap_or_default());
            [table, column, without_width(&kind.to_ascii_lowercase()), key]
        })
        .collect();
    for [table, column, kind, key] in COLUMNS {
        if !columns.iter().any(|found| *found == [table, column, kind, key]) {
            let words = format!(
                "the table `{table}` has another shape, without `{column}` as {kind}: if it belongs to another program, name \
                 another database in the URL; otherwise drop it while no lock is held, and it is created again"
            );
            return Err(misconfigured(words));
        }
    }
    Ok(Shape::Right)
}

/// Removes the display width: `bigint(20) unsigned` is `bigint unsigned` in newer versions.
fn without_width(kind: &str) -> String {
    match (kind.split_once('('), kind.starts_with("varbinary")) {
        (Some((name, rest)), false) => {
            let rest = rest.split_once(')').map_or("", |(_, rest)| rest);
            format!("{name}{rest}")
        }
        _ => kind.to_owned(),
    }
}

fn misconfigured(words: String) -> NodeError {
    NodeError::Failed { kind: NodeErrorKind::Misconfigured, reason: Reason::new(words) }
}

/// The error if the tables are missing and the user may not create them.
fn may_not_create(server: &Server, database: &Database, error: NodeError) -> NodeError {
    let (user, name) = (server.quoted_user(), database.name());
    let words = format!(
        "the lock tables are missing, and the user may not create them: run `GRANT SELECT, INSERT, UPDATE, DELETE, \
         CREATE ON `{name}`.* TO {user}`, or in that database, as a user who may: {};",
        CREATE.join("; ")
    );
    NodeError::Failed { kind: error.kind(), reason: Reason::new(words).because(error) }
}

fn denied(server: &Server, database: &Database) -> NodeError {
    let (user, name) = (server.quoted_user(), database.name());
    let words = format!(
        "the user may not use the lock tables: run `GRANT SELECT, INSERT, UPDATE, DELETE ON `{name}`.* TO {user}`"
    );
    NodeError::Failed {
        kind: NodeErrorKind::PermissionDenied(quorlock::node::Access::Key),
        reason: Reason::new(words),
    }
}

/// The row of the table `quorlock_history`.
struct Note {
    history: String,
    server: Vec<u8>,
    started: u64,
    durable: bool,
    noted_at: u64,
}

impl Note {
    /// Whether another server may have written it, or the server may have lost data since.
    fn is_of_another(&self, server: &Server, id: &[u8]) -> bool {
        let remembers = server.durable() && self.durable;
        self.server != id || !(remembers || server.is_start(self.started))
    }

    /// The minimum age of the history.
    fn age(&self, server: &Server) -> Duration {
        let known = Duration::from_micros(server.now.saturating_sub(self.noted_at));
        if server.durable() && self.durable { known } else { known.min(server.uptime) }
    }
}

/// Reads the history of the data, and begins a new one if the data may be from another server, may have been
/// restored, or may have lost acknowledged writes.
async fn note_history(
    connection: &mut Connection,
    server: &Server,
    seams: &Seams,
) -> Result<(Note, Known), NodeError> {
    let new = format!("{:032x}", seams.entropy().next_u128());
    let durable = u8::from(server.durable());
    let (place, followed) = (server.place(), server.followed());
    let read = format!(
        "SELECT history, server, started, durable, noted_at FROM {HISTORY} WHERE id = 1; SELECT {place}, {followed}, {MARK}"
    );
    // Several clients may see the server for the first time at the same time; one of them writes.
    for _ in 0..8 {
        let sets = connection.run(read.clone()).await.map_err(|failure| {
            if failure.is_table_missing() {
                return NodeError::Unreachable { reason: "its lock tables were dropped just now".into() };
            }
            failure.into_node_error()
        })?;
        let note = sets.first().and_then(|set| set.first());
        let here = sets.get(1).and_then(|set| set.first());
        let here = here.and_then(|row| Some((text(row, 0)?, text(row, 1)?, number(row, 2))));
        let (here, position, mark) =
            here.ok_or_else(|| unread("the place of its data").before_anything_changed())?;
        let Some(mark) = mark else {
            let (nonce, last) = (seams.entropy().next_u64(), u64::MAX);
            let insert =
                format!("INSERT IGNORE INTO {LOCKS} SET name = x'', nonce = {nonce}, dead_at = {last}");
            connection.run(insert).await.map_err(Failure::into_node_error)?;
            continue;
        };
        let id = format!("{here} {mark}").into_bytes();
        let values = (literal(&id), server.started(), server.now);
        let Some(note) = note else {
            let (id, started, now) = values;
            let insert = format!(
                "INSERT IGNORE INTO {HISTORY} SET id = 1, history = '{new}', server = {id}, started = {started}, \
                 durable = {durable}, noted_at = {now}"
            );
            connection.run(insert).await.map_err(Failure::into_node_error)?;
            continue;
        };
        let fields = (text(note, 0), bytes(note, 1), number(note, 2), number(note, 3), number(note, 4));
        let (Some(history), Some(noted), Some(started), Some(lasting), Some(noted_at)) = fields else {
            return Err(misconfigured(format!(
                "the row of the table `{HISTORY}` was not written by quorlock: delete it"
            )));
        };
        let note = Note { history, server: noted.to_vec(), started, durable: lasting > 0, noted_at };
        let (id_literal, started, now) = values;
        let old = literal(note.history.as_bytes());
        if note.is_of_another(server, &id) {
            let update = format!(
                "UPDATE {HISTORY} SET history = '{new}', server = {id_literal}, started = {started}, durable = {durable}, \
                 noted_at = {now} WHERE id = 1 AND history = {old}"
            );
            connection.run(update).await.map_err(Failure::into_node_error)?;
        } else if note.durable && !server.durable() {
            // Must be stored before the first vote that may be lost.
            let update = format!(
                "UPDATE {HISTORY} SET durable = 0, started = {started} WHERE id = 1 AND history = {old}"
            );
            connection.run(update).await.map_err(Failure::into_node_error)?;
        } else {
            let history = &note.history;
            let known = Known {
                expression: format!(
                    "CONCAT_WS(' ', (SELECT history FROM {HISTORY} WHERE id = 1), {place}, {followed})"
                ),
                value: format!("{history} {here} {position}"),
                mark,
            };
            return Ok((note, known));
        }
    }
    Err(NodeError::Unreachable { reason: "other clients keep recording another history of its data".into() })
}

/// The facts for `doctor`.
fn facts(server: &Server) -> Facts {
    let mut facts = Facts::default();
    facts.software = Some(Software::new(server.program(), server.version.as_str()));
    facts.role = Some(if server.is_replica() { Role::Replica } else { Role::Master });
    facts.replicas = server.replicas;
    facts.memory = Some(Memory::new(0, None, "noeviction"));
    facts.append_only = Some(true);
    facts.fsync = Some(if server.durable() { Fsync::Always } else { Fsync::EverySecond });
    facts
}
