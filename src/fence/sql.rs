//! The check in SQL databases.
//!
//! # A column
//!
//! Where each write is of one row, the row gets a column `fencing_token BIGINT NOT NULL DEFAULT 0`, and
//! every write a condition. Not nullable, because a comparison with `NULL` is never true.
//!
//! ```sql
//! UPDATE account SET balance = :balance, fencing_token = :token
//!  WHERE id = :id AND fencing_token <= :token
//! ```
//!
//! No row written: a later holder was there, or the row is not. Where it may not exist yet, the
//! first write and the later ones are the same statement, and then no row means stale:
//!
//! ```sql
//! INSERT INTO account (id, balance, fencing_token) VALUES (:id, :balance, :token)
//!     ON CONFLICT (id) DO UPDATE SET balance = excluded.balance, fencing_token = excluded.fencing_token
//!     WHERE account.fencing_token <= excluded.fencing_token
//! ```
//!
//! A holder that reads before it writes shows the token first, which can be the same statement:
//!
//! ```sql
//! UPDATE account SET fencing_token = :token WHERE id = :id AND fencing_token <= :token RETURNING balance
//! ```
//!
//! A `DELETE` takes the mark with it, and an `INSERT` that comes late finds nothing to compare with:
//! mark rows as deleted, or use the guard table. A statement for several rows can write some and
//! miss others: the same advice.
//!
//! # The guard table
//!
//! Where a holder writes to several rows or tables, the mark gets a row of its own:
//! [`CREATE_GUARD_TABLE`] once, and [`GUARD`] at the beginning of every transaction. When it writes
//! no row, roll back.
//!
//! # Isolation
//!
//! *A column:* `READ COMMITTED` suffices, as long as condition and change are one statement. It locks
//! the row; if it had to wait for another transaction, it tests the condition again on what that one
//! has left ([PostgreSQL][read-committed]). A `SELECT` of the largest token and an `UPDATE` after it are two
//! statements, and another client can write between them, unless the first says `FOR UPDATE`.
//!
//! *The guard table:* `READ COMMITTED` again. The statement locks the resource's row until the end of
//! the transaction, also when its condition fails. When there is no row yet it locks the place for
//! one, by the unique index. So the transactions of one resource come one after the other from their
//! guard to their commit, in the order of their tokens. That is why it has to be the first statement:
//! only what is read after it is protected.
//!
//! *`REPEATABLE READ` and `SERIALIZABLE`* are as safe. Who had to wait gets a serialization failure
//! (40001) instead of an answer: run the transaction again with the same token.
//!
//! *SQLite* has one writer at a time. The guard as the first statement makes the transaction that
//! writer; others wait for their `busy_timeout`.
//!
//! *MySQL and MariaDB* take the conditional `UPDATE`. Connect with `CLIENT_FOUND_ROWS`, or the same
//! holder that writes the same values twice gets zero changed rows. They have no
//! `ON CONFLICT … WHERE`: insert the row of the guard table beforehand, with token 0, and use the
//! `UPDATE`.
//!
//! All of this is about one database. A replica that is promoted without the last commits has lost
//! data and mark together: the order holds from there on, and what was lost is lost.
//!
//! [read-committed]: https://www.postgresql.org/docs/current/transaction-iso.html#XACT-READ-COMMITTED

use super::Stale;
use quorlock_protocol::FencingToken;

/// Makes the guard table, unless it is there. For PostgreSQL and SQLite.
///
/// # Examples
///
/// ```
/// # use quorlock::fence::sql;
/// let database = rusqlite::Connection::open_in_memory()?;
/// database.execute_batch(sql::CREATE_GUARD_TABLE)?;
/// database.execute_batch(sql::CREATE_GUARD_TABLE)?; // changes nothing
/// # Ok::<(), rusqlite::Error>(())
/// ```
pub const CREATE_GUARD_TABLE: &str = "\
CREATE TABLE IF NOT EXISTS quorlock_fence (
    resource TEXT NOT NULL PRIMARY KEY,
    fencing_token BIGINT NOT NULL
)";

/// Shows a token to the guard table: parameter 1 is the name of the lock, 2 its token. Writes one
/// row, or none if a larger token was there. Unchanged for PostgreSQL from 9.5 and SQLite from
/// 3.24.
///
/// # Examples
///
/// ```
/// use quorlock::fence::{Stale, sql};
/// use quorlock::FencingToken;
/// # use rusqlite::{Connection, params};
///
/// fn pay_in(database: &mut Connection, token: FencingToken, amount: i64) -> Result<(), Box<dyn std::error::Error>> {
///     let transaction = database.transaction()?;
///     let rows = transaction.execute(sql::GUARD, params!["account/7", i64::from(token)])?;
///     sql::written(rows, token)?; // an error here drops the transaction, which rolls it back
///     transaction.execute("UPDATE account SET balance = balance + ?1", [amount])?;
///     transaction.execute("INSERT INTO journal (amount) VALUES (?1)", [amount])?;
///     Ok(transaction.commit()?)
/// }
///
/// # let mut database = Connection::open_in_memory()?;
/// # database.execute_batch(sql::CREATE_GUARD_TABLE)?;
/// # database.execute_batch("CREATE TABLE account (balance BIGINT); INSERT INTO account VALUES (100); CREATE TABLE journal (amount BIGINT)")?;
/// pay_in(&mut database, "34".parse()?, 50)?;
/// assert!(pay_in(&mut database, "33".parse()?, -30).is_err_and(|error| error.is::<Stale>()));
/// # let balance: i64 = database.query_row("SELECT balance FROM account", [], |row| row.get(0))?;
/// # assert_eq!(balance, 150);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub const GUARD: &str = "\
INSERT INTO quorlock_fence (resource, fencing_token) VALUES ($1, $2)
    ON CONFLICT (resource) DO UPDATE SET fencing_token = excluded.fencing_token
    WHERE quorlock_fence.fencing_token <= excluded.fencing_token";

/// Turns the number of rows that a guarded statement has written into an answer: none means that it
/// was refused. `rows` is of whatever type the database client has for it.
///
/// # Errors
///
/// [`Stale`] for no row; also for a negative number, by which some clients say that they do not
/// know.
///
/// # Examples
///
/// ```
/// # use quorlock::{FencingToken, fence::sql};
/// # let database = rusqlite::Connection::open_in_memory()?;
/// # database.execute_batch("CREATE TABLE account (balance BIGINT, fencing_token BIGINT NOT NULL DEFAULT 0); INSERT INTO account VALUES (100, 34)")?;
/// let token: FencingToken = "33".parse()?;
/// let rows = database.execute(
///     "UPDATE account SET balance = 70, fencing_token = ?1 WHERE fencing_token <= ?1",
///     [i64::from(token)],
/// )?;
/// assert!(sql::written(rows, token).is_err(), "34 was there before");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn written(rows: impl TryInto<u64>, token: FencingToken) -> Result<(), Stale> {
    match rows.try_into() {
        Ok(0) | Err(_) => Err(Stale { token, newest: None }),
        Ok(_) => Ok(()),
    }
}

/// As [`written`], for a guarded statement that ends in `RETURNING`: no row means that it was
/// refused.
///
/// # Errors
///
/// [`Stale`] for `None`.
///
/// # Examples
///
/// ```
/// use rusqlite::OptionalExtension as _;
/// # use quorlock::{FencingToken, fence::sql};
/// # let database = rusqlite::Connection::open_in_memory()?;
/// # database.execute_batch("CREATE TABLE account (balance BIGINT, fencing_token BIGINT NOT NULL DEFAULT 0); INSERT INTO account VALUES (100, 33)")?;
/// let token: FencingToken = "34".parse()?;
/// let row = database.query_row(
///     "UPDATE account SET fencing_token = ?1 WHERE fencing_token <= ?1 RETURNING balance",
///     [i64::from(token)],
///     |row| row.get::<_, i64>(0),
/// );
/// let balance = sql::returned(row.optional()?, token)?; // and no holder before 34 can change it now
/// assert_eq!(balance, 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn returned<Row>(row: Option<Row>, token: FencingToken) -> Result<Row, Stale> {
    row.ok_or(Stale { token, newest: None })
}
