//! `ShedLock`'s table, for nodes on SQL databases: `?layout=shedlock`.
//!
//! The table belongs to `ShedLock`, whose clients lock with the same columns by the clock of the server
//! (`usingDbTime()`): this program neither creates nor alters it. It has no columns for fencing tokens, a queue or
//! tombstones. Late requests are refused in two other ways: a new connection ends the previous one, and cancelled
//! attempts are remembered in this process.
//!
//! What a table must look like and what is asked of its rows is decided here. A node brings its [`Dialect`], the
//! statements for each [`Verb`], and the end of the previous connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{Claim, Moment, Token, printable};

use super::facts::OtherClients;
use super::{Access, Capabilities, Capability, NodeError, NodeErrorKind, Order, Request, Vote};

/// The row that `doctor` uses; it is not deleted.
pub const CHECKED: &str = "quorlock-doctor";
/// The columns, ordered by name.
pub const COLUMNS: [&str; 4] = ["lock_until", "locked_at", "locked_by", "name"];
/// The name in `ShedLock`'s documentation.
const USUAL_TABLE: &str = "shedlock";
/// A shorter column might truncate the part that distinguishes attempts.
const LEAST_LOCKED_BY: usize = 64;

/// Cancelled attempts, and until when each is remembered.
pub type Tombstones = HashMap<Token, Moment>;

/// What nodes on such a table can do.
#[must_use]
pub fn capabilities() -> Capabilities {
    Capabilities::default().with(Capability::Transfer).in_order(Order::PerKey).durable().shared_with_others()
}

/// Returns the name of the table in a URL, optionally qualified. `None` if it needs quotes, which `ShedLock` does not
/// add.
#[must_use]
pub fn table_name(named: Option<&str>) -> Option<Arc<str>> {
    let name = named.unwrap_or(USUAL_TABLE);
    let plain = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    (name.split('.').count() <= 2 && name.split('.').all(plain)).then(|| name.into())
}

/// What differs between databases in the table and in the words about it.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "a database has all of it")]
pub struct Dialect {
    /// The types that `lock_until` and `locked_at` may have, as the catalogue names them.
    pub times: &'static [&'static str],
    /// Those of `locked_by`, and those of `name`.
    pub texts: [&'static [&'static str]; 2],
    /// The columns of the statement that creates the table.
    pub columns: &'static str,
    /// What follows `ALTER TABLE` to give `{column}` the type `{type}`.
    pub alter: &'static str,
    /// What to do about clients with clocks of their own.
    pub clocks: &'static str,
}

/// What the catalogue says about a column.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "nodes read it")]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type, without length.
    pub kind: String,
    /// The digits of a second that a time has; `None` for all.
    pub digits: Option<usize>,
    /// The maximum length of a text in characters; `None` if unlimited.
    pub length: Option<usize>,
}

/// What the catalogue says about the table.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "nodes read it")]
pub struct Shape {
    /// Those of [`COLUMNS`] that it has.
    pub columns: Vec<Column>,
    /// Whether names are unique.
    pub unique: bool,
    /// Why a crash may lose its rows, if it may: a predicate, and what follows `ALTER TABLE` to end that.
    pub volatile: Option<(String, &'static str)>,
}

/// The table as a connection has found it.
#[derive(Clone, Debug)]
pub struct Table {
    name: Arc<str>,
    longest_name: Option<usize>,
    longest_holder: Option<usize>,
}

/// What a request asks of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: what the table can do")]
pub enum Verb {
    /// Stores the holder if the row is free. A holder that has it is granted it without extending it.
    Acquire,
    /// Extends what is held; otherwise stores a free key again and reports that.
    Renew,
    /// Stores the holder if the row is free or has the previous one.
    Transfer,
    /// Frees the row if it has the holder.
    Release,
    /// Reads the holder.
    Inspect,
}

/// How a request is carried out.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum Plan {
    /// By statements.
    Ask(Ask),
    /// The vote is known without a statement: the claim was cancelled.
    Cancelled(Vote),
}

/// A verb with the values of its row.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "nodes take it apart")]
pub struct Ask {
    /// What to do.
    pub verb: Verb,
    /// The name of the row, which is the name of the resource.
    pub name: String,
    /// The value of `locked_by`; empty to inspect.
    pub holder: String,
    /// The holder before a transfer; otherwise the same.
    pub from: String,
    /// The TTL in microseconds.
    pub micros: i64,
}

impl Table {
    /// Checks the shape of a table.
    ///
    /// # Errors
    ///
    /// What is wrong with the table, with the statement that fixes it.
    pub fn checked(name: &Arc<str>, shape: &Shape, dialect: &Dialect) -> Result<Table, NodeError> {
        let wrong = |words: String| Err(failed(NodeErrorKind::Misconfigured, words));
        let found = |wanted: &str| shape.columns.iter().find(|column| column.name == wanted);
        let alter = |column: &str, kind: &str| {
            let change = dialect.alter.replace("{column}", column).replace("{type}", kind);
            format!("`ALTER TABLE {name} {change}`")
        };
        let create = dialect.create(name);
        let [holders, names] = dialect.texts;
        for (wanted, kinds) in COLUMNS.into_iter().zip([dialect.times, dialect.times, holders, names]) {
            let Some(column) = found(wanted) else {
                return wrong(format!(
                    "the table `{name}` has no column `{wanted}`, and is not a table of ShedLock; expected are the \
                     columns of {create}"
                ));
            };
            let (kind, digits) = (&column.kind, column.digits.unwrap_or(6));
            if !kinds.contains(&&**kind) {
                return wrong(format!(
                    "the column `{wanted}` of the table `{name}` has the type {kind}, which ShedLock does not use (a \
                     time with a zone would mean another moment to clients in another zone): it should be as in {create}"
                ));
            }
            if kinds == dialect.times && digits < 3 {
                let kind = kind.split(' ').next().unwrap_or_default();
                return wrong(format!(
                    "the column `{wanted}` of the table `{name}` has {digits} digits of a second, so that locks would \
                     expire early: {}",
                    alter(wanted, &format!("{kind}(3)"))
                ));
            }
        }
        if !shape.unique {
            return wrong(format!(
                "two rows of the table `{name}` may have the same name, so that nothing is excluded: `ALTER TABLE \
                 {name} ADD PRIMARY KEY (name)`"
            ));
        }
        if let Some((volatile, cure)) = &shape.volatile {
            return wrong(format!("the table `{name}` {volatile}: `ALTER TABLE {name} {cure}`"));
        }
        let length = |wanted| found(wanted).and_then(|column| column.length);
        let (longest_name, longest_holder) = (length("name"), length("locked_by"));
        if let Some(most) = longest_holder.filter(|most| *most < LEAST_LOCKED_BY) {
            return wrong(format!(
                "the column `locked_by` of the table `{name}` takes {most} characters, and distinguishes holders only \
                 with {LEAST_LOCKED_BY}: {}",
                alter("locked_by", "varchar(255)")
            ));
        }
        Ok(Table { name: Arc::clone(name), longest_name, longest_holder })
    }

    /// Its name, as the URL has it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Plans a request.
    ///
    /// # Errors
    ///
    /// If the table does not support the request.
    #[expect(clippy::wildcard_enum_match_arm, reason = "refused above, or newer than this node")]
    pub fn plan(
        &self,
        request: &Request,
        tombstones: &mut Tombstones,
        now: Moment,
    ) -> Result<Plan, NodeError> {
        capabilities().check(request)?;
        let none = Duration::ZERO;
        let (verb, from, to, ttl) = match request {
            Request::Acquire { fence_hint: Some(_), .. }
            | Request::Transfer { fence_hint: Some(_), .. }
            | Request::WriteBack { .. } => {
                let words = format!(
                    "the table `{}` of ShedLock has no counter of fencing tokens: turn fencing off, by `--fencing \
                     off` or `Lock::unfenced`; an election cannot do without them, and needs nodes of another kind",
                    self.name
                );
                return Err(failed(NodeErrorKind::Unsupported, words));
            }
            Request::Acquire { claim, ttl, .. } => (Verb::Acquire, claim, claim, *ttl),
            Request::Renew { claim, ttl, .. } => (Verb::Renew, claim, claim, *ttl),
            Request::Transfer { from, to, ttl, .. } => (Verb::Transfer, from, to, *ttl),
            Request::Release { claim } => (Verb::Release, claim, claim, none),
            Request::Cancel { claim, linger } => {
                tombstones.retain(|_, ends| *ends > now);
                tombstones.insert(claim.token().clone(), now + *linger);
                (Verb::Release, claim, claim, none)
            }
            Request::Inspect { key, .. } => {
                let (name, holder, from) = (self.name_of(key)?, String::new(), String::new());
                return Ok(Plan::Ask(Ask { verb: Verb::Inspect, name, holder, from, micros: 0 }));
            }
            _ => {
                let words = "a table of ShedLock does not know this request".to_owned();
                return Err(failed(NodeErrorKind::Unsupported, words));
            }
        };
        if verb != Verb::Release && tombstones.get(to.token()).is_some_and(|ends| *ends > now) {
            return Ok(Plan::Cancelled(Vote::Free));
        }
        let (name, holder, from) = (self.name_of(to.key())?, self.holder(to), self.holder(from));
        Ok(Plan::Ask(Ask { verb, name, holder, from, micros: micros(ttl) }))
    }

    fn name_of(&self, key: &str) -> Result<String, NodeError> {
        let length = key.chars().count();
        if let Some(most) = self.longest_name.filter(|most| length > *most) {
            let words = format!(
                "the name of the lock has {length} characters, and the column `name` of `{}` takes {most}: use a \
                 shorter one",
                self.name
            );
            return Err(failed(NodeErrorKind::Unsupported, words));
        }
        Ok(key.to_owned())
    }

    /// Returns the value of `locked_by`: the token, which begins with its random part.
    fn holder(&self, claim: &Claim) -> String {
        let text = String::from_utf8_lossy(claim.token().as_bytes()).replace('\0', "");
        text.chars().take(self.longest_holder.unwrap_or(usize::MAX)).collect()
    }
}

impl Dialect {
    /// Returns the statement that creates the table.
    fn create(&self, table: &str) -> String {
        format!("`CREATE TABLE {table} ({})`", self.columns)
    }

    /// The error if there is no such table.
    #[must_use]
    pub fn missing(&self, table: &str) -> NodeError {
        let words = format!(
            "there is no table `{table}` of ShedLock in the database, and this program does not create it: run {}, or \
             name another one by `&table=`",
            self.create(table)
        );
        failed(NodeErrorKind::Misconfigured, words)
    }

    /// Describes the other clients of the table, with the row that was locked by a clock ahead of the server's: name,
    /// holder, and how far ahead. No row shows a clock that is behind.
    #[must_use]
    pub fn other_clients(&self, ahead: Option<(String, String, Duration)>) -> OtherClients {
        const WHO: &str = "is a table of ShedLock, whose providers use the clocks of their hosts unless they are built \
                           with usingDbTime()";
        let mut others = OtherClients::new(WHO, self.clocks);
        others.clock = ahead.map(|(name, holder, ahead)| {
            let (name, holder) = (printable(&name).cut(80), printable(&holder).cut(80));
            let ahead = crate::duration::format(ahead);
            let clock = format!(
                "the lock `{name}` was taken by `{holder}` at a time that is {ahead} ahead of the server's clock"
            );
            clock.into()
        });
        others
    }
}

/// The error if this user lacks a privilege.
#[must_use]
pub fn denied(table: &str, user: &str) -> NodeError {
    let words = format!(
        "the user may not use the table `{table}`: `GRANT SELECT, INSERT, UPDATE ON {table} TO {user}`"
    );
    failed(NodeErrorKind::PermissionDenied(Access::Key), words)
}

fn failed(kind: NodeErrorKind, words: String) -> NodeError {
    NodeError::Failed { kind, reason: words.into() }
}

/// Rounds up, so that a TTL is never shortened. At most a hundred years, so that no sum overflows.
fn micros(time: Duration) -> i64 {
    const MOST: i64 = 100 * 366 * 24 * 3600 * 1_000_000;
    i64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(MOST).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_named_as_shedlock_names_it() {
        assert_eq!(table_name(None).as_deref(), Some("shedlock"));
        assert_eq!(table_name(Some("jobs.ShedLock")).as_deref(), Some("jobs.ShedLock"));
        for wrong in ["", "a.b.c", "a b", "a\"b", "a;b", "1a", ".a", "a."] {
            assert!(table_name(Some(wrong)).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_time_is_never_rounded_down() {
        assert_eq!(micros(Duration::from_nanos(1)), 1);
        assert_eq!(micros(Duration::MAX), 3_162_240_000_000_000);
    }
}
