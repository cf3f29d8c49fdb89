//! The largest `max_ttl` of the clients, which each database keeps for them (rule I-37).
//!
//! A client reads it, and leaves its own there if that is larger, when it connects, and again when the server
//! notifies it of a change.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::Seams;
use tokio_postgres::{AsyncMessage, Client, Error, Row};

use crate::RULES;
use crate::settings::Settings;

/// The payload of a notification that it has changed. Those about keys are hexadecimal digits.
const CHANGED: &str = "max-ttl";

/// The record of one database.
#[derive(Clone)]
pub(crate) struct MaxTtlRecord {
    seams: Seams,
    ours: Duration,
    prefix: Arc<[u8]>,
    node: Arc<str>,
}

impl MaxTtlRecord {
    /// Returns the record, unless the restart guard is off or no client compares.
    pub(crate) fn of(settings: &Settings) -> Option<MaxTtlRecord> {
        let seams = settings.seams.clone();
        let ours = seams.max_ttl()?;
        let (prefix, node) = (seams.key_prefix().as_bytes().into(), settings.url.to_string().into());
        Some(MaxTtlRecord { seams, ours, prefix, node })
    }

    /// Compares the largest `max_ttl` there with ours, logs a new difference, and records ours if it is larger.
    /// Returns the answer, and in it the `max_ttl` of others.
    pub(crate) async fn compare(&self, client: &Client) -> Result<(Vec<Row>, Option<Duration>), Error> {
        let ours = i64::try_from(self.ours.as_millis()).unwrap_or(i64::MAX);
        let rows = client
            .query(&format!("SELECT quorlock.{RULES}max_ttl($1, $2)"), &[&&*self.prefix, &ours])
            .await?;
        let millis: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
        let other = u64::try_from(millis).ok().filter(|millis| *millis > 0).map(Duration::from_millis);
        if let Some(other) = other.and_then(|other| self.seams.hear_max_ttl(other)) {
            tracing::warn!(node = %self.node, ?other, "other clients use a different max_ttl");
        }
        Ok((rows, other))
    }
}

/// Whether it is the notification that the `max_ttl` of other clients has changed.
pub(crate) fn says_max_ttl(message: &AsyncMessage) -> bool {
    matches!(message, AsyncMessage::Notification(notification) if notification.payload() == CHANGED)
}
