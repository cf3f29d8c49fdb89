//! What can be said on the command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgAction, Parser, Subcommand, ValueEnum};
use quorlock::{Wait, duration, node::Kinds};

use crate::bench::{BENCH_EXAMPLES, BenchArgs};
use crate::completions::{COMPLETIONS_EXAMPLES, CompletionsArgs};
use crate::demo::{DEMO_EXAMPLES, DemoArgs};
use crate::exit;
use crate::hold::{HOLD_CODES, HOLD_EXAMPLES, HoldArgs};
use crate::man::{MAN_EXAMPLES, ManArgs};
use crate::metrics::MetricsArgs;
use crate::paint::When;
use crate::release::{RELEASE_CODES, RELEASE_EXAMPLES, ReleaseArgs};
use crate::status::{STATUS_EXAMPLES, StatusArgs};

pub(crate) use lock::LockArgs;

mod lock;

/// Runs a command while a quorum of independent Redis or Valkey masters holds its lock.
#[derive(Parser)]
#[expect(clippy::doc_markdown, reason = "these comments are the help, which is plain text")]
#[command(name = "quorlock", version, after_long_help = SOURCES, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    /// Say nothing but errors; a lock that somebody else holds is none
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say what happens; twice: what every node says
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Whether to colour what is printed; `auto` heeds NO_COLOR and CLICOLOR_FORCE, and else whether
    /// stdout is a terminal
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_short_help = true)]
    pub(crate) color: When,
    // Last, because its heading holds for all that follows.
    #[command(flatten)]
    pub(crate) deployment: DeploymentArgs,
}

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Run a command while holding a lock
    #[command(aliases = ["lock", "exec"], override_usage = RUN_USAGE, after_help = RUN_SHORT, after_long_help = format!("{}\n\n{SOURCES}\n\n{RUN_EXAMPLES}", exit::TABLE))]
    Run(RunArgs),
    /// Ask all nodes who holds a lock, and who waits for it
    #[command(after_long_help = format!("{SOURCES}\n\n{STATUS_EXAMPLES}"))]
    Status(StatusArgs),
    /// Examine the nodes: what makes locks unsafe, slow or impossible, and what to do about it
    #[command(after_long_help = format!("{}\n\n{SOURCES}", exit::DOCTOR_TABLE))]
    Doctor(DoctorArgs),
    /// Hold a lock until a signal comes or stdin ends, for scripts that cannot be one command
    #[command(after_long_help = format!("{HOLD_CODES}\n\n{SOURCES}\n\n{HOLD_EXAMPLES}"))]
    Hold(HoldArgs),
    /// Give a lock back by its token, or take it away from whoever holds it
    #[command(alias = "unlock", after_long_help = format!("{RELEASE_CODES}\n\n{SOURCES}\n\n{RELEASE_EXAMPLES}"))]
    Release(ReleaseArgs),
    /// Measure how fast these nodes grant and release locks
    #[command(after_long_help = format!("{SOURCES}\n\n{BENCH_EXAMPLES}"))]
    Bench(BenchArgs),
    /// Start five servers and show a lock surviving two of them dying, or lend them to a command
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Write what a shell needs to complete command lines
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Write the manual: one page, or one for each verb into a folder
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManArgs),
}

impl Args {
    pub(crate) fn wants_json(&self) -> bool {
        match &self.verb {
            Verb::Run(run) => run.json,
            Verb::Doctor(doctor) => doctor.json,
            Verb::Hold(hold) => hold.json,
            Verb::Status(status) => status.json,
            Verb::Release(release) => release.json,
            Verb::Bench(bench) => bench.json,
            Verb::Demo(demo) => demo.json,
            Verb::Completions(_) | Verb::Man(_) => false,
        }
    }
}

/// Which nodes, and how they are asked: the same for every client of a deployment.
///
/// Each can also stand in the environment and in the configuration file; `config` sees to that.
#[derive(clap::Args)]
#[command(next_help_heading = "Nodes")]
#[expect(clippy::doc_markdown, reason = "these comments are the help, which is plain text")]
pub(crate) struct DeploymentArgs {
    /// The nodes, comma separated or repeated, such as redis://HOST:PORT.
    ///
    /// Servers of Redis: redis:// or valkey://, rediss:// for TLS, redis+unix:///PATH,
    /// redis+sentinel://HOST,HOST/SERVICE, redis+cluster://HOST:PORT,HOST:PORT. Databases:
    /// postgres://USER@HOST/DATABASE, mysql:// or mariadb://USER@HOST/DATABASE, and, for this host
    /// alone, sqlite:///PATH. An address of another kind is refused with the kinds that this program has.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) nodes: Vec<String>,
    /// The configuration file [default: the first of ./quorlock.toml, quorlock/quorlock.toml in
    /// $XDG_CONFIG_HOME or ~/.config, and /etc/quorlock.toml].
    ///
    /// One that is found and not named here is not read where others can write it.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Stands before every resource name in its key [default: nothing]
    #[arg(long, global = true, hide_short_help = true, value_name = "PREFIX")]
    pub(crate) key_prefix: Option<String>,
    /// How long to wait for one node [default: 1s, more for a distant one]
    #[arg(long, global = true, hide_short_help = true, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) node_timeout: Option<Duration>,
    /// The share of the TTL given up because clocks run at different rates [default: 0.01]
    #[arg(long, global = true, hide_short_help = true, value_name = "SHARE")]
    pub(crate) drift: Option<f64>,
    /// The longest TTL of any client; restarted nodes do not vote for that long [default: 30s]
    #[arg(long, global = true, hide_short_help = true, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) max_ttl: Option<Duration>,
    /// The ACL user for nodes whose address names none
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME")]
    pub(crate) username: Option<String>,
    /// Where the password stands; it may also be in the variable QUORLOCK_PASSWORD
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// The certificates of the authorities to trust at rediss:// addresses, and no others [default:
    /// those of the system]
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// The certificate to show to the nodes, with whatever it needs to be trusted after it
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of that certificate
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The name that the certificates of all nodes must be for [default: the host of the address]
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME")]
    pub(crate) tls_server_name: Option<String>,
    /// What the addresses may be of, wherever they stand.
    #[arg(skip)]
    pub(crate) kinds: Kinds,
}

/// `quorlock run`.
#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// What is protected; its name is the key at the nodes
    pub(crate) resource: String,
    /// The command and its arguments. Options of quorlock go before it: all that follows is its own
    #[arg(trailing_var_arg = true, required_unless_present = "shell", value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    /// Run one string through $SHELL, or /bin/sh, instead
    #[arg(short = 'c', long, value_name = "STRING", conflicts_with = "command")]
    pub(crate) shell: Option<OsString>,
    /// How long before its lock ends the command gets SIGTERM, to end in peace; SIGKILL follows
    /// just before the end. At most a third of the TTL
    #[arg(short, long, hide_short_help = true, value_name = "DURATION", default_value = "5s",
          value_parser = duration::parse)]
    pub(crate) kill_after: Duration,
    /// Keep the lock until all that the command has started has ended: daemons too, which leave its
    /// process group, and for which the lock is not kept otherwise. Linux only
    #[arg(long, hide_short_help = true)]
    pub(crate) wait_for_descendants: bool,
    /// Run once in this time, counted from the start, on however many hosts.
    ///
    /// The lock stays taken although the command has ended, and clients that come meanwhile exit with
    /// 75. Longer than the hosts' clocks differ, and shorter than from one run to the next.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, conflicts_with_all = ["shared", "also"])]
    pub(crate) at_least: Option<Duration>,
    /// Take one of N permits, 1 to 64, in the place of the lock: N run at once.
    ///
    /// The same number at every client; nodes refuse another one while a permit is taken. A name is that
    /// of a lock or of a semaphore: the plain lock of the same name does not exclude these.
    #[arg(long, value_name = "N", conflicts_with_all = ["shared", "also"])]
    pub(crate) permits: Option<usize>,
    /// Report on stderr in JSON, a line for each event.
    ///
    /// The events: acquired, held, lost, released, unconfirmed, retained.
    #[arg(long)]
    pub(crate) json: bool,
    // Last, because its heading holds for all that follows.
    #[command(flatten)]
    pub(crate) lock: LockArgs,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
}

/// `quorlock doctor`.
#[derive(clap::Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// End with 79 also when there is nothing worse than a warning
    #[arg(long)]
    pub(crate) strict: bool,
    /// The TTL of the locks, against which round trips are judged [default: 30s]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// Whether the clients keep nodes that restarted recently from voting [default: on]
    #[arg(long, value_name = "WHETHER")]
    pub(crate) restart_guard: Option<Switch>,
}

/// A setting that is on or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Switch {
    // It applies.
    On,
    // It does not.
    Off,
}

/// How long to wait, as people write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaitArg(pub(crate) Wait);

impl FromStr for WaitArg {
    type Err = String;

    fn from_str(text: &str) -> Result<WaitArg, String> {
        if text == "forever" {
            return Ok(WaitArg(Wait::Forever));
        }
        match duration::parse(text) {
            Ok(Duration::ZERO) => Ok(WaitArg(Wait::Never)),
            Ok(longest) => Ok(WaitArg(Wait::UpTo(longest))),
            Err(error) => Err(format!("{error}, or `forever`")),
        }
    }
}

pub(crate) const SOURCES: &str = "\
Settings may also stand in the environment, as QUORLOCK_NODES or QUORLOCK_MAX_TTL, and in the
configuration file, as `nodes` or `max-ttl`. A flag goes before the environment, that before the
file. This holds for all that is listed under Nodes and under Metrics, and for --ttl, --wait and
--restart-guard. The password is QUORLOCK_PASSWORD, and the file QUORLOCK_CONFIG.";

const RUN_USAGE: &str = "\
quorlock run [OPTIONS] <RESOURCE> [--] <COMMAND>...
       quorlock run [OPTIONS] <RESOURCE> --shell <STRING>";

/// The first of what [`exit::TABLE`] and [`RUN_EXAMPLES`] have.
const RUN_SHORT: &str = "\
Exit codes: the command's own, 75 others held the lock, 69 no quorum, 76 the lock was lost.

Examples:
  quorlock run nightly-report -- ./report.sh --all
  quorlock run -q -E 0 --at-least 5min cron/cleanup -- cleanup   # in ten crontabs: runs once";

const RUN_EXAMPLES: &str = "\
The lock is kept until the last process of the command's group has ended. The group is killed before
the lock is over, also when quorlock itself is killed or stopped.

The command finds in its environment:
  QUORLOCK_HELD      1
  QUORLOCK_RESOURCE  what is locked; with --also all their names, with ` + ` between them
  QUORLOCK_FENCE     the fencing token, a number that only grows; not there with --fencing off
  QUORLOCK_TOKEN     what stands at the nodes; whoever knows it can release the lock
  QUORLOCK_TTL_MS    the TTL in milliseconds
  QUORLOCK_PERMIT    with --permits N, which one: 0 to N-1

Examples:
  quorlock run nightly-report -- ./report.sh --all
  quorlock run -q -E 0 --at-least 5min cron/cleanup -- cleanup   # in ten crontabs: runs once
  quorlock run -w forever -t 10s leader -- ./serve  # hot standby
  quorlock run --shared catalog -- ./export         # beside others who share it
  quorlock run --permits 3 exports -- ./export.sh   # three at once
  quorlock run accounts/1 --also accounts/2 -- pay  # both at once, or neither
  quorlock run db/migrate -c 'migrate up && seed'";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn waiting_no_time_is_asking_once() {
        assert_eq!("0s".parse(), Ok(WaitArg(Wait::Never)));
        assert_eq!("forever".parse(), Ok(WaitArg(Wait::Forever)));
        assert_eq!("90".parse(), Ok(WaitArg(Wait::UpTo(Duration::from_secs(90)))));
        assert_eq!("90s".parse(), Ok(WaitArg(Wait::UpTo(Duration::from_secs(90)))));
        assert!("soon".parse::<WaitArg>().unwrap_err().contains("forever"), "the cure is named");
    }
}
