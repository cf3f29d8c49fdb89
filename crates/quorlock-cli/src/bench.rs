//! `quorlock bench`: measures how fast the nodes grant and release locks.

use std::convert::Infallible;
use std::time::Duration;

use quorlock::{
    AcquireError, Fencing, Wait, duration,
    runtime::{Entropy as _, SystemEntropy},
    votes::{NodeVote, VoteOutcome},
};

use crate::config::Settings;
use crate::deployment::DeploymentArgs;
use crate::exit;
use crate::failure::Failure;
use crate::report::{Report, progress};
use crate::runtime::{block_on, now, sleep};
use crate::signals::Signals;
use crate::stdout::print;
use crate::values::Switch;
use crate::wanted::Lock;

mod figures;
mod load;

use figures::Figures;

/// `quorlock bench`.
#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    /// How long each of the two loads runs: one task alone, then all tasks
    #[arg(short, long, value_name = "DURATION", default_value = "3s", value_parser = duration::parse)]
    duration: Duration,
    /// Number of concurrent tasks, each of which acquires and releases its own lock
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    tasks: u16,
    /// Whether recently restarted nodes are excluded from voting [default: on]
    #[arg(long, value_name = "WHETHER")]
    restart_guard: Option<Switch>,
    /// Whether the locks have fencing tokens
    #[arg(long, value_name = "WHETHER", default_value = "on")]
    fencing: Switch,
    /// Print JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const BENCH_EXAMPLES: &str = "\
Examples:
  quorlock bench                                    # the nodes of the configuration
  quorlock bench --duration 10s --tasks 64 --json

The locks have random names and are removed; their counters of fencing tokens stay, as those of
every lock. The load is real: with enough tasks, as much as the nodes and the network can take.";

/// Measures, and prints the figures.
pub(crate) fn bench(args: &BenchArgs, deployment: DeploymentArgs, quiet: bool) -> Result<u8, Failure> {
    if args.duration.is_zero() {
        return Err(Failure::Usage("a duration of zero measures nothing; use --duration 3s".to_owned()));
    }
    let settings = Settings::load_for_lock(deployment, args.restart_guard, None, None)?;
    let figures = block_on(async {
        let mut signals = Signals::listen().map_err(Failure::to("receive signals"))?;
        let coordinator = settings.coordinator()?;
        let locks = locks(args, &settings, &coordinator);
        let shows = Report::to(args.json, quiet).may_show_progress();
        let measured = tokio::select! {
            biased;
            signal = signals.next_end() => Err(Failure::Interrupted { what: "while measuring", signal }),
            figures = measure(args, &locks, shows) => figures,
        };
        if shows {
            progress("");
        }
        // However it ends, no lock is left on the nodes.
        coordinator.close(Settings::patience(&coordinator)).await;
        measured
    })?;
    print(&if args.json { figures.in_json() } else { figures.in_words() })?;
    Ok(exit::SUCCESS)
}

/// Returns one lock per task, with its name.
fn locks(args: &BenchArgs, settings: &Settings, coordinator: &quorlock::Coordinator) -> Vec<(String, Lock)> {
    let entropy = SystemEntropy::default();
    let (this, run) = (entropy.next_u64(), entropy.next_u64());
    let lock = |task| {
        let name = format!("quorlock-bench/{this:016x}{run:016x}/{task}");
        let lock = coordinator.lock(&name).ttl(settings.ttl()).wait(Wait::Never).label("bench");
        let fencing = if args.fencing == Switch::On { Fencing::On } else { Fencing::Off };
        (name, lock.fencing(fencing))
    };
    (0..args.tasks).map(lock).collect()
}

async fn measure(args: &BenchArgs, locks: &[(String, Lock)], shows: bool) -> Result<Figures, Failure> {
    let locks: Vec<Lock> = locks.iter().map(|(_, lock)| lock.clone()).collect();
    let Some((first, _)) = locks.split_first() else {
        return Err(Failure::Usage("at least one task is needed".to_owned()));
    };
    until_they_vote(first, shows).await?;
    let nodes = load::round_trips(first).await?;
    let alone = with_progress(
        "one task alone",
        args.duration,
        shows,
        load::run(std::slice::from_ref(first), args.duration),
    )
    .await?;
    let what = format!("{} tasks", args.tasks);
    let together = with_progress(&what, args.duration, shows, load::run(&locks, args.duration)).await?;
    Ok(Figures { nodes, alone, together, tasks: args.tasks, fencing: args.fencing })
}

/// Waits until nodes that have just been started vote, if they are what a quorum lacks.
async fn until_they_vote(lock: &Lock, shows: bool) -> Result<(), Failure> {
    let mut acquired = lock.acquire().await;
    if let Err(AcquireError::Unavailable { report, .. }) = &acquired
        && let Some(left) = report.votes().iter().filter_map(quarantine).max()
    {
        let end = now() + left;
        let say = || {
            let left = duration::format(end.since(now()));
            format!("the nodes were started recently, and vote in {left}")
        };
        let lock = lock.clone().wait(Wait::UpTo(left + SPARE));
        acquired = while_telling(say, shows, lock.acquire()).await;
    }
    let lease = acquired.map_err(|error| Failure::of_acquiring(error, exit::HELD))?;
    // If it is lost, the first load says so.
    drop(lease.release().await);
    Ok(())
}

/// How much later than it says a node may vote.
const SPARE: Duration = Duration::from_secs(5);

fn quarantine(vote: &NodeVote) -> Option<Duration> {
    if let VoteOutcome::Quarantined { left, .. } = vote.outcome { Some(left) } else { None }
}

/// Shows a progress line while `work` runs.
async fn with_progress<T>(what: &str, lasts: Duration, shows: bool, work: impl Future<Output = T>) -> T {
    let began = now();
    let say = || {
        let left = lasts.saturating_sub(now().since(began));
        format!("measuring {what}: {} to go", duration::format(left))
    };
    while_telling(say, shows, work).await
}

/// Shows what `say` returns, again and again, while `work` runs.
async fn while_telling<T>(say: impl Fn() -> String, shows: bool, work: impl Future<Output = T>) -> T {
    let report_progress = async || -> Infallible {
        if !shows {
            return std::future::pending().await;
        }
        loop {
            sleep(AGAIN_AFTER).await;
            progress(&say());
        }
    };
    tokio::select! {
        biased;
        outcome = work => outcome,
        never = report_progress() => match never {},
    }
}

/// How often the progress line changes.
const AGAIN_AFTER: Duration = Duration::from_millis(250);
