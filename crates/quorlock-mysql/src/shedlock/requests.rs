//! Requests as statements on the table's rows.

use std::time::Duration;

use quorlock::node::shedlock::{Ask, Plan, Table, Tombstones, Verb};
use quorlock::node::{Expiry, Holding, NodeError, NodeErrorKind, Request, Vote};
use quorlock::protocol::{Moment, Token};

use super::NOW;
use crate::connection::{Connection, ResultSets};
use crate::error::Failure;
use crate::table::{bytes, literal, number, unread};

type Outcome = Result<Vote, Failure>;

/// The holder of the row, and the remaining time.
struct Holder {
    holder: Vec<u8>,
    left: Duration,
}

/// Carries out a request.
///
/// # Errors
///
/// Why there is no vote. A packet may have failed after the statement that changed the row.
pub(crate) async fn execute(
    table: &Table,
    connection: &mut Connection,
    request: &Request,
    tombstones: &mut Tombstones,
    now: Moment,
) -> Result<Vote, NodeError> {
    let ask = match table.plan(request, tombstones, now)? {
        Plan::Ask(ask) => ask,
        Plan::Cancelled(vote) => return Ok(vote),
    };
    let (name, holder) = (characters(&ask.name), characters(&ask.holder));
    let row = RowOf { table: table.name(), name, holder, ask };
    row.execute(connection).await.map_err(|failure| {
        let error = failure.into_node_error();
        if let NodeError::Failed { kind: NodeErrorKind::Other | NodeErrorKind::Busy, reason } = error {
            return NodeError::UnexpectedReply { reason };
        }
        error
    })
}

/// A row, with name and holder as SQL literals.
struct RowOf<'a> {
    table: &'a str,
    name: String,
    holder: String,
    ask: Ask,
}

impl RowOf<'_> {
    async fn execute(&self, connection: &mut Connection) -> Outcome {
        match self.ask.verb {
            Verb::Acquire | Verb::Transfer => self.grant(connection).await,
            Verb::Renew => self.renew(connection).await,
            Verb::Release => self.give_back(connection).await,
            Verb::Inspect => {
                let found = last_holder(connection.run(self.holder_of()).await?)?;
                Ok(found.filter(|found| !found.left.is_zero()).map_or(Vote::Free, |found| held(&found)))
            }
        }
    }

    /// Grants a row that is free, or that the holder before has. A row that the holder already has is granted
    /// without extending it, unless this is a transfer.
    async fn grant(&self, connection: &mut Connection) -> Outcome {
        let RowOf { table, name, holder, ask } = self;
        let mut takes = format!("lock_until <= {NOW}");
        if ask.from != ask.holder {
            takes = format!("({takes} OR locked_by = {} OR locked_by = {holder})", characters(&ask.from));
        }
        let until = self.until();
        let packet = format!(
            "UPDATE {table} SET lock_until = IF(locked_by = {holder}, GREATEST(lock_until, {until}), {until}), locked_at = {NOW}, \
             locked_by = {holder} WHERE name = {name} AND {takes}; \
             INSERT INTO {table} (name, lock_until, locked_at, locked_by) VALUES ({name}, {until}, {NOW}, {holder}) \
             ON DUPLICATE KEY UPDATE name = name; {}",
            self.holder_of()
        );
        let found = last_holder(connection.run(packet).await?)?;
        let found = found.ok_or_else(|| unread("a row that was there just now"))?;
        Ok(if self.is_ours(&found) { Vote::Granted } else { held(&found) })
    }

    /// Extends what is held; otherwise stores a free key again and reports that.
    async fn renew(&self, connection: &mut Connection) -> Outcome {
        let RowOf { table, name, holder, .. } = self;
        let packet = format!(
            "UPDATE {table} SET lock_until = GREATEST(lock_until, {}) WHERE name = {name} AND locked_by = {holder} AND \
             lock_until > {NOW}; {}",
            self.until(),
            self.holder_of()
        );
        let found = last_holder(connection.run(packet).await?)?.filter(|found| !found.left.is_zero());
        match found {
            Some(found) if self.is_ours(&found) => Ok(Vote::Granted),
            Some(found) => Ok(held(&found)),
            None => {
                let stored = self.grant(connection).await?;
                Ok(if stored == Vote::Granted { Vote::Restored } else { stored })
            }
        }
    }

    /// Frees the row if the claim still holds it.
    async fn give_back(&self, connection: &mut Connection) -> Outcome {
        let RowOf { table, name, holder, .. } = self;
        let statement = format!(
            "UPDATE {table} SET lock_until = {NOW} WHERE name = {name} AND locked_by = {holder} AND lock_until > {NOW}"
        );
        Ok(if connection.change(statement).await? == 1 { Vote::Granted } else { Vote::Free })
    }

    fn holder_of(&self) -> String {
        format!(
            "SELECT CONVERT(locked_by USING utf8mb4), GREATEST(0, TIMESTAMPDIFF(MICROSECOND, {NOW}, lock_until)) FROM {} \
             WHERE name = {}",
            self.table, self.name
        )
    }

    /// Returns the expiry as SQL. A column with milliseconds truncates up to one of them, which a lease allows for.
    fn until(&self) -> String {
        format!("TIMESTAMPADD(MICROSECOND, {}, {NOW})", self.ask.micros)
    }

    /// Whether it is the token of this request, which no other attempt has.
    fn is_ours(&self, found: &Holder) -> bool {
        found.holder == self.ask.holder.as_bytes()
    }
}

/// Reads the last result set: the holder of the row, and the remaining time.
fn last_holder(mut sets: ResultSets) -> Result<Option<Holder>, Failure> {
    let Some(row) = sets.pop().and_then(|set| set.into_iter().next()) else { return Ok(None) };
    let (Some(holder), Some(left)) = (bytes(&row, 0), number(&row, 1)) else {
        return Err(unread("the holder of a lock"));
    };
    Ok(Some(Holder { holder: holder.to_vec(), left: Duration::from_micros(left) }))
}

/// Returns a text literal, which is compared by the collation of the column.
fn characters(text: &str) -> String {
    format!("_utf8mb4 {}", literal(text.as_bytes()))
}

fn held(found: &Holder) -> Vote {
    Holding::new(Token::found(&found.holder), Expiry::In(found.left)).into()
}
