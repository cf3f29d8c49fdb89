//! `--at-least`: one run per slot, however short the run is and on any number of hosts.

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
use crate::report::{Reason, Report};
use crate::runtime::now;
use crate::waiting::Place;
use crate::wanted::{Acquired, Refusal, Wanted};

/// How long the lock stays taken, counted from the start of the run, if `--at-least` was given.
#[derive(Debug)]
pub(super) struct Slot {
    at_least: Option<Duration>,
    /// Notified when the wait meets a retained lock.
    met: Arc<Notify>,
}

/// The start of a run.
pub(super) struct Run {
    since: Moment,
    /// To be shown.
    wall: SystemTime,
}

impl Run {
    pub(super) fn begins(since: Moment) -> Run {
        Run { since, wall: SystemTime::UNIX_EPOCH + SystemClock::default().wall() }
    }
}

impl Slot {
    pub(super) fn of(at_least: Option<Duration>) -> Slot {
        Slot { at_least, met: Arc::default() }
    }

    /// Registers a listener that records the `place` in the queue, and notices a retained lock.
    pub(super) fn watched(&self, wanted: Wanted, place: &Place) -> Wanted {
        if self.at_least.is_none() && !place.is_shown() {
            return wanted;
        }
        let (met, place) = (self.at_least.map(|_| self.met.clone()), place.clone());
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
        let left = self.at_least.map(|at_least| (at + at_least).since(now())).unwrap_or_default();
        let how = match ended {
            Ended::ByItself(status) => format!("exit {}", code_of(status)),
            Ended::Stopped(Reason::MaxHold) => "stopped by --max-hold".to_owned(),
            Ended::Stopped(Reason::NotRenewed | Reason::Lost(_)) => return release(lease, ran, report).await,
        };
        if left.is_zero() {
            return release(lease, ran, report).await;
        }
        let began = format_rfc3339_seconds(run.wall).to_string().replace('T', " ").replace('Z', " UTC");
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
