//! `quorlock run` and `quorlock elect`: acquire the lock, run the command under it, and release the lock.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use quorlock::Coordinator;

use crate::config::Settings;
use crate::deployment::DeploymentArgs;
use crate::exit;
use crate::failure::Failure;
use crate::lock_args::LockArgs;
use crate::marks::Marks;
use crate::metrics::{self, KEPT_OF_JOBS, MetricsArgs};
use crate::program::{Found, Program, not_started};
use crate::report::{Reason, Report};
use crate::runtime::{block_on, now};
use crate::signals::{Interruption, Signals};
use crate::stderr;
use crate::waiting::{self, Place};
use crate::wanted::{Acquired, Wanted};
use notice::Notice;

mod args;
mod descendants;
mod guardian;
mod job;
mod members;
pub(crate) mod notice;
mod requests;
mod slot;
mod watch;

use args::JobArgs;
pub(crate) use args::{
    ELECT_CODES, ELECT_EXAMPLES, ELECT_USAGE, ElectArgs, RUN_EXAMPLES, RUN_SHORT, RUN_USAGE, RunArgs,
};
use job::{Job, KeptFor};
use slot::{Length, Run, Slot};
use watch::Ended;

const WHILE_WAITING: &str = "while waiting; the command was not started";

/// Runs the command that `args` name, and returns the exit code.
pub(crate) fn run(args: &RunArgs, deployment: DeploymentArgs, quiet: bool) -> Result<u8, Failure> {
    let length = Length::of(args.at_least, args.once_per)?;
    let settings = args.lock.settings(deployment)?;
    let report = Report::to(args.json, quiet);
    with_coordinator(&settings, &args.metrics, (&args.resource, &KEPT_OF_JOBS), async |coordinator| {
        let wanted = match args.permits {
            None => args.lock.lock(coordinator, &settings, &args.resource)?,
            Some(permits) => {
                Wanted::Permit(args.lock.semaphore(coordinator, &settings, &args.resource, permits)?)
            }
        };
        if let Some(length) = &length {
            wanted.validate_retention(length.longest()).map_err(|error| settings.refused(error))?;
        }
        let marks = args.lock.marks(coordinator, &settings, &args.resource);
        let (from, slot) = ((coordinator, &settings), Slot::of(length));
        let job = Guarded::new(&args.lock, &args.job, from, (wanted, marks), slot, report)?;
        let mut signals = Signals::listen().map_err(Failure::to("receive signals"))?;
        job.under_lock(&mut signals).await?.end()
    })
}

/// Runs the command that `args` name while this process leads, again after each loss, and returns the exit code.
pub(crate) fn elect(args: &ElectArgs, deployment: DeploymentArgs, quiet: bool) -> Result<u8, Failure> {
    let lock = args.lock();
    let settings = lock.settings(deployment)?;
    let report = Report::to(args.json, quiet);
    with_coordinator(&settings, &args.metrics, (&args.resource, &[]), async |coordinator| {
        let wanted = lock.lock(coordinator, &settings, &args.resource)?;
        let marks = lock.marks(coordinator, &settings, &args.resource);
        let from = (coordinator, &settings);
        let job = Guarded::new(&lock, &args.job, from, (wanted, marks), Slot::of(None), report)?;
        let mut signals = Signals::listen().map_err(Failure::to("receive signals"))?;
        loop {
            let outcome = job.under_lock(&mut signals).await?;
            if !outcome.may_lead_again {
                return outcome.end();
            }
            report.words(&format!("no longer leads `{}`; campaigning again", args.resource));
        }
    })
}

fn with_coordinator(
    settings: &Settings,
    metrics: &MetricsArgs,
    (resource, kept): (&str, &[&'static str]),
    work: impl AsyncFnOnce(&Coordinator) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    metrics::counted(&settings.metrics(metrics), (resource, kept), || {
        let outcome = block_on(async {
            // What the command started may outlive this process.
            let coordinator = settings.build(settings.builder()?.kept_by_children(true))?;
            let outcome = work(&coordinator).await;
            coordinator.close(Settings::patience(&coordinator)).await;
            outcome
        });
        guardian::reap();
        outcome
    })
}

/// A command and the lock under which it runs.
struct Guarded<'a> {
    coordinator: &'a Coordinator,
    lock: &'a LockArgs,
    settings: &'a Settings,
    wanted: Wanted,
    place: Place,
    marks: Marks,
    slot: Slot,
    program: Found,
    kept_for: KeptFor,
    kill_after: Duration,
    report: Report,
}

/// How a hold of the lock ended.
struct Outcome {
    /// The exit code.
    code: u8,
    /// The exit code of the command, unless it was stopped.
    command: Option<u8>,
    /// The command was stopped because its lock was lost, and not because a signal asked it to end.
    may_lead_again: bool,
    /// A key of the terminal ended the command.
    interrupted: Option<Interruption>,
}

impl Outcome {
    fn end(self) -> Result<u8, Failure> {
        // Not of each leadership: one that begins again goes on with the work.
        metrics::command_ended(self.command, self.code);
        self.interrupted.map_or(Ok(self.code), |interruption| Err(Failure::CommandInterrupted(interruption)))
    }
}

impl<'a> Guarded<'a> {
    fn new(
        lock: &'a LockArgs,
        job: &JobArgs,
        (coordinator, settings): (&'a Coordinator, &'a Settings),
        (wanted, marks): (Wanted, Marks),
        slot: Slot,
        report: Report,
    ) -> Result<Guarded<'a>, Failure> {
        let place = Place::shown_by(report);
        let wanted = slot.watched(wanted, &place);
        let kept_for = KeptFor::asked_for(job.wait_for_descendants, settings)?;
        let program = match &job.shell {
            Some(line) => Program::Shell(line.clone()),
            None => Program::Command(job.command.clone()),
        };
        // Before the lock is asked for.
        let program = program.find()?;
        let kill_after = job.kill_after;
        Ok(Guarded {
            coordinator,
            lock,
            settings,
            wanted,
            place,
            marks,
            slot,
            program,
            kept_for,
            kill_after,
            report,
        })
    }

    /// Acquires the lock, runs the command, and releases the lock.
    async fn under_lock(&self, signals: &mut Signals) -> Result<Outcome, Failure> {
        let Guarded { wanted, place, marks, slot, report, .. } = self;
        let (ttl, max_hold) = (self.settings.ttl(), self.lock.max_hold);
        let asked = Run::begins(now());
        let acquired = tokio::select! {
            biased;
            acquired = waiting::acquire((wanted, ttl, self.settings.wait()), (place, marks), signals, *report, WHILE_WAITING) => acquired?,
            outcome = slot.has_had_its_run(wanted, asked.wall) => outcome,
        };
        let lease = acquired.map_err(|error| {
            self.settings.not_acquired(error, self.lock.conflict_exit_code, self.coordinator)
        })?;
        // The command and the guardian inherit it.
        let mark = marks.hold(&lease);
        let since = now();
        report.acquired(&lease, since.since(asked.since));
        metrics::waited(since.since(asked.since));
        let (run, token) = (Run::begins(since), lease.token().short());

        let mut command = self.program.command();
        set_variables(&mut command, &lease, ttl);
        let notice = Notice::new(self.kill_after, &self.coordinator.lease_timing(ttl), max_hold);
        let until = notice.guard_until(now(), lease.remaining());
        signals.receive_all().map_err(Failure::to("receive signals"))?;
        let job = Job::start(command, self.kept_for, until, signals)
            .map_err(|error| not_started(Path::new(self.program.name()), error))?;
        // While the command starts, and threads may still be had.
        stderr::start();
        metrics::holds(Some(lease.clone()));
        let (ended, interrupted) = watch::until_ended(job, &lease, notice, signals, *report).await?;
        metrics::holds(None);
        // Only now that no process of the command is left.
        let released = slot.end((wanted, lease), &run, ended, *report).await;
        drop(mark);
        if let (Ok(()), Ended::Stopped { reason, .. }) = (&released, ended) {
            metrics::lost(reason);
        }
        Ok(match (ended, released) {
            (Ended::Stopped { asked_to_end, .. }, _) => {
                Outcome { code: exit::LOST, command: None, may_lead_again: !asked_to_end, interrupted: None }
            }
            (Ended::ByItself(status), Ok(())) => {
                let code = code_of(status);
                Outcome { code, command: Some(code), may_lead_again: false, interrupted }
            }
            (Ended::ByItself(status), Err(lost)) => {
                let (reason, command) = (Reason::Lost(lost.reason), code_of(status));
                report.lost(lost.resource.as_str(), &token, (reason, None), Duration::ZERO);
                report.words(&format!(
                    "the command exited with {command}, but {lost}; part of it may have run without the lock"
                ));
                Outcome { code: exit::LOST, command: Some(command), may_lead_again: false, interrupted: None }
            }
        })
    }
}

/// After the inherited environment, so that a lock within a lock sees its own.
fn set_variables(command: &mut Command, lease: &Acquired, ttl: Duration) {
    command
        .env("QUORLOCK_HELD", "1")
        .env("QUORLOCK_RESOURCE", lease.resource().as_str())
        .env("QUORLOCK_TOKEN", OsString::from_vec(lease.token().as_bytes().to_vec()))
        .env("QUORLOCK_TTL_MS", ttl.as_millis().to_string())
        // In use here; an inner `quorlock run` has its own metrics.
        .env_remove("QUORLOCK_METRICS")
        .env_remove("QUORLOCK_METRICS_FILE");
    match lease.permit {
        Some(number) => command.env("QUORLOCK_PERMIT", number.to_string()),
        None => command.env_remove("QUORLOCK_PERMIT"),
    };
    match lease.fencing_token() {
        Some(fencing_token) => command.env("QUORLOCK_FENCE", fencing_token.to_string()),
        None => command.env_remove("QUORLOCK_FENCE"),
    };
}

/// Returns the exit code of a process, as shells report it.
pub(crate) fn code_of(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(exit::INTERNAL),
        (None, Some(number)) => exit::by_signal(number),
        (None, None) => exit::INTERNAL,
    }
}
