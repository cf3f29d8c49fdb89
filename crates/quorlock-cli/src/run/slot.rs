//! `--at-least` and `--once-per`: one run per slot, however short the run is and on any number of hosts.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use humantime::{format_rfc3339_seconds, parse_rfc3339_weak};
use quorlock::protocol::Moment;
use quorlock::{
    Lost, RetainError, duration,
    node::Expiry,
    runtime::{Clock as _, SystemClock},
    votes::Holder,
};
use tokio::sync::Notify;

use super::code_of;
use super::watch::Ended;
use crate::report::{Reason, Report};
use crate::runtime::now;
use crate::waiting::Place;
use crate::wanted::{Acquired, Refusal, Wanted};

mod length;

pub(super) use length::Length;

/// For how long the lock stays taken, if a slot was asked for.
#[derive(Debug)]
pub(super) struct Slot {
    length: Option<Length>,
    /// Notified when the wait meets a retained lock.
    found: Arc<Notify>,
}

/// The longest that a lock stays taken after a run that was longer than its slot, so that those who waited through it
/// learn of it, and do not run the job again. A waiter looks every two seconds at the latest.
const FOR_WAITERS: Duration = Duration::from_secs(5);

/// The start of a run, or of the wait for it.
pub(super) struct Run {
    pub(super) since: Moment,
    /// The time of the calendar, since 1970.
    pub(super) wall: Duration,
}

impl Run {
    pub(super) fn begins(since: Moment) -> Run {
        Run { since, wall: SystemClock::default().wall() }
    }
}

impl Slot {
    pub(super) fn of(length: Option<Length>) -> Slot {
        Slot { length, found: Arc::default() }
    }

    /// Registers a listener that records the `place` in the queue, and notices a retained lock.
    pub(super) fn watched(&self, wanted: Wanted, place: &Place) -> Wanted {
        if self.length.is_none() && !place.is_shown() {
            return wanted;
        }
        let (found, place) = (self.length.as_ref().map(|_| self.found.clone()), place.clone());
        wanted.on_wait(move |waiting| {
            place.note(waiting);
            if let Some(found) = &found
                && waiting.holder.as_ref().is_some_and(|holder| holder.token.is_retained())
            {
                found.notify_one();
            }
        })
    }

    /// Ends when a quorum says that the slot of a start at `wall`, since 1970, has had its run, or as many as there are
    /// permits: there is nothing to wait for then (rule R-12). While the job still runs it may crash, and that is waited for.
    pub(super) async fn has_had_its_run(&self, wanted: &Wanted, wall: Duration) -> Result<Acquired, Refusal> {
        loop {
            self.found.notified().await;
            if let Some(outcome) = wanted.ask_once_if(|holder| self.is_of(holder, wall)).await {
                return outcome;
            }
        }
    }

    /// Whether a lock that stays taken had its run in the slot of a start at `wall`.
    fn is_of(&self, holder: &Holder, wall: Duration) -> bool {
        let (Some(length), true) = (&self.length, holder.token.is_retained()) else { return false };
        // For longer it is kept to the end of the slot only, whatever the hosts' clocks say.
        holder.remaining > Expiry::In(FOR_WAITERS)
            || holder.token.context().and_then(|note| began(&note)).is_none_or(|began| {
                let left = length.from(began);
                // The note is in whole seconds, as are the slots of the calendar.
                let later = if matches!(length, Length::FromStart(_)) { SECOND } else { Duration::ZERO };
                began + left + later > wall
            })
    }

    /// Ends the hold after the run: retains the lock for the rest of the slot, or a moment for those who have waited
    /// through all of it; or releases it if there are none, no slot was asked for, or the lock was lost.
    pub(super) async fn end(
        &self,
        (wanted, lease): (&Wanted, Acquired),
        run: &Run,
        ended: Ended,
        report: Report,
    ) -> Result<(), Lost> {
        let (ran, at) = (now().since(run.since), run.since);
        let how = match ended {
            Ended::ByItself(status) => format!("exit {}", code_of(status)),
            Ended::Stopped { reason: Reason::MaxHold, .. } => "stopped by --max-hold".to_owned(),
            Ended::Stopped { reason: Reason::NotRenewed | Reason::Lost(_), .. } => {
                return release(lease, ran, report).await;
            }
        };
        let Some(length) = &self.length else { return release(lease, ran, report).await };
        let mut left = (at + length.from(run.wall)).since(now());
        if left.is_zero() {
            if !wanted.may_be_waited_for().await {
                return release(lease, ran, report).await;
            }
            left = FOR_WAITERS;
        }
        let note = note(run.wall, ran, &how);
        let (resource, token) = (lease.resource().clone(), lease.token().short());
        match lease.retain(left, &note).await {
            Ok(()) => report.retained(resource.as_str(), &token, ran, Some(left)),
            Err(RetainError::Lost(lost)) => return Err(lost),
            Err(error) => {
                report.retained(resource.as_str(), &token, ran, None);
                report.words(&format!("{error}; other hosts may run it again in this slot"));
            }
        }
        Ok(())
    }
}

/// Returns what is noted with a lock that stays taken.
fn note(began: Duration, ran: Duration, how: &str) -> String {
    let began = format_rfc3339_seconds(SystemTime::UNIX_EPOCH + began).to_string();
    let began = began.replace('T', " ").replace('Z', UTC);
    format!("{RAN_AT}{began} for {} ({how})", duration::format(ran))
}

/// Reads from a note when the run began, since 1970.
fn began(note: &str) -> Option<Duration> {
    let (_, rest) = note.rsplit_once(RAN_AT)?;
    let began = parse_rfc3339_weak(rest.split_once(UTC)?.0).ok()?;
    began.duration_since(SystemTime::UNIX_EPOCH).ok()
}

const RAN_AT: &str = "ran at ";
const UTC: &str = " UTC";
const SECOND: Duration = Duration::from_secs(1);

async fn release(lease: Acquired, held: Duration, report: Report) -> Result<(), Lost> {
    let (watch, token) = (lease.clone(), lease.token().short());
    lease.release().await?;
    let resource = watch.resource().as_str();
    match watch.unconfirmed_release() {
        None => report.released(resource, &token, held),
        Some(votes) => report.unconfirmed(resource, &token, held, &votes),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_when_the_run_began() {
        // 2026-01-31 03:00:00 UTC.
        let began_at = Duration::from_millis(1_769_828_400_900);
        let note = note(began_at, SECOND, "exit 0");
        assert_eq!(note, "ran at 2026-01-31 03:00:00 UTC for 1s (exit 0)");
        let token = format!("db-7:41 ran at noon {note}");
        assert_eq!(began(&token), Some(Duration::from_secs(1_769_828_400)));
        assert_eq!(began("db-7:41 until the backup is done"), None);
    }
}
