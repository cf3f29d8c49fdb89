//! `quorlock run`: acquires the lock, runs the command under it, and releases the lock.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};

use quorlock::Coordinator;

use crate::args::{DeploymentArgs, RunArgs};
use crate::config::Settings;
use crate::exit;
use crate::failure::Failure;
use crate::metrics;
use crate::notice::Notice;
use crate::program::{Program, not_started};
use crate::report::Report;
use crate::runtime::{block_on, now};
use crate::signals::Signals;
use crate::waiting::{self, Place};
use crate::wanted::{Acquired, Wanted};

mod descendants;
mod guardian;
mod job;
mod requests;
mod slot;
mod watch;

use job::{Job, KeptFor};
use slot::{Run, Slot};
use watch::Ended;

const WHILE_WAITING: &str = "while waiting; the command was not started";

/// Runs the command that `args` name, and returns the exit code.
pub(crate) fn run(args: RunArgs, deployment: DeploymentArgs, quiet: bool) -> Result<u8, Failure> {
    let settings = args.lock.settings(deployment)?;
    let report = Report::to(args.json, quiet);
    metrics::counted(&settings.metrics(&args.metrics), &args.resource.clone(), || {
        block_on(async {
            // What the command started may outlive this process.
            let coordinator = settings.builder()?.kept_by_children(true).build()?;
            let outcome = under_lock(args, &settings, &coordinator, report).await;
            coordinator.close(Settings::patience(&coordinator)).await;
            outcome
        })
    })
}

async fn under_lock(
    args: RunArgs,
    settings: &Settings,
    coordinator: &Coordinator,
    report: Report,
) -> Result<u8, Failure> {
    let (ttl, max_hold) = (settings.ttl(), args.lock.max_hold);
    let slot = Slot::of(args.at_least);
    let wanted = match args.permits {
        None => args.lock.lock(coordinator, settings, &args.resource)?,
        Some(permits) => {
            Wanted::Permit(args.lock.semaphore(coordinator, settings, &args.resource, permits)?)
        }
    };
    let place = Place::shown_by(report);
    let wanted = slot.watched(wanted, &place);
    let kept_for = KeptFor::asked_for(args.wait_for_descendants)?;
    let program = args.shell.map_or(Program::Command(args.command), Program::Shell);
    let mut command = program.find()?;

    let mut signals = Signals::listen().map_err(Failure::to("receive signals"))?;
    let asked = now();
    let acquired = tokio::select! {
        biased;
        acquired = waiting::acquire((&wanted, ttl), &place, &mut signals, report, WHILE_WAITING) => acquired?,
        outcome = slot.has_had_its_run(&wanted) => outcome,
    };
    let lease = acquired.map_err(|error| Failure::of_acquiring(error, args.lock.conflict_exit_code))?;
    let since = now();
    report.acquired(&lease, since.since(asked));
    metrics::waited(since.since(asked));
    let run = Run::begins(since);

    set_variables(&mut command, &lease, ttl);
    let name = command.get_program().to_owned();
    let notice = Notice::new(args.kill_after, ttl, settings.drift(), max_hold);
    let until = notice.guard_until(now(), lease.remaining());
    let job = Job::start(command, kept_for, until, &signals)
        .map_err(|error| not_started(Path::new(&name), error))?;
    let hold_until = max_hold.map(|longest| since + longest);
    let ended = watch::until_ended(job, &lease, notice, hold_until, &mut signals, report).await?;
    metrics::command_ended(match ended {
        Ended::ByItself(status) => Some(code_of(status)),
        Ended::Stopped(_) => None,
    });
    // Only now that no process of the command is left.
    let released = slot.end(lease, &run, ended, report).await;
    if let (Ok(()), Ended::Stopped(reason)) = (&released, ended) {
        metrics::lost(reason);
    }
    Ok(match (ended, released) {
        (Ended::Stopped(_), _) => exit::LOST,
        (Ended::ByItself(status), Ok(())) => code_of(status),
        (Ended::ByItself(status), Err(lost)) => {
            report.words(&format!(
                "the command exited with {}, but {lost}; part of it may have run without the lock",
                code_of(status)
            ));
            exit::LOST
        }
    })
}

/// After the inherited environment, so that a lock within a lock sees its own.
fn set_variables(command: &mut Command, lease: &Acquired, ttl: std::time::Duration) {
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
