//! `ShedLock`'s table in MariaDB and MySQL: its statements, what the catalogue says about it, and the end of the
//! previous connection.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::facts::{Facts, OtherClients};
use quorlock::node::shedlock::{Column, Dialect, Shape, Table, denied};
use quorlock::node::{Identity, NodeError, Seams};
use quorlock::protocol::Moment;

use crate::connection::{Connection, ResultSets};
use crate::error::Failure;
use crate::server::Server;
use crate::table::{number, text, unread};

mod requests;

pub(crate) use requests::execute;

const DIALECT: Dialect = Dialect {
    times: &["timestamp", "datetime"],
    texts: [&["varchar", "text"], &["varchar", "char"]],
    columns: "name VARCHAR(64) NOT NULL PRIMARY KEY, lock_until TIMESTAMP(3) NOT NULL, locked_at TIMESTAMP(3) NOT NULL \
              DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL",
    alter: "MODIFY {column} {type} NOT NULL",
    clocks: "make sure that every JdbcTemplateLockProvider there is built with usingDbTime(), that no other kind of \
             provider uses the table, and that no client sets a time zone of its own for its sessions",
};
/// How long to wait for the end of the previous connection.
const PREDECESSOR_LIMIT: Duration = Duration::from_millis(500);
/// The server's clock as `ShedLock` writes it.
const NOW: &str = "UTC_TIMESTAMP(6)";

/// The previous connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Predecessor {
    /// The name of a user-level lock that it holds while it lives, by which its successor finds it.
    name: Option<String>,
    /// When its server had started. Servers report that in whole seconds.
    started: Option<u64>,
}

/// Checks the table, and ends the previous connection.
///
/// # Errors
///
/// What is wrong with the table, with the statement that fixes it.
pub(crate) async fn introduce(
    connection: &mut Connection,
    name: &Arc<str>,
    server: &Server,
    (seams, sent): (&Seams, Moment),
    predecessor: &mut Predecessor,
    facts: &mut Facts,
) -> Result<(Table, Identity), NodeError> {
    let (shape, created, age) = find(connection, name).await?;
    let table = Table::checked(name, &shape, &DIALECT)?;
    try_rights(connection, name, server).await?;
    // A column of the type TIMESTAMP is read and written in the time zone of the session. ShedLock's clients
    // use that of the server.
    run(connection, "SET SESSION time_zone = @@GLOBAL.time_zone".to_owned()).await?;
    facts.other_clients = Some(other_clients(connection, name).await?);
    end(connection, predecessor, seams).await?;
    let mut id = format!("{} {name} {created}", server.id());
    let mut age = Duration::from_secs(age);
    if !server.durable() {
        let same = predecessor.started.filter(|started| server.is_start(*started));
        let started = *predecessor.started.insert(same.unwrap_or_else(|| server.started()));
        id = format!("{id} {started}");
        age = age.min(server.uptime);
    }
    Ok((table, Identity::new(id, sent, age)))
}

/// Returns the shape of the table, when it was created, and how many seconds ago.
async fn find(connection: &mut Connection, table: &str) -> Result<(Shape, u64, u64), NodeError> {
    let (database, name) = match table.split_once('.') {
        Some((database, name)) => (format!("'{database}'"), name),
        None => ("DATABASE()".to_owned(), table),
    };
    let place = format!("TABLE_SCHEMA = {database} AND TABLE_NAME = '{name}'");
    let statements = format!(
        "SELECT LOWER(COLUMN_NAME), LOWER(DATA_TYPE), COALESCE(DATETIME_PRECISION, 0), \
         COALESCE(CHARACTER_MAXIMUM_LENGTH, 0) FROM information_schema.COLUMNS WHERE {place} AND \
         COLUMN_NAME IN ('name', 'lock_until', 'locked_at', 'locked_by'); \
         SELECT ENGINE, UNIX_TIMESTAMP(CREATE_TIME), GREATEST(0, TIMESTAMPDIFF(SECOND, CREATE_TIME, NOW())) \
         FROM information_schema.TABLES WHERE {place}; \
         SELECT COUNT(*) FROM information_schema.STATISTICS WHERE {place} AND NON_UNIQUE = 0 AND COLUMN_NAME = 'name' \
         AND SUB_PART IS NULL AND INDEX_NAME NOT IN (SELECT INDEX_NAME FROM information_schema.STATISTICS \
         WHERE {place} AND SEQ_IN_INDEX = 2)"
    );
    let sets = run(connection, statements).await?;
    let [columns, tables, unique] =
        <[_; 3]>::try_from(sets).map_err(|_| unread("the columns of the table").before_anything_changed())?;
    let made = tables.first().ok_or_else(|| DIALECT.missing(table))?;
    let column = |row| {
        let length = |place| number(row, place).and_then(|length| usize::try_from(length).ok());
        Some(Column { name: text(row, 0)?, kind: text(row, 1)?, digits: length(2), length: length(3) })
    };
    let engine = text(made, 0).unwrap_or_default();
    let volatile = (!engine.eq_ignore_ascii_case("InnoDB"))
        .then(|| (format!("has the engine {engine}, and a crash may lose its rows"), "ENGINE = InnoDB"));
    let unique = unique.first().and_then(|row| number(row, 0)).unwrap_or_default() > 0;
    let shape = Shape { columns: columns.iter().filter_map(column).collect(), unique, volatile };
    let [created, age] = [1, 2].map(|place| number(made, place).unwrap_or_default());
    Ok((shape, created, age))
}

/// Runs the statements that a lock needs, without matching any row.
async fn try_rights(connection: &mut Connection, table: &str, server: &Server) -> Result<(), NodeError> {
    let columns = "name, lock_until, locked_at, locked_by";
    let statements = format!(
        "UPDATE {table} SET lock_until = lock_until WHERE 1 = 0; \
         INSERT INTO {table} ({columns}) SELECT {columns} FROM {table} WHERE 1 = 0"
    );
    match connection.run(statements).await {
        Ok(_) => Ok(()),
        Err(failure) if failure.is_denied() => Err(denied(table, &server.quoted_user())),
        Err(failure) => Err(failure.before_anything_changed()),
    }
}

/// Ends the previous connection and waits until it has ended: nothing sent over it is executed after that.
/// Then takes a name by which this connection's successor can find it.
async fn end(
    connection: &mut Connection,
    predecessor: &mut Predecessor,
    seams: &Seams,
) -> Result<(), NodeError> {
    let clock = seams.clock();
    if let Some(name) = &predecessor.name {
        let until = clock.now() + PREDECESSOR_LIMIT;
        while let Some(id) = one(connection, format!("SELECT IS_USED_LOCK('{name}')")).await? {
            if clock.now() >= until {
                let words = format!(
                    "the previous connection does not end, and the table has no tombstones against its late statements: \
                     run `KILL {id}`"
                );
                return Err(NodeError::Unreachable { reason: words.into() });
            }
            // It may have ended in the meantime.
            match connection.run(format!("KILL CONNECTION {id}")).await {
                Ok(_) | Err(Failure::Refused(_)) => {}
                Err(lost) => return Err(lost.before_anything_changed()),
            }
            clock.sleep_until(clock.now() + PREDECESSOR_LIMIT / 50).await;
        }
    }
    let name = format!("quorlock:{:032x}", seams.entropy().next_u128());
    if one(connection, format!("SELECT GET_LOCK('{name}', 0)")).await? != Some(1) {
        let reason = "it refused a name for the connection (`GET_LOCK`)".into();
        return Err(NodeError::Unreachable { reason });
    }
    predecessor.name = Some(name);
    Ok(())
}

async fn run(connection: &mut Connection, statements: String) -> Result<ResultSets, NodeError> {
    connection.run(statements).await.map_err(Failure::before_anything_changed)
}

/// Returns the number that the statement selects; `None` for NULL.
async fn one(connection: &mut Connection, statement: String) -> Result<Option<u64>, NodeError> {
    let sets = run(connection, statement).await?;
    Ok(sets.first().and_then(|set| set.first()).and_then(|row| number(row, 0)))
}

async fn other_clients(connection: &mut Connection, table: &str) -> Result<OtherClients, NodeError> {
    let statement = format!(
        "SELECT name, locked_by, TIMESTAMPDIFF(MICROSECOND, {NOW}, locked_at) DIV 1000 FROM {table} \
         WHERE locked_at > TIMESTAMPADD(SECOND, 1, {NOW}) ORDER BY locked_at DESC LIMIT 1"
    );
    let sets = run(connection, statement).await?;
    let row = sets.first().and_then(|set| set.first());
    Ok(DIALECT.other_clients(
        row.and_then(|row| Some((text(row, 0)?, text(row, 1)?, Duration::from_millis(number(row, 2)?)))),
    ))
}
