//! `ShedLock`'s table: `postgres://host/database?layout=shedlock`.
//!
//! The table belongs to `ShedLock`, whose clients lock with the same columns by the clock of the server
//! (`usingDbTime()`): this program neither creates nor alters it. It has no columns for fencing tokens, a
//! queue or tombstones. Late requests are refused in two other ways: a new connection terminates the previous
//! one, and cancelled attempts are remembered in this process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, join_all};
use futures::stream::TryStreamExt as _;
use quorlock::protocol::{Claim, Moment, Token, printable};
use quorlock::runtime::Mutex;
use quorlock::{
    node::facts::{Facts, OtherClients},
    node::{Capabilities, Capability, NodeError, NodeErrorKind, Order, Request, Vote},
    runtime::Clock,
};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, Statement};

use crate::error::{failed, of_statement};
use crate::request::micros;

/// The table of the URL, and the cancelled attempts.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The table's name, optionally qualified with a schema, as written without quotes.
    pub(crate) table: Arc<str>,
    tombstones: Arc<Mutex<HashMap<Token, Moment>>>,
}

/// The name in `ShedLock`'s documentation.
pub(crate) const USUAL_TABLE: &str = "shedlock";
/// The row that `doctor` uses; it is not deleted.
pub(crate) const CHECKED: &str = "quorlock-doctor";
/// A shorter column might truncate the part that distinguishes attempts.
const LEAST_LOCKED_BY: i32 = 64;

pub(crate) fn capabilities() -> Capabilities {
    Capabilities::default().with(Capability::Transfer).in_order(Order::PerKey).durable().shared_with_others()
}

impl Layout {
    /// Parses a table name. `None` if it needs quotes, which `ShedLock` does not add.
    pub(crate) fn of(table: &str) -> Option<Layout> {
        let plain = |word: &str| {
            word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let named = table.split('.').count() <= 2 && table.split('.').all(plain);
        named.then(|| Layout { table: table.to_ascii_lowercase().into(), tombstones: Arc::default() })
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
        let shape = Shape::read(client, &self.table, found).await?;
        shape.check(&self.table)?;
        facts.other_clients = Some(other_clients(client, &shape.quoted).await?);
        let prepared = STATEMENTS.iter().map(|(text, types)| {
            let text = text
                .replace("{table}", &shape.quoted)
                .replace("{now}", NOW)
                .replace("{until}", "timezone('utc', clock_timestamp()) + $3 * interval '1 microsecond'")
                .replace("{none}", "NULL::int8, NULL::bytea, NULL::int8, NULL::bytea, NULL::bytea[]");
            async move { client.prepare_typed(&text, types).await }
        });
        let statements: Result<Vec<_>, _> = join_all(prepared).await.into_iter().collect();
        Ok(Prepared {
            statements: statements.map_err(of_statement)?,
            name: shape.name,
            locked_by: shape.locked_by,
            layout: self.clone(),
            clock: Arc::clone(clock),
        })
    }
}

/// The statements, prepared on one connection.
pub(crate) struct Prepared {
    statements: Vec<Statement>,
    /// The maximum length of a name, in characters; negative if unlimited.
    name: i32,
    locked_by: i32,
    layout: Layout,
    clock: Arc<dyn Clock>,
}

/// Rows in the form that [`request`](crate::request) reads: vote, number, holder, time left, key and readers.
type Asking = BoxFuture<'static, Result<Vec<Row>, Error>>;

/// How a request is carried out.
pub(crate) enum Plan {
    /// Sends the statement with the first poll.
    Ask(Asking),
    /// The vote is known without a statement: the claim was cancelled.
    Cancelled(Vote),
}

impl Prepared {
    /// Plans a request.
    ///
    /// # Errors
    ///
    /// If the table does not support the request.
    #[expect(clippy::wildcard_enum_match_arm, reason = "refused above, or newer than this node")]
    pub(crate) fn plan(&self, client: &Arc<Client>, request: &Request) -> Result<Plan, NodeError> {
        capabilities().check(request)?;
        let wants_number = matches!(
            request,
            Request::Acquire { fence_hint: Some(_), .. }
                | Request::Transfer { fence_hint: Some(_), .. }
                | Request::WriteBack { .. }
        );
        if wants_number {
            return Err(without_counter(&self.layout.table));
        }
        let now = self.clock.now();
        match request {
            Request::Acquire { claim, ttl, .. } => self.grant(client, ACQUIRE, claim, claim, *ttl, now),
            Request::Renew { claim, ttl, .. } => self.grant(client, RENEW, claim, claim, *ttl, now),
            Request::Transfer { from, to, ttl, .. } => self.grant(client, TRANSFER, from, to, *ttl, now),
            Request::Release { claim } => self.give_back(client, claim),
            Request::Cancel { claim, linger } => {
                let plan = self.give_back(client, claim)?;
                let mut tombstones = self.layout.tombstones.lock();
                tombstones.retain(|_, ends| *ends > now);
                tombstones.insert(claim.token().clone(), now + *linger);
                Ok(plan)
            }
            Request::Inspect { key, .. } => {
                let asked = self.query(client, INSPECT, vec![self.name(key)?]);
                Ok(Plan::Ask(asked))
            }
            _ => Err(failed(NodeErrorKind::Unsupported, "a table of ShedLock does not know this request")),
        }
    }

    /// Acquires the key for `to`; if that is refused, queries the holder.
    fn grant(
        &self,
        client: &Arc<Client>,
        how: usize,
        from: &Claim,
        to: &Claim,
        ttl: Duration,
        now: Moment,
    ) -> Result<Plan, NodeError> {
        if self.layout.tombstones.lock().get(to.token()).is_some_and(|ends| *ends > now) {
            return Ok(Plan::Cancelled(Vote::Free));
        }
        let mut words =
            vec![self.name(to.key())?, self.holder(to.token()), Box::new(micros(ttl)) as Parameter];
        if how == TRANSFER {
            words.push(self.holder(from.token()));
        }
        let asked = self.query(client, how, words);
        let holder = self.query(client, HOLDER, vec![self.name(to.key())?]);
        Ok(Plan::Ask(
            async move {
                let (granted, holder) = futures::join!(asked, holder);
                let granted = granted?;
                if granted.is_empty() { holder } else { Ok(granted) }
            }
            .boxed(),
        ))
    }

    fn give_back(&self, client: &Arc<Client>, claim: &Claim) -> Result<Plan, NodeError> {
        let words = vec![self.name(claim.key())?, self.holder(claim.token())];
        Ok(Plan::Ask(self.query(client, RELEASE, words)))
    }

    fn query(&self, client: &Arc<Client>, statement: usize, parameters: Vec<Parameter>) -> Asking {
        let (client, statement) = (Arc::clone(client), self.statements.get(statement).cloned());
        async move {
            let Some(statement) = statement else { return Ok(Vec::new()) };
            client.query_raw(&statement, parameters).await?.try_collect().await
        }
        .boxed()
    }

    /// Returns the name of the row, which is the name of the resource.
    fn name(&self, key: &str) -> Result<Parameter, NodeError> {
        let length = key.chars().count();
        if let Ok(most) = usize::try_from(self.name)
            && length > most
        {
            let words = format!(
                "the name of the lock has {length} characters, and the column `name` of `{}` takes {most}: use a shorter one",
                self.layout.table
            );
            return Err(failed(NodeErrorKind::Unsupported, words));
        }
        if key.contains('\0') {
            let words = "the name of the lock contains a zero byte, which PostgreSQL's text cannot store";
            return Err(failed(NodeErrorKind::Unsupported, words));
        }
        Ok(Box::new(key.to_owned()))
    }

    /// Returns the value of `locked_by`: the token, which begins with its random part.
    fn holder(&self, token: &Token) -> Parameter {
        let text = String::from_utf8_lossy(token.as_bytes()).replace('\0', "");
        let most = usize::try_from(self.locked_by).unwrap_or(usize::MAX);
        Box::new(text.chars().take(most).collect::<String>())
    }
}

fn without_counter(table: &str) -> NodeError {
    let words = format!(
        "the table `{table}` of ShedLock has no counter of fencing tokens: turn fencing off, by `--fencing off` or \
         `Lock::unfenced`"
    );
    failed(NodeErrorKind::Unsupported, words)
}

type Parameter = Box<dyn ToSql + Sync + Send>;

/// The server's clock as `ShedLock` writes it: UTC, without a time zone.
const NOW: &str = "timezone('utc', clock_timestamp())";

const ACQUIRE: usize = 0;
const RENEW: usize = 1;
const TRANSFER: usize = 2;
const RELEASE: usize = 3;
const HOLDER: usize = 4;
const INSPECT: usize = 5;

/// The statements. `$1` is the name, `$2` the token, `$3` the TTL in microseconds.
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
    // The holder that was in the way, though its lock may have expired since.
    (
        "SELECT 2, NULL::int8, convert_to(held.locked_by, 'UTF8'),
            CASE WHEN isfinite(held.lock_until)
                THEN greatest((extract(epoch FROM held.lock_until - {now}) * 1000000)::int8, 0) END,
            NULL::bytea, NULL::bytea[]
        FROM {table} held WHERE held.name = $1",
        &[Type::TEXT],
    ),
    (
        "SELECT CASE WHEN held.lock_until > clock.now THEN 2 ELSE 1 END, NULL::int8, convert_to(held.locked_by, 'UTF8'),
            CASE WHEN isfinite(held.lock_until)
                THEN greatest((extract(epoch FROM held.lock_until - clock.now) * 1000000)::int8, 0) END,
            NULL::bytea, NULL::bytea[]
        FROM (SELECT {now} AS now) clock LEFT JOIN {table} held ON held.name = $1",
        &[Type::TEXT],
    ),
];

/// What the catalogue says about the table.
struct Shape {
    /// The quoted name, qualified with the schema.
    quoted: String,
    /// `p` if a crash does not empty the table.
    persistence: String,
    /// The columns with their types, ordered by name.
    columns: String,
    /// The maximum length of `name` and `locked_by` in characters; -1 if unlimited.
    name: i32,
    locked_by: i32,
    /// The smallest number of fractional digits of the times; -1 if all have six.
    digits: i32,
    /// Whether names are unique.
    unique: bool,
    /// Whether the user has the required privileges.
    allowed: bool,
    user: String,
}

/// Queries the shape of the table with this OID.
const FIND: &str = "
    SELECT format('%I.%I', n.nspname, c.relname), c.relpersistence::text,
        coalesce((SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, NULL), ', ' ORDER BY a.attname COLLATE \"C\")
            FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                AND a.attname IN ('name', 'lock_until', 'locked_at', 'locked_by')), ''),
        coalesce((SELECT min(CASE WHEN a.atttypmod < 0 THEN -1 ELSE a.atttypmod - 4 END) FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attname = 'name'), -1),
        coalesce((SELECT min(CASE WHEN a.atttypmod < 0 THEN -1 ELSE a.atttypmod - 4 END) FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attname = 'locked_by'), -1),
        coalesce((SELECT min(a.atttypmod) FILTER (WHERE a.atttypmod >= 0) FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attname IN ('lock_until', 'locked_at')), -1),
        EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'name'
            WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL
                AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum),
        has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
            AND has_table_privilege(c.oid, 'UPDATE'),
        current_user::text
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = $1 AND c.relkind IN ('r', 'p')";

impl Shape {
    async fn read(client: &Client, table: &str, found: Option<u32>) -> Result<Shape, NodeError> {
        let Some(row) = client.query_opt(FIND, &[&found]).await.map_err(of_statement)? else {
            let words = format!(
                "there is no table `{table}` of ShedLock in the database, and this program does not create it: run {}, or \
                 name another one by `&table=`",
                create(table)
            );
            return Err(failed(NodeErrorKind::Misconfigured, words));
        };
        let read = || {
            Ok::<_, Error>(Shape {
                quoted: row.try_get(0)?,
                persistence: row.try_get(1)?,
                columns: row.try_get(2)?,
                name: row.try_get(3)?,
                locked_by: row.try_get(4)?,
                digits: row.try_get(5)?,
                unique: row.try_get(6)?,
                allowed: row.try_get(7)?,
                user: row.try_get(8)?,
            })
        };
        read().map_err(of_statement)
    }

    fn check(&self, table: &str) -> Result<(), NodeError> {
        let wrong = |words: String| Err(failed(NodeErrorKind::Misconfigured, words));
        let words = self.columns.replace("text", "character varying");
        let wanted = "lock_until timestamp without time zone, locked_at timestamp without time zone, locked_by character \
                      varying, name character varying";
        if words != wanted {
            return wrong(format!(
                "the table `{table}` does not have the columns of ShedLock, but {}; expected are those of {}; a time with a zone would \
                 mean another moment to clients in another zone",
                if self.columns.is_empty() { "none of them" } else { &self.columns },
                create(table)
            ));
        }
        if !self.unique {
            return wrong(format!(
                "two rows of the table `{table}` may have the same name, so that nothing is excluded: `ALTER TABLE {table} ADD \
                 PRIMARY KEY (name)`"
            ));
        }
        if self.persistence != "p" {
            return wrong(format!("a crash empties the table `{table}`: `ALTER TABLE {table} SET LOGGED`"));
        }
        if (0..3).contains(&self.digits) {
            return wrong(format!(
                "the times of the table `{table}` have {} digits of a second, so that locks would expire early: `ALTER TABLE \
                 {table} ALTER lock_until TYPE timestamp(3), ALTER locked_at TYPE timestamp(3)`",
                self.digits
            ));
        }
        if (0..LEAST_LOCKED_BY).contains(&self.locked_by) {
            return wrong(format!(
                "the column `locked_by` of the table `{table}` takes {} characters, and distinguishes holders only with \
                 {LEAST_LOCKED_BY}: `ALTER TABLE {table} ALTER locked_by TYPE varchar(255)`",
                self.locked_by
            ));
        }
        if !self.allowed {
            let words = format!(
                "the user may not use the table `{table}`: `GRANT SELECT, INSERT, UPDATE ON {table} TO \"{}\"`",
                self.user
            );
            let kind = NodeErrorKind::PermissionDenied(quorlock::node::Access::Key);
            return Err(failed(kind, words));
        }
        Ok(())
    }
}

/// Returns the statement that creates the table.
fn create(table: &str) -> String {
    format!(
        "`CREATE TABLE {table} (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, \
         locked_by varchar(255) NOT NULL)`"
    )
}

/// Looks for a row that was locked by a clock ahead of the server's. No row shows a clock that is behind.
async fn other_clients(client: &Client, table: &str) -> Result<OtherClients, NodeError> {
    const WHO: &str = "is a table of ShedLock, whose providers use the clocks of their hosts unless they are built with \
                       usingDbTime()";
    const CURE: &str = "make sure that every JdbcTemplateLockProvider there is built with usingDbTime(), and that no other kind of \
                        provider uses the table";
    let text = format!(
        "SELECT name, locked_by, (extract(epoch FROM locked_at - {NOW}) * 1000)::int8 FROM {table}
         WHERE isfinite(locked_at) AND locked_at > {NOW} + interval '1 second' ORDER BY locked_at DESC LIMIT 1"
    );
    let row = client.query_opt(&text, &[]).await.map_err(of_statement)?;
    let mut others = OtherClients::new(WHO, CURE);
    if let Some(row) = row {
        let read = || Ok::<_, Error>((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
        let (name, holder, ahead): (String, String, i64) = read().map_err(of_statement)?;
        let ahead = Duration::from_millis(u64::try_from(ahead).unwrap_or_default());
        let (name, holder) = (printable(&name).cut(80), printable(&holder).cut(80));
        others.clock = Some(
            format!(
                "the lock `{name}` was taken by `{holder}` at a time that is {} ahead of the server's clock",
                quorlock::duration::format(ahead)
            )
            .into(),
        );
    }
    Ok(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_named_as_shedlock_names_it() {
        assert_eq!(&*Layout::of("Jobs.ShedLock").unwrap().table, "jobs.shedlock");
        for wrong in ["", "a.b.c", "a b", "a\"b", "a;b", "1a", ".a", "a."] {
            assert!(Layout::of(wrong).is_none(), "{wrong}");
        }
    }
}
