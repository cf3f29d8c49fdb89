//! Requests as statements on the table's rows.

use std::time::Duration;

use quorlock::node::{Expiry, Holding, NodeError, NodeErrorKind, Reason, Request, Vote};
use quorlock::protocol::{Claim, Moment, Token};

use super::{NOW, Table, Tombstones, capabilities};
use crate::connection::{Connection, ResultSets};
use crate::error::Failure;
use crate::table::{bytes, literal, number, unread};

type Outcome = Result<Vote, Failed>;

/// Why there is no vote.
pub(crate) enum Failed {
    /// Nothing of the request was executed.
    Refused(NodeError),
    /// The server or the connection failed; the request may have been executed.
    Failure(Failure),
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Failed {
        Failed::Failure(failure)
    }
}

impl Failed {
    /// Converts to the error of the request: a packet may have failed after the statement that changed the
    /// row.
    pub(crate) fn into_node_error(self) -> NodeError {
        match self {
            Failed::Refused(error) => error,
            Failed::Failure(Failure::Refused(refusal)) => {
                let error = refusal.into_node_error();
                if let NodeError::Failed { kind: NodeErrorKind::Other | NodeErrorKind::Busy, reason } = error
                {
                    NodeError::UnexpectedReply { reason }
                } else {
                    error
                }
            }
            Failed::Failure(lost) => lost.into_node_error(),
        }
    }

    /// Returns why the connection is unusable, if it is.
    pub(crate) fn lost(&self) -> Option<NodeError> {
        if let Failed::Failure(Failure::Lost(reason)) = self {
            return Some(NodeError::Unreachable { reason: reason.clone() });
        }
        None
    }
}

/// The holder of the row, and the remaining time.
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
    #[expect(clippy::wildcard_enum_match_arm, reason = "refused above, or newer than this node")]
    pub(crate) async fn execute(
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
            | Request::WriteBack { .. } => Err(Failed::Refused(self.without_counter())),
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
            Request::Inspect { key, .. } => {
                let name = self.name(key)?;
                let found = last_holder(connection.run(self.holder_of(&name)).await?)?;
                Ok(found.filter(|found| !found.left.is_zero()).map_or(Vote::Free, |found| held(&found)))
            }
            _ => {
                let reason = "a table of ShedLock does not know this request".into();
                Err(Failed::Refused(NodeError::Failed { kind: NodeErrorKind::Unsupported, reason }))
            }
        }
    }

    /// Grants a row that is free, or that `from` holds, to `to`. A row that `to` already holds is granted
    /// without extending it, unless this is a transfer.
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

    /// Extends what is held; otherwise stores a free key again and reports that.
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

    /// Frees the row if the claim still holds it.
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

    /// Returns the name of the row, which is the name of the resource, as an SQL literal.
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

    /// Returns the value of `locked_by`: the token, which begins with its random part.
    fn holder_text(&self, token: &Token) -> String {
        let text = String::from_utf8_lossy(token.as_bytes());
        text.chars().take(usize::try_from(self.longest_holder).unwrap_or(usize::MAX)).collect()
    }

    fn holder(&self, token: &Token) -> String {
        characters(&self.holder_text(token))
    }

    fn without_counter(&self) -> NodeError {
        let words = format!(
            "the table `{}` of ShedLock has no counter of fencing tokens: turn fencing off, by `--fencing off` or \
             `Lock::unfenced`",
            self.name
        );
        NodeError::Failed { kind: NodeErrorKind::Unsupported, reason: Reason::new(words) }
    }
}

/// Reads the last result set: the holder of the row, and the remaining time.
fn last_holder(mut sets: ResultSets) -> Result<Option<Found>, Failed> {
    let Some(row) = sets.pop().and_then(|set| set.into_iter().next()) else { return Ok(None) };
    let (Some(holder), Some(left)) = (bytes(&row, 0), number(&row, 1)) else {
        return Err(unread("the holder of a lock").into());
    };
    Ok(Some(Found { holder: holder.to_vec(), left: Duration::from_micros(left) }))
}

/// Returns a text literal, which is compared by the collation of the column.
fn characters(text: &str) -> String {
    format!("_utf8mb4 {}", literal(text.as_bytes()))
}

/// Returns the expiry as SQL. A column with milliseconds truncates up to one of them, which a lease allows
/// for.
fn until(ttl: Duration) -> String {
    // A hundred years, so that no sum overflows the range of the type.
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
    fn a_time_is_never_rounded_down() {
        assert_eq!(until(Duration::from_nanos(1)), "TIMESTAMPADD(MICROSECOND, 1, UTC_TIMESTAMP(6))");
        assert!(until(Duration::MAX).contains("3162240000000000"));
    }
}
