//! `ShedLock`'s table: `mysql://host/database?layout=shedlock`.
//!
//! The table belongs to `ShedLock`, whose clients lock with the same columns by the clock of the server
//! (`usingDbTime()`): this program neither creates nor alters it. It has no room for fencing tokens, for a queue or for
//! tombstones. What comes late is refused in two ways instead: a new connection ends the one before it, and which
//! attempts were cancelled is remembered here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mysql_async::Row as SqlRow;
use quorlock::protocol::{Claim, Moment, Token};
use quorlock::{
    node::facts::{Facts, OtherClients},
    node::{
        Access, Capabilities, Capability, Expiry, Holding, Identity, NodeError, NodeErrorKind, Order, Reason,
        Request, Seams, Vote,
    },
};

use crate::connection::Connection;
use crate::error::Trouble;
use crate::server::Server;
use crate::table::{bytes, literal, number, text, unread};

/// What the URL says of the table.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Its name, perhaps behind that of a database and a dot, as statements have it without quotes.
    table: Arc<str>,
}

/// What `ShedLock`'s documentation calls it.
pub(crate) const USUAL_TABLE: &str = "shedlock";
/// The row of the check-up, which stays.
pub(crate) const CHECKED: &str = "quorlock-doctor";
/// A shorter column might cut off what tells one attempt from another.
const LEAST_LOCKED_BY: u64 = 64;
/// For how long the end of a predecessor is waited for.
const PREDECESSOR_LIMIT: Duration = Duration::from_millis(500);

pub(crate) fn capabilities() -> Capabilities {
    Capabilities::default().with(Capability::Transfer).in_order(Order::PerKey).durable().shared_with_others()
}

impl Layout {
    /// Reads the name of a table. `None` if it needs quotes, which `ShedLock` does not put there.
    pub(crate) fn of(table: &str) -> Option<Layout> {
        let plain = |word: &str| {
            word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let named = table.split('.').count() <= 2 && table.split('.').all(plain);
        named.then(|| Layout { table: table.into() })
    }
}

/// What is known of the connection before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Predecessor {
    /// What it holds in the server for as long as it lives: a name that its successor finds it by.
    name: Option<String>,
    /// When its server had started. Servers tell that in whole seconds.
    started: Option<u64>,
}

/// The table as a connection has found it, and what is known of cancelled attempts.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    name: Arc<str>,
    /// The most characters of a name, and of a holder.
    longest_name: u64,
    longest_holder: u64,
}

/// Which attempts were cancelled, and until when that is remembered.
pub(crate) type Tombstones = HashMap<Token, Moment>;

/// What a connection finds out about the table.
pub(crate) struct Introduced {
    pub(crate) table: Table,
    pub(crate) identity: Identity,
}

/// Looks whether the table is there and as it must be, and ends the connection before this one.
///
/// # Errors
///
/// What is wrong with the table, with the statement that cures it.
pub(crate) async fn introduce(
    connection: &mut Connection,
    layout: &Layout,
    server: &Server,
    (seams, sent): (&Seams, Moment),
    predecessor: &mut Predecessor,
    facts: &mut Facts,
) -> Result<Introduced, NodeError> {
    let shape = Shape::read(connection, &layout.table).await?;
    shape.check(&layout.table)?;
    try_rights(connection, &layout.table, server).await?;
    // A column of the type TIMESTAMP is read and written by the zone of the session. ShedLock's clients have that of the
    // server.
    run(connection, "SET SESSION time_zone = @@GLOBAL.time_zone".to_owned()).await?;
    facts.other_clients = Some(other_clients(connection, &layout.table).await?);
    end(connection, predecessor, seams).await?;
    let mut id = format!("{} {} {}", server.id, layout.table, shape.created);
    let mut age = Duration::from_secs(shape.age);
    if !server.durable() {
        let same = predecessor.started.filter(|started| server.is_start(*started));
        let started = *predecessor.started.insert(same.unwrap_or_else(|| server.started()));
        id = format!("{id} {started}");
        age = age.min(server.uptime);
    }
    let identity = Identity::new(id, sent, age);
    let table = Table {
        name: Arc::clone(&layout.table),
        longest_name: shape.longest_name,
        longest_holder: shape.longest_holder,
    };
    Ok(Introduced { table, identity })
}

/// Ends the connection before this one and waits until it has ended: nothing that was sent over it is carried out after
/// that. Then this connection takes a name for its own successor.
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
                    "the connection before this one does not end, and the table has no tombstones against what it does late: \
                     run `KILL {id}`"
                );
                return Err(NodeError::Unreachable { reason: words.into() });
            }
            // It may have ended meanwhile.
            match connection.run(format!("KILL CONNECTION {id}")).await {
                Ok(_) | Err(Trouble::Refused(_)) => {}
                Err(lost) => return Err(lost.before_anything_changed()),
            }
            clock.sleep_until(clock.now() + PREDECESSOR_LIMIT / 50).await;
        }
    }
    let name = format!("quorlock:{:032x}", seams.entropy().next_u128());
    if one(connection, format!("SELECT GET_LOCK('{name}', 0)")).await? != Some(1) {
        let reason = "it gave no name to the connection (`GET_LOCK`)".into();
        return Err(NodeError::Unreachable { reason });
    }
    predecessor.name = Some(name);
    Ok(())
}

async fn run(connection: &mut Connection, statements: String) -> Result<Vec<Vec<SqlRow>>, NodeError> {
    connection.run(statements).await.map_err(Trouble::before_anything_changed)
}

/// The number that the statement returns; `None` for NULL.
async fn one(connection: &mut Connection, statement: String) -> Result<Option<u64>, NodeError> {
    let sets = run(connection, statement).await?;
    Ok(sets.first().and_then(|set| set.first()).and_then(|row| number(row, 0)))
}

/// What the catalogue says of the table.
struct Shape {
    /// Column, type, digits of a second, length and key of each, with the engine of the table.
    columns: Vec<Column>,
    engine: String,
    longest_name: u64,
    longest_holder: u64,
    /// When it was created, and how many seconds ago.
    created: u64,
    age: u64,
}

struct Column {
    name: String,
    kind: String,
    digits: u64,
    length: u64,
    key: String,
}

impl Shape {
    async fn read(connection: &mut Connection, table: &str) -> Result<Shape, NodeError> {
        let (database, name) = match table.split_once('.') {
            Some((database, name)) => (format!("'{database}'"), name),
            None => ("DATABASE()".to_owned(), table),
        };
        let place = format!("TABLE_SCHEMA = {database} AND TABLE_NAME = '{name}'");
        let statements = format!(
            "SELECT LOWER(COLUMN_NAME), LOWER(DATA_TYPE), COALESCE(DATETIME_PRECISION, 0), \
             COALESCE(CHARACTER_MAXIMUM_LENGTH, 0), COLUMN_KEY FROM information_schema.COLUMNS WHERE {place} AND \
             COLUMN_NAME IN ('name', 'lock_until', 'locked_at', 'locked_by'); \
             SELECT ENGINE, UNIX_TIMESTAMP(CREATE_TIME), GREATEST(0, TIMESTAMPDIFF(SECOND, CREATE_TIME, NOW())) \
             FROM information_schema.TABLES WHERE {place}; \
             SELECT COUNT(*) FROM information_schema.STATISTICS WHERE {place} AND NON_UNIQUE = 0 AND COLUMN_NAME = 'name' \
             AND SUB_PART IS NULL AND INDEX_NAME NOT IN (SELECT INDEX_NAME FROM information_schema.STATISTICS \
             WHERE {place} AND SEQ_IN_INDEX = 2)"
        );
        let sets = run(connection, statements).await?;
        let [columns, tables, unique] = <[_; 3]>::try_from(sets)
            .map_err(|_| unread("the columns of the table").before_anything_changed())?;
        let Some(made) = tables.first() else {
            return Err(misconfigured(format!(
                "there is no table `{table}` of ShedLock in the database, and this program does not create it: run {}, or \
                 name another one by `&table=`",
                create(table)
            )));
        };
        let unique = unique.first().and_then(|row| number(row, 0)).unwrap_or_default() > 0;
        let columns: Vec<Column> = columns
            .iter()
            .filter_map(|row| {
                let name = text(row, 0)?;
                let key = if unique && name == "name" { "PRI".to_owned() } else { text(row, 4)? };
                Some(Column {
                    key,
                    kind: text(row, 1)?,
                    digits: number(row, 2)?,
                    length: number(row, 3)?,
                    name,
                })
            })
            .collect();
        let length = |name: &str| {
            columns.iter().find(|column| column.name == name).map(|column| column.length).unwrap_or_default()
        };
        Ok(Shape {
            longest_name: length("name"),
            longest_holder: length("locked_by"),
            engine: text(made, 0).unwrap_or_default(),
            created: number(made, 1).unwrap_or_default(),
            age: number(made, 2).unwrap_or_default(),
            columns,
        })
    }

    fn check(&self, table: &str) -> Result<(), NodeError> {
        let wrong = |words: String| Err(misconfigured(words));
        for (name, kinds) in [
            ("name", ["varchar", "char"]),
            ("lock_until", ["timestamp", "datetime"]),
            ("locked_at", ["timestamp", "datetime"]),
            ("locked_by", ["varchar", "text"]),
        ] {
            let Some(column) = self.columns.iter().find(|column| column.name == name) else {
                return wrong(format!(
                    "the table `{table}` has no column `{name}`, and is none of ShedLock: its columns are those of {}",
                    create(table)
                ));
            };
            if !kinds.contains(&&*column.kind) {
                return wrong(format!(
                    "the column `{name}` of the table `{table}` is of the type {}, which is none of ShedLock: it should be as in \
                     {}",
                    column.kind,
                    create(table)
                ));
            }
            if kinds.contains(&"datetime") && column.digits < 3 {
                return wrong(format!(
                    "the column `{name}` of the table `{table}` has {} digits of a second, so that locks would end early: \
                     `ALTER TABLE {table} MODIFY {name} {}(3) NOT NULL`",
                    column.digits, column.kind
                ));
            }
            if name == "name" && column.key != "PRI" {
                return wrong(format!(
                    "two rows of the table `{table}` may have one name, so that nothing is excluded: `ALTER TABLE {table} ADD \
                     PRIMARY KEY (name)`"
                ));
            }
        }
        if !self.engine.eq_ignore_ascii_case("InnoDB") {
            return wrong(format!(
                "the table `{table}` has the engine {}, and a crash may lose its rows: `ALTER TABLE {table} ENGINE = InnoDB`",
                self.engine
            ));
        }
        if self.longest_holder < LEAST_LOCKED_BY {
            return wrong(format!(
                "the column `locked_by` of the table `{table}` takes {} characters, and tells one holder from another only with \
                 {LEAST_LOCKED_BY}: `ALTER TABLE {table} MODIFY locked_by VARCHAR(255) NOT NULL`",
                self.longest_holder
            ));
        }
        Ok(())
    }
}

/// The statement that makes such a table.
fn create(table: &str) -> String {
    format!(
        "`CREATE TABLE {table} (name VARCHAR(64) NOT NULL PRIMARY KEY, lock_until TIMESTAMP(3) NOT NULL, locked_at \
         TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL)`"
    )
}

fn misconfigured(words: String) -> NodeError {
    NodeError::Failed { kind: NodeErrorKind::Misconfigured, reason: words.into() }
}

/// Runs what a lock needs, on no row.
async fn try_rights(connection: &mut Connection, table: &str, server: &Server) -> Result<(), NodeError> {
    let columns = "name, lock_until, locked_at, locked_by";
    let statements = format!(
        "UPDATE {table} SET lock_until = lock_until WHERE 1 = 0; \
         INSERT INTO {table} ({columns}) SELECT {columns} FROM {table} WHERE 1 = 0"
    );
    match connection.run(statements).await {
        Ok(_) => Ok(()),
        Err(trouble) if trouble.is_denied() => {
            let words = format!(
                "the user may not use the table `{table}`: `GRANT SELECT, INSERT, UPDATE ON {table} TO {}`",
                server.quoted_user()
            );
            let kind = NodeErrorKind::PermissionDenied(Access::Key);
            Err(NodeError::Failed { kind, reason: words.into() })
        }
        Err(trouble) => Err(trouble.before_anything_changed()),
    }
}

/// Looks for a row that was locked by a clock that is ahead of the server's. By how much a clock is behind, no row
/// tells.
async fn other_clients(connection: &mut Connection, table: &str) -> Result<OtherClients, NodeError> {
    const WHO: &str = "is a table of ShedLock, whose providers go by the clocks of their hosts unless they are built with \
                       usingDbTime()";
    const CURE: &str = "see that every JdbcTemplateLockProvider there is built with usingDbTime(), that no other kind of \
                        provider uses the table, and that no client sets a time zone of its own for its sessions";
    let statement = format!(
        "SELECT name, locked_by, TIMESTAMPDIFF(MICROSECOND, {NOW}, locked_at) DIV 1000 FROM {table} \
         WHERE locked_at > TIMESTAMPADD(SECOND, 1, {NOW}) ORDER BY locked_at DESC LIMIT 1"
    );
    let sets = run(connection, statement).await?;
    let mut others = OtherClients::new(WHO, CURE);
    if let Some(row) = sets.first().and_then(|set| set.first())
        && let (Some(name), Some(holder), Some(ahead)) = (text(row, 0), text(row, 1), number(row, 2))
    {
        let shown = |text: &str| text.chars().filter(|c| !c.is_control()).take(80).collect::<String>();
        let ahead = quorlock::duration::format(Duration::from_millis(ahead));
        let (name, holder) = (shown(&name), shown(&holder));
        let clock = format!(
            "the lock `{name}` was taken by `{holder}` at a time that is {ahead} ahead of the server's clock"
        );
        others.clock = Some(clock.into());
    }
    Ok(others)
}

/// The clock of the server, as `ShedLock` writes it.
const NOW: &str = "UTC_TIMESTAMP(6)";

type Outcome = Result<Vote, Failed>;

/// Why there is no vote.
pub(crate) enum Failed {
    /// Nothing of the request was carried out.
    Refused(NodeError),
    /// The server or the connection failed, and may have carried it out.
    Trouble(Trouble),
}

impl From<Trouble> for Failed {
    fn from(trouble: Trouble) -> Failed {
        Failed::Trouble(trouble)
    }
}

impl Failed {
    /// What it means: an error of a packet may have come behind the statement that has changed the row.
    pub(crate) fn into_node_error(self) -> NodeError {
        match self {
            Failed::Refused(error) => error,
            Failed::Trouble(Trouble::Refused(refusal)) => {
                let error = refusal.into_node_error();
                if let NodeError::Failed { kind: NodeErrorKind::Other | NodeErrorKind::Busy, reason } = error
                {
                    NodeError::UnexpectedReply { reason }
                } else {
                    error
                }
            }
            Failed::Trouble(lost) => lost.into_node_error(),
        }
    }

    /// Why the connection is of no use any more, if it is.
    pub(crate) fn lost(&self) -> Option<NodeError> {
        if let Failed::Trouble(Trouble::Lost(reason)) = self {
            return Some(NodeError::Unreachable { reason: reason.clone() });
        }
        None
    }
}

/// Who has the row, and for how much longer.
struct Found {
    holder: Vec<u8>,
    left: Duration,
}

impl Table {
    /// Carries out a request.
    ///
    /// # Errors
    ///
    /// Why there is no vote.
    pub(crate) async fn carry_out(
        &self,
        connection: &mut Connection,
        request: &Request,
        tombstones: &mut Tombstones,
        now: Moment,
    ) -> Outcome {
        capabilities().check(request).map_err(Failed::Refused)?;
        match request {
            Request::Acquire { fence_hint: Some(_), .. }
            | Request::Transfer { fence_hint: Some(_), .. }
            | Request::WriteBack { .. }
            | Request::DeleteFencingCounter { .. } => Err(Failed::Refused(self.without_counter())),
            Request::Acquire { claim: to, .. }
            | Request::Renew { claim: to, .. }
            | Request::Transfer { to, .. }
                if tombstones.get(to.token()).is_some_and(|ends| *ends > now) =>
            {
                Ok(Vote::Free)
            }
            Request::Acquire { claim, ttl, .. } => self.grant(connection, claim, claim, *ttl).await,
            Request::Transfer { from, to, ttl, .. } => self.grant(connection, from, to, *ttl).await,
            Request::Renew { claim, ttl, .. } => self.renew(connection, claim, *ttl).await,
            Request::Release { claim } => self.give_back(connection, claim).await,
            Request::Cancel { claim, linger } => {
                tombstones.retain(|_, ends| *ends > now);
                tombstones.insert(claim.token().clone(), now + *linger);
                self.give_back(connection, claim).await
            }
            Request::Inspect { key } => {
                let name = self.name(key)?;
                let found = last_holder(connection.run(self.holder_of(&name)).await?)?;
                Ok(found.filter(|found| !found.left.is_zero()).map_or(Vote::Free, |found| held(&found)))
            }
            // Refused above, or newer than this node.
            Request::Enqueue { .. }
            | Request::LeaveQueue { .. }
            | Request::ListWaiters { .. }
            | Request::Offer { .. }
            | Request::AnnounceWriter { .. }
            | Request::WithdrawWriter { .. }
            | _ => {
                let reason = "a table of ShedLock does not know this request".into();
                Err(Failed::Refused(NodeError::Failed { kind: NodeErrorKind::Unsupported, reason }))
            }
        }
    }

    /// Grants a row that is free, or that `from` has, to `to`. What `to` has already is granted and not prolonged,
    /// unless it comes from another.
    async fn grant(&self, connection: &mut Connection, from: &Claim, to: &Claim, ttl: Duration) -> Outcome {
        let (name, holder, table) = (self.name(to.key())?, self.holder(to.token()), &self.name);
        let mut takes = format!("lock_until <= {NOW}");
        if from.token() != to.token() {
            takes = format!("({takes} OR locked_by = {} OR locked_by = {holder})", self.holder(from.token()));
        }
        let until = until(ttl);
        let packet = format!(
            "UPDATE {table} SET lock_until = IF(locked_by = {holder}, GREATEST(lock_until, {until}), {until}), locked_at = {NOW}, \
             locked_by = {holder} WHERE name = {name} AND {takes}; \
             INSERT INTO {table} (name, lock_until, locked_at, locked_by) VALUES ({name}, {until}, {NOW}, {holder}) \
             ON DUPLICATE KEY UPDATE name = name; {}",
            self.holder_of(&name)
        );
        let found = last_holder(connection.run(packet).await?)?;
        let found = found.ok_or_else(|| unread("a row that was there just now"))?;
        // No other attempt has this token.
        let ours = found.holder == self.holder_text(to.token()).into_bytes();
        Ok(if ours { Vote::Granted } else { held(&found) })
    }

    /// Prolongs what is held, and else stores a free key again and says so.
    async fn renew(&self, connection: &mut Connection, claim: &Claim, ttl: Duration) -> Outcome {
        let (name, holder, table) = (self.name(claim.key())?, self.holder(claim.token()), &self.name);
        let packet = format!(
            "UPDATE {table} SET lock_until = GREATEST(lock_until, {}) WHERE name = {name} AND locked_by = {holder} AND \
             lock_until > {NOW}; {}",
            until(ttl),
            self.holder_of(&name)
        );
        let found = last_holder(connection.run(packet).await?)?.filter(|found| !found.left.is_zero());
        match found {
            Some(found) if found.holder == self.holder_text(claim.token()).into_bytes() => Ok(Vote::Granted),
            Some(found) => Ok(held(&found)),
            None => {
                let stored = self.grant(connection, claim, claim, ttl).await?;
                Ok(if stored == Vote::Granted { Vote::Restored } else { stored })
            }
        }
    }

    /// Frees the row if the claim has it still.
    async fn give_back(&self, connection: &mut Connection, claim: &Claim) -> Outcome {
        let (name, holder, table) = (self.name(claim.key())?, self.holder(claim.token()), &self.name);
        let statement = format!(
            "UPDATE {table} SET lock_until = {NOW} WHERE name = {name} AND locked_by = {holder} AND lock_until > {NOW}"
        );
        Ok(if connection.change(statement).await? == 1 { Vote::Granted } else { Vote::Free })
    }

    fn holder_of(&self, name: &str) -> String {
        format!(
            "SELECT CONVERT(locked_by USING utf8mb4), GREATEST(0, TIMESTAMPDIFF(MICROSECOND, {NOW}, lock_until)) FROM {} \
             WHERE name = {name}",
            self.name
        )
    }

    /// The name of a row, which is that of the resource, as a statement has it.
    fn name(&self, key: &str) -> Result<String, Failed> {
        let length = key.chars().count();
        if u64::try_from(length).unwrap_or(u64::MAX) > self.longest_name {
            let words = format!(
                "the name of the lock has {length} characters, and the column `name` of `{}` takes {}: use a shorter one",
                self.name, self.longest_name
            );
            let error = NodeError::Failed { kind: NodeErrorKind::Unsupported, reason: words.into() };
            return Err(Failed::Refused(error));
        }
        Ok(characters(key))
    }

    /// What the column `locked_by` has: the token, of which its random part comes first.
    fn holder_text(&self, token: &Token) -> String {
        let text = String::from_utf8_lossy(token.as_bytes());
        text.chars().take(usize::try_from(self.longest_holder).unwrap_or(usize::MAX)).collect()
    }

    fn holder(&self, token: &Token) -> String {
        characters(&self.holder_text(token))
    }

    fn without_counter(&self) -> NodeError {
        let words = format!(
            "the table `{}` of ShedLock has no counter of fencing tokens: turn them off, by `--fencing off` or \
             `Lock::fencing(Fencing::Off)`",
            self.name
        );
        NodeError::Failed { kind: NodeErrorKind::Unsupported, reason: Reason::new(words) }
    }
}

/// Reads the last of the sets: who has the row, and for how much longer.
fn last_holder(mut sets: Vec<Vec<SqlRow>>) -> Result<Option<Found>, Failed> {
    let Some(row) = sets.pop().and_then(|set| set.into_iter().next()) else { return Ok(None) };
    let (Some(holder), Some(left)) = (bytes(&row, 0), number(&row, 1)) else {
        return Err(unread("the holder of a lock").into());
    };
    Ok(Some(Found { holder: holder.to_vec(), left: Duration::from_micros(left) }))
}

/// Text in a statement, which is compared as the column is.
fn characters(text: &str) -> String {
    format!("_utf8mb4 {}", literal(text.as_bytes()))
}

/// The end of a lock. A column of thousandths of a second cuts up to one of them off, which a lease allows for.
fn until(ttl: Duration) -> String {
    // A hundred years keep every sum in the range of a time.
    const MOST: u64 = 100 * 366 * 24 * 3600 * 1_000_000;
    let micros = u64::try_from(ttl.as_nanos().div_ceil(1000)).unwrap_or(MOST).min(MOST);
    format!("TIMESTAMPADD(MICROSECOND, {micros}, {NOW})")
}

fn held(found: &Found) -> Vote {
    Holding::new(Token::found(&found.holder), Expiry::In(found.left)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_named_as_shedlock_names_it() {
        assert_eq!(&*Layout::of("jobs.ShedLock").unwrap().table, "jobs.ShedLock");
        for wrong in ["", "a.b.c", "a b", "a\"b", "a;b", "1a", ".a", "a."] {
            assert!(Layout::of(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_time_is_never_rounded_down() {
        assert_eq!(until(Duration::from_nanos(1)), "TIMESTAMPADD(MICROSECOND, 1, UTC_TIMESTAMP(6))");
        assert!(until(Duration::MAX).contains("3162240000000000"));
    }
}
