//! `--at-least` and `--once-per`: one run per slot, however short the run is and on any number of hosts.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use humantime::format_rfc3339_seconds;
use quorlock::protocol::Moment;
use quorlock::{
    Lost, RetainError, duration,
    runtime::{Clock as _, SystemClock},
};
use tokio::sync::Notify;

use super::code_of;
use super::watch::Ended;
use crate::failure::Failure;
use crate::report::{Reason, Report};
use crate::runtime::now;
use crate::waiting::Place;
use crate::wanted::{Acquired, Refusal, Wanted};

/// For how long the lock stays taken, if a slot was asked for.
#[derive(Debug)]
pub(super) struct Slot {
    length: Option<Length>,
    /// Notified when the wait meets a retained lock.
    met: Arc<Notify>,
}

/// The length of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) enum Length {
    /// This long from the start of the run.
    FromStart(Duration),
    /// To the next multiple of this since 1970, by the clock of this host.
    OfCalendar(Duration),
}

impl Length {
    /// Returns what was asked for: at most one of the two.
    pub(super) fn of(
        at_least: Option<Duration>,
        once_per: Option<Duration>,
    ) -> Result<Option<Length>, Failure> {
        if once_per == Some(Duration::ZERO) {
            return Err(Failure::Usage(
                "a slot of no length has no run: give --once-per 1h or more".to_owned(),
            ));
        }
        Ok(once_per.map(Length::OfCalendar).or(at_least.map(Length::FromStart)))
    }

    /// Returns how long after its start a run that starts at `wall`, since 1970, still has the slot.
    fn from(self, wall: Duration) -> Duration {
        match self {
            Length::FromStart(length) => length,
            Length::OfCalendar(length) => {
                let past = wall.as_nanos().checked_rem(length.as_nanos()).unwrap_or_default();
                let left = length.as_nanos().saturating_sub(past);
                left.try_into().map_or(length, Duration::from_nanos)
            }
        }
    }
}

/// The start of a run.
pub(super) struct Run {
    since: Moment,
    /// The time of the calendar, since 1970.
    wall: Duration,
}

impl Run {
    pub(super) fn begins(since: Moment) -> Run {
        Run { since, wall: SystemClock::default().wall() }
    }
}

impl Slot {
    pub(super) fn of(length: Option<Length>) -> Slot {
        Slot { length, met: Arc::default() }
    }

    /// Registers a listener that records the `place` in the queue, and notices a retained lock.
    pub(super) fn watched(&self, wanted: Wanted, place: &Place) -> Wanted {
        if self.length.is_none() && !place.is_shown() {
            return wanted;
        }
        let (met, place) = (self.length.map(|_| self.met.clone()), place.clone());
        wanted.on_wait(move |waiting| {
            place.note(waiting);
            if let Some(met) = &met
                && waiting.holder.as_ref().is_some_and(|holder| holder.token.is_retained())
            {
                met.notify_one();
            }
        })
    }

    /// Ends when a quorum says that the slot has had its run, or as many as there are permits: there is
    /// nothing to wait for then (rule R-12). While the job still runs it may crash, and that is waited for.
    pub(super) async fn has_had_its_run(&self, wanted: &Wanted) -> Result<Acquired, Refusal> {
        loop {
            self.met.notified().await;
            if let Some(outcome) = wanted.ask_once_if_retained().await {
                return outcome;
            }
        }
    }

    /// Ends the hold after the run: retains the lock for the rest of the slot, or releases it if there is none
    /// or the lock was lost.
    pub(super) async fn end(
        &self,
        lease: Acquired,
        run: &Run,
        ended: Ended,
        report: Report,
    ) -> Result<(), Lost> {
        let (ran, at) = (now().since(run.since), run.since);
        let left = self.length.map(|length| (at + length.from(run.wall)).since(now())).unwrap_or_default();
        let how = match ended {
            Ended::ByItself(status) => format!("exit {}", code_of(status)),
            Ended::Stopped { reason: Reason::MaxHold, .. } => "stopped by --max-hold".to_owned(),
            Ended::Stopped { reason: Reason::NotRenewed | Reason::Lost(_), .. } => {
                return release(lease, ran, report).await;
            }
        };
        if left.is_zero() {
            return release(lease, ran, report).await;
        }
        let began = format_rfc3339_seconds(SystemTime::UNIX_EPOCH + run.wall)
            .to_string()
            .replace('T', " ")
            .replace('Z', " UTC");
        let note = format!("ran at {began} for {} ({how})", duration::format(ran));
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

    const HOUR: Duration = Duration::from_secs(3600);

    fn left(length: Length, wall: Duration) -> Duration {
        length.from(wall)
    }

    #[test]
    fn a_slot_of_the_calendar_ends_at_the_next_multiple() {
        // 2026-01-31 03:00:00 UTC.
        let three = Duration::from_secs(1_769_828_400);
        assert_eq!(left(Length::OfCalendar(HOUR), three), HOUR, "the first moment of a slot has all of it");
        assert_eq!(left(Length::OfCalendar(HOUR), three + HOUR / 4), HOUR * 3 / 4);
        assert_eq!(left(Length::OfCalendar(HOUR * 24), three), HOUR * 21, "to midnight UTC");
        assert_eq!(left(Length::OfCalendar(HOUR), three + HOUR.mul_f64(0.5)), HOUR / 2);
    }

    #[test]
    fn a_slot_from_the_start_has_its_whole_length() {
        assert_eq!(left(Length::FromStart(HOUR), Duration::from_secs(17)), HOUR);
    }

    #[test]
    fn a_slot_of_no_length_is_refused() {
        assert!(Length::of(None, Some(Duration::ZERO)).is_err());
        assert!(matches!(Length::of(Some(HOUR), None), Ok(Some(Length::FromStart(_)))));
        assert!(matches!(Length::of(None, None), Ok(None)));
    }
}
