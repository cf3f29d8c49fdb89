//! `quorlock-chaos`: kills lock servers under load and checks that no two holders ever overlap.
//!
//! A run has three parts that know nothing of each other:
//!
//! ```text
//!   scenario, seed ─► schedule ─► director ──► faults ──► masters, network, workers
//!                                    │                          │
//!                                    ▼                          ▼
//!                                  record ◄─── workers: processes that acquire, write, release
//!                                    │
//!                                    ▼
//!                                  judge ──► outcome ──► summary, page
//! ```
//!
//! - *What happens* follows from scenario, seed and duration alone: `schedule` is pure. The same seed gives the same
//!   faults at the same times, though not the same interleaving, because servers and processes are real.
//! - *What happened* is written by the workers themselves, one line for each event, before they go on. So a killed
//!   worker leaves what it knew. They also write to a `register`, the guarded resource, which checks fencing tokens.
//! - *Whether that was right* is decided afterwards from the record alone, by `quorlock-history` with the expectations of
//!   the scenario. `quorlock-chaos check` judges a stored record again.
//!
//! Begin with a scenario in `scenarios/`, then `director`, and `worker` for the other side. A new fault is a constant
//! in `fault/plain.rs` or a file beside it, a new target a file in `masters/`, a new scenario a file in `scenarios/`
//! and its name in `BUILT_IN`.

use std::fs;
use std::future::Future;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;
use quorlock::protocol::{printable, printable_json};
use quorlock::runtime::{Entropy as _, SystemEntropy};
use tracing_subscriber::EnvFilter;

use crate::args::{Args, CheckArgs, RunArgs, Verb};
use crate::director::Ran;
use crate::error::Failure;
use crate::layout::Layout;
use crate::masters::{Compose, Masters};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::scenario::Scenario;

mod args;
mod director;
mod environment;
mod error;
mod exit;
mod fault;
mod figures;
mod inspector;
mod judge;
mod layout;
mod load;
mod masters;
mod network;
mod offers;
mod outcome;
mod page;
mod progress;
mod proxies;
mod record;
mod register;
mod run_metadata;
mod scenario;
mod schedule;
mod span;
mod summary;
mod worker;
mod workers;

fn main() -> ExitCode {
    quorlock_servers::serve_if_asked();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(answer) => {
            // The reader of the output may be gone.
            drop(answer.print());
            return ExitCode::from(if answer.use_stderr() { exit::USAGE } else { exit::HELD });
        }
    };
    let outcome = match args.verb {
        None if args.run.list => list(),
        None => run(&args.run),
        Some(Verb::Check(check)) => judge_again(&check),
        Some(Verb::Proxy(args)) => {
            network::proxy(&args).map(|()| exit::HELD).map_err(Failure::to("run the proxy"))
        }
        Some(Verb::Network(args)) => {
            network::network(&args).map(|()| exit::HELD).map_err(Failure::to("control the proxy"))
        }
        Some(Verb::Worker) => work(),
    };
    let code = outcome.unwrap_or_else(|failure| {
        eprintln!("quorlock-chaos: {}", printable(&failure.full()));
        failure.exit_code()
    });
    ExitCode::from(code)
}

fn list() -> Result<u8, Failure> {
    let scenarios = scenario::names().map(Scenario::find).collect::<Result<Vec<_>, _>>()?;
    print(&summary::list(&scenarios)).map_err(Failure::to("print the scenarios"))?;
    Ok(exit::HELD)
}

fn work() -> Result<u8, Failure> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("quorlock=info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(false).init();
    // One thread: an observer that was aborted does not run concurrently.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::to("start the async runtime"))?;
    runtime.block_on(worker::work()).map_err(Failure::to("work"))?;
    // tokio's thread that reads stdin is blocked in the read.
    runtime.shutdown_background();
    Ok(exit::HELD)
}

/// The outcomes so far.
#[derive(Default)]
struct Outcomes {
    outcomes: Vec<Outcome>,
    skipped: Vec<(String, String)>,
}

fn run(args: &RunArgs) -> Result<u8, Failure> {
    let scenarios = if args.all {
        scenario::names().map(Scenario::find).collect::<Result<Vec<_>, _>>()?
    } else {
        args.scenario.iter().map(|name| Scenario::find(name)).collect::<Result<Vec<_>, _>>()?
    };
    if scenarios.is_empty() {
        return Err(Failure::NothingToDo);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::to("start the async runtime"))?;
    let several = scenarios.len() > 1;
    let mut all = Outcomes::default();
    let (mut failure, mut printed) = (None, Ok(()));
    for scenario in &scenarios {
        failure = runtime.block_on(unless_interrupted(run_one(scenario, args, &mut all))).err();
        if failure.is_some() {
            break;
        }
        if let Some(outcome) = all.outcomes.last().filter(|outcome| outcome.scenario == scenario.name)
            && (!several || !outcome.passed)
            && !args.quiet
        {
            printed = printed.and_then(|()| print(&summary::outcome(outcome)));
        }
    }
    if several || all.outcomes.is_empty() || args.quiet {
        printed = printed.and_then(|()| print(&summary::overview(&all.outcomes, &all.skipped)));
    }
    // Files of an earlier run stay where this one has not come to anything.
    let written = if all.outcomes.is_empty() && failure.is_some() {
        Ok(())
    } else {
        write_files(&all.outcomes, args.json.as_deref(), args.html.as_deref())
    };
    // The outcomes before a failure have been printed and written.
    failure.map_or(written, Err)?;
    printed.map_err(Failure::to("print the outcome"))?;
    Ok(code(&all.outcomes))
}

async fn run_one(scenario: &Scenario, args: &RunArgs, all: &mut Outcomes) -> Result<(), Failure> {
    // Six digits, short enough to type.
    let seed = args.seed.unwrap_or_else(|| SystemEntropy::default().next_u64() % 1_000_000);
    let duration = args.duration.unwrap_or(scenario.duration);
    let layout = scenario.layout.as_deref().map(Layout::find).transpose()?;
    let named = args.scenario.iter().find(|name| name.ends_with(&format!("{}.toml", scenario.name)));
    let replay = format!(
        "quorlock-chaos --scenario {} --duration {} --seed {seed}",
        named.unwrap_or(&scenario.name),
        humantime::format_duration(duration).to_string().replace(' ', ""),
    );
    let run = director::Run { scenario, layout: layout.as_ref(), seed, duration, replay };
    let folder =
        tempfile::Builder::new().prefix("quorlock-chaos-").tempdir().map_err(Failure::to("make a folder"))?;
    let progress = Progress::new(args.quiet);
    let masters: Option<Box<dyn Masters>> = match &args.compose {
        Some(folder) => {
            Some(Box::new(Compose::find(folder).await.map_err(Failure::to("use the compose project"))?))
        }
        None => None,
    };
    let ran = run.run(masters, folder.path(), &progress).await;
    progress.end();
    let outcome = match ran {
        Ok(Ran::Skipped(reason)) => {
            all.skipped.push((scenario.name.clone(), reason));
            return Ok(());
        }
        Ok(Ran::Done(metadata, record)) => Ok(judge::judge(scenario, &metadata, &record)),
        Err(failure) => Err(failure),
    };
    let keep = match &args.keep {
        Some(keep) => Some(keep.join(&scenario.name)),
        None if outcome.as_ref().is_ok_and(|outcome| outcome.passed) => None,
        None => Some(Path::new(FAILED_RUNS).join(format!("{}-{seed}", scenario.name))),
    };
    let kept = keep.map_or(Ok(()), |keep| {
        copy(folder.path(), &keep).map_err(Failure::to(format!("keep the record in {}", keep.display())))?;
        eprintln!("the record of {} is in {}", printable(&scenario.name), printable(&keep.to_string_lossy()));
        Ok(())
    });
    all.outcomes.push(outcome?);
    kept
}

/// The folder for the records of failed runs.
const FAILED_RUNS: &str = "quorlock-chaos-failed";

fn judge_again(args: &CheckArgs) -> Result<u8, Failure> {
    let metadata = run_metadata::RunMetadata::read(&args.folder)?;
    let scenario = Scenario::parse(&metadata.scenario, &run_metadata::scenario(&args.folder)?)?;
    let outcomes = [judge::judge(&scenario, &metadata, &run_metadata::record(&args.folder)?)];
    write_files(&outcomes, args.json.as_deref(), args.html.as_deref())?;
    for outcome in &outcomes {
        print(&summary::outcome(outcome)).map_err(Failure::to("print the outcome"))?;
    }
    Ok(code(&outcomes))
}

/// Prints a text. Its reader may be gone: what the exit code and the files say counts.
fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(gone) if gone.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

fn write_files(outcomes: &[Outcome], json: Option<&Path>, html: Option<&Path>) -> Result<(), Failure> {
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(outcomes).map_err(io::Error::from);
        let written = text.and_then(|text| fs::write(path, printable_json(&text)));
        written.map_err(Failure::to(format!("write {}", path.display())))?;
    }
    if let Some(path) = html {
        let written = fs::write(path, page::page(outcomes));
        written.map_err(Failure::to(format!("write {}", path.display())))?;
    }
    Ok(())
}

/// Returns the exit code: whether every expectation held, if there was any.
fn code(outcomes: &[Outcome]) -> u8 {
    if outcomes.is_empty() {
        return exit::UNAVAILABLE;
    }
    if outcomes.iter().all(|outcome| outcome.passed) { exit::HELD } else { exit::FAILED }
}

/// Runs `work` until it is done or SIGINT, SIGTERM or SIGHUP arrives. Servers and workers are killed when
/// `work` is dropped.
async fn unless_interrupted<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    use tokio::signal::unix::{SignalKind, signal};

    let listen = |kind| signal(kind).map_err(Failure::to("receive signals"));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let mut hangup = (!ignores_hangup()).then(|| listen(SignalKind::hangup())).transpose()?;
    let hung_up = async {
        match &mut hangup {
            Some(hangup) => hangup.recv().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        _ = interrupt.recv() => Err(Failure::Interrupted),
        _ = terminate.recv() => Err(Failure::Interrupted),
        _ = hung_up => Err(Failure::Interrupted),
        done = work => done,
    }
}

/// Whether SIGHUP is ignored, as by `nohup`, so that a run outlives its terminal. True where the system does not
/// say.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_none_or(|mask| mask & 1 != 0)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
