//! `ShedLock`'s table in PostgreSQL: its statements, and what the catalogue says about it.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, join_all};
use futures::stream::TryStreamExt as _;
use quorlock::node::facts::{Facts, OtherClients};
use quorlock::node::shedlock::{
    Ask, COLUMNS, Column, Dialect, Plan, Shape, Table, Tombstones, Verb, denied, table_name,
};
use quorlock::node::{NodeError, NodeErrorKind, Request};
use quorlock::runtime::{Clock, Mutex};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row, Statement};

use crate::error::{failed, of_statement};
use crate::request::Parameter;

const DIALECT: Dialect = Dialect {
    times: &["timestamp without time zone"],
    texts: [&["character varying", "text"]; 2],
    columns: "name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by varchar(255) \
              NOT NULL",
    alter: "ALTER {column} TYPE {type}",
    clocks: "make sure that every JdbcTemplateLockProvider there is built with usingDbTime(), and that no other kind of \
             provider uses the table",
};

/// The table of the URL, and the cancelled attempts.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The table's name, optionally qualified with a schema, as written without quotes.
    pub(crate) table: Arc<str>,
    tombstones: Arc<Mutex<Tombstones>>,
}

impl Layout {
    /// Parses a table name. `None` if it needs quotes.
    pub(crate) fn of(table: Option<&str>) -> Option<Layout> {
        let table = table.map(str::to_ascii_lowercase);
        Some(Layout { table: table_name(table.as_deref())?, tombstones: Arc::default() })
    }

    /// Checks the table and prepares the statements.
    ///
    /// # Errors
    ///
    /// What is wrong with the table, with the statement that fixes it.
    pub(crate) async fn prepare(
        &self,
        client: &Client,
        found: Option<u32>,
        clock: &Arc<dyn Clock>,
        facts: &mut Facts,
    ) -> Result<Prepared, NodeError> {
        let (quoted, table) = find(client, &self.table, found).await?;
        facts.other_clients = Some(other_clients(client, &quoted).await?);
        let prepared = STATEMENTS.iter().map(|(text, types)| {
            let text = text
                .replace("{table}", &quoted)
                .replace("{now}", NOW)
                .replace("{until}", "timezone('utc', clock_timestamp()) + $3 * interval '1 microsecond'")
                .replace("{none}", "NULL::int8, NULL::bytea, NULL::int8, NULL::bytea, NULL::bytea[]");
            async move { client.prepare_typed(&text, types).await }
        });
        let statements: Result<Vec<_>, _> = join_all(prepared).await.into_iter().collect();
        let (layout, clock) = (self.clone(), Arc::clone(clock));
        Ok(Prepared { statements: statements.map_err(of_statement)?, table, layout, clock })
    }
}

/// The statements, prepared on one connection.
pub(crate) struct Prepared {
    statements: Vec<Statement>,
    table: Table,
    layout: Layout,
    clock: Arc<dyn Clock>,
}

/// Rows in the form that [`request`](crate::request) reads: vote, number, holder, time left, key and readers.
type Asking = BoxFuture<'static, Result<Vec<Row>, Error>>;

impl Prepared {
    /// Plans a request.
    ///
    /// # Errors
    ///
    /// If the table does not support the request.
    pub(crate) fn plan(&self, request: &Request) -> Result<Plan, NodeError> {
        let plan = self.table.plan(request, &mut self.layout.tombstones.lock(), self.clock.now())?;
        if matches!(&plan, Plan::Ask(ask) if ask.name.contains('\0')) {
            let words = "the name of the lock contains a zero byte, which PostgreSQL's text cannot store";
            return Err(failed(NodeErrorKind::Unsupported, words));
        }
        Ok(plan)
    }

    /// Sends the statement with the first poll. If a lock is refused, reads the holder.
    pub(crate) fn ask(&self, client: &Arc<Client>, ask: Ask) -> Asking {
        let Ask { verb, name, holder, from, micros } = ask;
        let word = |text: &str| Box::new(text.to_owned()) as Parameter;
        let mut words = vec![word(&name)];
        match verb {
            Verb::Inspect => {}
            Verb::Release => words.push(word(&holder)),
            Verb::Acquire | Verb::Renew => words.extend([word(&holder), Box::new(micros) as Parameter]),
            Verb::Transfer => words.extend([word(&holder), Box::new(micros), word(&from)]),
        }
        let asked = self.query(client, verb as usize, words);
        if matches!(verb, Verb::Release | Verb::Inspect) {
            return asked;
        }
        let holder = self.query(client, HOLDER, vec![word(&name)]);
        async move {
            let (granted, holder) = futures::join!(asked, holder);
            let granted = granted?;
            if granted.is_empty() { holder } else { Ok(granted) }
        }
        .boxed()
    }

    fn query(&self, client: &Arc<Client>, statement: usize, parameters: Vec<Parameter>) -> Asking {
        let (client, statement) = (Arc::clone(client), self.statements.get(statement).cloned());
        async move {
            let Some(statement) = statement else { return Ok(Vec::new()) };
            client.query_raw(&statement, parameters).await?.try_collect().await
        }
        .boxed()
    }
}

/// The server's clock as `ShedLock` writes it: UTC, without a time zone.
const NOW: &str = "timezone('utc', clock_timestamp())";

/// The statement that reads the holder which was in the way.
const HOLDER: usize = 5;

/// The statements, in the order of [`Verb`]. `$1` is the name, `$2` the token, `$3` the TTL in microseconds.
///
/// No statement changes a row of another holder: it writes only to a row that, after the row lock was
/// obtained, is free by the server's clock or held by the claim's token.
const STATEMENTS: [(&str, &[Type]); 6] = [
    // A token that already holds the row is granted without extending it.
    (
        "WITH taken AS (
            INSERT INTO {table} AS held (name, lock_until, locked_at, locked_by) VALUES ($1, {until}, {now}, $2)
            ON CONFLICT (name) DO UPDATE SET
                lock_until = CASE WHEN held.lock_until > {now} THEN held.lock_until ELSE {until} END,
                locked_at = CASE WHEN held.lock_until > {now} THEN held.locked_at ELSE {now} END,
                locked_by = $2
            WHERE held.lock_until <= {now} OR held.locked_by = $2
            RETURNING 1)
        SELECT 0, {none} FROM taken",
        &[Type::TEXT, Type::TEXT, Type::INT8],
    ),
    // Extends what is held; otherwise stores a free key again and reports that.
    (
        "WITH prolonged AS (
            UPDATE {table} SET lock_until = CASE WHEN isfinite(lock_until) THEN greatest(lock_until, {until}) ELSE {until} END
            WHERE name = $1 AND locked_by = $2 AND lock_until > {now}
            RETURNING 1),
        restored AS (
            INSERT INTO {table} AS held (name, lock_until, locked_at, locked_by)
            SELECT $1, {until}, {now}, $2 WHERE NOT EXISTS (SELECT FROM prolonged)
            ON CONFLICT (name) DO UPDATE SET lock_until = {until}, locked_at = {now}, locked_by = $2
            WHERE held.lock_until <= {now}
            RETURNING 1)
        SELECT 0, {none} FROM prolonged UNION ALL SELECT 4, {none} FROM restored",
        &[Type::TEXT, Type::TEXT, Type::INT8],
    ),
    // `$4` is the token of the current holder.
    (
        "WITH taken AS (
            INSERT INTO {table} AS held (name, lock_until, locked_at, locked_by) VALUES ($1, {until}, {now}, $2)
            ON CONFLICT (name) DO UPDATE SET
                lock_until = CASE WHEN held.locked_by = $2 THEN greatest(held.lock_until, {until}) ELSE {until} END,
                locked_at = {now}, locked_by = $2
            WHERE held.lock_until <= {now} OR held.locked_by IN ($2, $4)
            RETURNING 1)
        SELECT 0, {none} FROM taken",
        &[Type::TEXT, Type::TEXT, Type::INT8, Type::TEXT],
    ),
    (
        "WITH freed AS (
            UPDATE {table} SET lock_until = {now} WHERE name = $1 AND locked_by = $2 AND lock_until > {now} RETURNING 1)
        SELECT CASE WHEN EXISTS (SELECT FROM freed) THEN 0 ELSE 1 END, {none}",
        &[Type::TEXT, Type::TEXT],
    ),
    (
        "SELECT CASE WHEN held.lock_until > clock.now THEN 2 ELSE 1 END, NULL::int8, convert_to(held.locked_by, 'UTF8'),
            CASE WHEN isfinite(held.lock_until)
                THEN greatest((extract(epoch FROM held.lock_until - clock.now) * 1000000)::int8, 0) END,
            NULL::bytea, NULL::bytea[]
        FROM (SELECT {now} AS now) clock LEFT JOIN {table} held ON held.name = $1",
        &[Type::TEXT],
    ),
    // The holder that was in the way, though its lock may have expired since.
    (
        "SELECT 2, NULL::int8, convert_to(held.locked_by, 'UTF8'),
            CASE WHEN isfinite(held.lock_until)
                THEN greatest((extract(epoch FROM held.lock_until - {now}) * 1000000)::int8, 0) END,
            NULL::bytea, NULL::bytea[]
        FROM {table} held WHERE held.name = $1",
        &[Type::TEXT],
    ),
];

/// Queries the shape of the table with this OID.
const FIND: &str = "
    SELECT format('%I.%I', n.nspname, c.relname), c.relpersistence = 'p',
        EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'name'
            WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL
                AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum),
        has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
            AND has_table_privilege(c.oid, 'UPDATE'),
        current_user::text
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = $1 AND c.relkind IN ('r', 'p')";

/// Queries those of its columns that have these names: the length of a text has four more, and -1 is unlimited.
const FIND_COLUMNS: &str = "
    SELECT attname::text, format_type(atttypid, NULL), atttypmod FROM pg_attribute
    WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped AND attname::text = ANY ($2)";

/// Returns the quoted name of the table, qualified with the schema, and its shape.
async fn find(client: &Client, table: &Arc<str>, oid: Option<u32>) -> Result<(String, Table), NodeError> {
    let found = client.query_opt(FIND, &[&oid]).await.map_err(of_statement)?;
    let row = found.ok_or_else(|| DIALECT.missing(table))?;
    let columns = client.query(FIND_COLUMNS, &[&oid, &&COLUMNS[..]]).await.map_err(of_statement)?;
    let column = |row: &Row| {
        let modifier = usize::try_from(row.try_get::<_, i32>(2)?).ok();
        let length = modifier.map(|modifier| modifier.saturating_sub(4));
        Ok(Column { name: row.try_get(0)?, kind: row.try_get(1)?, digits: modifier, length })
    };
    let read = || {
        let logged: bool = row.try_get(1)?;
        let volatile = (!logged).then(|| ("is emptied by a crash".to_owned(), "SET LOGGED"));
        let columns = columns.iter().map(column).collect::<Result<_, _>>()?;
        let shape = Shape { columns, unique: row.try_get(2)?, volatile };
        Ok::<_, Error>((row.try_get(0)?, shape, row.try_get(3)?, row.try_get(4)?))
    };
    let (quoted, shape, allowed, user): (_, _, bool, String) = read().map_err(of_statement)?;
    let checked = Table::checked(table, &shape, &DIALECT)?;
    if allowed { Ok((quoted, checked)) } else { Err(denied(table, &format!("\"{user}\""))) }
}

async fn other_clients(client: &Client, table: &str) -> Result<OtherClients, NodeError> {
    let text = format!(
        "SELECT name, locked_by, (extract(epoch FROM locked_at - {NOW}) * 1000)::int8 FROM {table}
         WHERE isfinite(locked_at) AND locked_at > {NOW} + interval '1 second' ORDER BY locked_at DESC LIMIT 1"
    );
    let row = client.query_opt(&text, &[]).await.map_err(of_statement)?;
    let read = |row: Row| {
        let ahead = Duration::from_millis(u64::try_from(row.try_get::<_, i64>(2)?).unwrap_or_default());
        Ok((row.try_get(0)?, row.try_get(1)?, ahead))
    };
    Ok(DIALECT.other_clients(row.map(read).transpose().map_err(of_statement)?))
}
