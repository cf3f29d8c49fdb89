//! Checks the table's columns, and the user's privileges on it.

use quorlock::node::{Access, NodeError, NodeErrorKind};

use super::{LEAST_LOCKED_BY, run};
use crate::connection::Connection;
use crate::server::Server;
use crate::table::{number, text, unread};

/// What the catalogue says about the table.
pub(super) struct Shape {
    /// The name, type, fractional digits, length and key of each column.
    columns: Vec<Column>,
    engine: String,
    pub(super) longest_name: u64,
    pub(super) longest_holder: u64,
    /// When it was created, and how many seconds ago.
    pub(super) created: u64,
    pub(super) age: u64,
}

struct Column {
    name: String,
    kind: String,
    digits: u64,
    length: u64,
    key: String,
}

impl Shape {
    pub(super) async fn read(connection: &mut Connection, table: &str) -> Result<Shape, NodeError> {
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

    pub(super) fn check(&self, table: &str) -> Result<(), NodeError> {
        let wrong = |words: String| Err(misconfigured(words));
        for (name, kinds) in [
            ("name", ["varchar", "char"]),
            ("lock_until", ["timestamp", "datetime"]),
            ("locked_at", ["timestamp", "datetime"]),
            ("locked_by", ["varchar", "text"]),
        ] {
            let Some(column) = self.columns.iter().find(|column| column.name == name) else {
                return wrong(format!(
                    "the table `{table}` has no column `{name}`, and is not a table of ShedLock; expected are the columns of {}",
                    create(table)
                ));
            };
            if !kinds.contains(&&*column.kind) {
                return wrong(format!(
                    "the column `{name}` of the table `{table}` has the type {}, which ShedLock does not use: it should be as in \
                     {}",
                    column.kind,
                    create(table)
                ));
            }
            if kinds.contains(&"datetime") && column.digits < 3 {
                return wrong(format!(
                    "the column `{name}` of the table `{table}` has {} digits of a second, so that locks would expire early: \
                     `ALTER TABLE {table} MODIFY {name} {}(3) NOT NULL`",
                    column.digits, column.kind
                ));
            }
            if name == "name" && column.key != "PRI" {
                return wrong(format!(
                    "two rows of the table `{table}` may have the same name, so that nothing is excluded: `ALTER TABLE {table} ADD \
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
                "the column `locked_by` of the table `{table}` takes {} characters, and distinguishes holders only with \
                 {LEAST_LOCKED_BY}: `ALTER TABLE {table} MODIFY locked_by VARCHAR(255) NOT NULL`",
                self.longest_holder
            ));
        }
        Ok(())
    }
}

/// Returns the statement that creates the table.
fn create(table: &str) -> String {
    format!(
        "`CREATE TABLE {table} (name VARCHAR(64) NOT NULL PRIMARY KEY, lock_until TIMESTAMP(3) NOT NULL, locked_at \
         TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL)`"
    )
}

fn misconfigured(words: String) -> NodeError {
    NodeError::Failed { kind: NodeErrorKind::Misconfigured, reason: words.into() }
}

/// Runs the statements that a lock needs, without matching any row.
pub(super) async fn try_rights(
    connection: &mut Connection,
    table: &str,
    server: &Server,
) -> Result<(), NodeError> {
    let columns = "name, lock_until, locked_at, locked_by";
    let statements = format!(
        "UPDATE {table} SET lock_until = lock_until WHERE 1 = 0; \
         INSERT INTO {table} ({columns}) SELECT {columns} FROM {table} WHERE 1 = 0"
    );
    match connection.run(statements).await {
        Ok(_) => Ok(()),
        Err(failure) if failure.is_denied() => {
            let words = format!(
                "the user may not use the table `{table}`: `GRANT SELECT, INSERT, UPDATE ON {table} TO {}`",
                server.quoted_user()
            );
            let kind = NodeErrorKind::PermissionDenied(Access::Key);
            Err(NodeError::Failed { kind, reason: words.into() })
        }
        Err(failure) => Err(failure.before_anything_changed()),
    }
}
