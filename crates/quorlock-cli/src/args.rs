//! The command line: verbs, options, help.

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

/// Runs a command under a lock held by a quorum of independent Redis or Valkey masters.
#[derive(Parser)]
#[expect(clippy::doc_markdown, reason = "these comments are the help, which is plain text")]
#[command(name = "quorlock", version, after_long_help = SOURCES, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    /// Print errors only; a held lock is not an error
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Log what happens; -vv also logs every node's vote
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// When to colour the output; `auto` follows NO_COLOR and CLICOLOR_FORCE, otherwise it colours a
    /// terminal
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_short_help = true)]
    pub(crate) color: When,
    // Last, because its heading covers everything after it.
    #[command(flatten)]
    pub(crate) deployment: DeploymentArgs,
}

/// The verbs.
#[derive(Subcommand)]
#[expect(clippy::doc_markdown, reason = "these comments are the help, which is plain text")]
pub(crate) enum Verb {
    /// Run a command while holding a lock.
    ///
    /// The nodes are independent lock servers, usually three or five Redis or Valkey masters. Waits until a
    /// majority of them grants the lock RESOURCE, runs COMMAND, renews the lock while it runs, and releases it
    /// when the last process of the command's process group has ended. The exit code is that of COMMAND.
    ///
    /// Promised: one holder at a time, on any number of hosts, even if a minority of the nodes fails, as long
    /// as all clients use the same nodes, key prefix and max-ttl. If the lock cannot be renewed, the group gets
    /// SIGTERM and then SIGKILL before another client can acquire the lock, and the exit code is 76. If
    /// quorlock itself is killed (SIGKILL) or stopped (SIGSTOP), the group is killed before that as well; other
    /// signals are forwarded to it. If the host crashes, the lock expires after its TTL.
    ///
    /// Not promised: that COMMAND runs exactly once (it is not retried, and the next holder may run it again);
    /// that a write still in flight is stopped with the command; that a host or virtual machine which is
    /// paused past the TTL stops it before it runs on for a moment; anything if the clocks of the nodes jump,
    /// or if they lose keys other than by a restart, as by eviction or FLUSHALL. Processes that leave the
    /// group, such as daemons, run on without the lock unless --wait-for-descendants is given.
    ///
    /// When not to use it: on one host, `flock` is enough. If a second run would corrupt data, the lock alone
    /// is not enough: let the resource compare QUORLOCK_FENCE and reject smaller numbers.
    #[command(aliases = ["lock", "exec"], override_usage = RUN_USAGE, after_help = RUN_SHORT, after_long_help = format!("{}\n\n{SOURCES}\n\n{RUN_EXAMPLES}", exit::TABLE))]
    Run(RunArgs),
    /// Show who holds a lock on each node, and who waits for it
    #[command(after_long_help = format!("{SOURCES}\n\n{STATUS_EXAMPLES}"))]
    Status(StatusArgs),
    /// Check the nodes: what makes locks unsafe, slow or impossible, and how to fix it
    #[command(after_long_help = format!("{}\n\n{SOURCES}", exit::DOCTOR_TABLE))]
    Doctor(DoctorArgs),
    /// Hold a lock until a signal or the end of stdin, for scripts that are not one command
    #[command(after_long_help = format!("{HOLD_CODES}\n\n{SOURCES}\n\n{HOLD_EXAMPLES}"))]
    Hold(HoldArgs),
    /// Release a lock by its token, or take it from its holder
    #[command(alias = "unlock", after_long_help = format!("{RELEASE_CODES}\n\n{SOURCES}\n\n{RELEASE_EXAMPLES}"))]
    Release(ReleaseArgs),
    /// Measure how fast the nodes grant and release locks
    #[command(after_long_help = format!("{SOURCES}\n\n{BENCH_EXAMPLES}"))]
    Bench(BenchArgs),
    /// Start five servers and show a lock surviving the loss of two, or lend them to a command
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Print the completion script of a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Print the manual page, or write one page per verb to a folder
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

/// The nodes and how to reach them: the same for every client of a deployment.
///
/// `config` also reads these from the environment and the configuration file.
#[derive(clap::Args)]
#[command(next_help_heading = "Nodes")]
#[expect(clippy::doc_markdown, reason = "these comments are the help, which is plain text")]
pub(crate) struct DeploymentArgs {
    /// The nodes, comma-separated or repeated, such as redis://HOST:PORT.
    ///
    /// Redis and Valkey: redis:// or valkey://, rediss:// for TLS, redis+unix:///PATH,
    /// redis+sentinel://HOST,HOST/SERVICE, redis+cluster://HOST:PORT,HOST:PORT. Databases:
    /// postgres://USER@HOST/DATABASE, mysql:// or mariadb://USER@HOST/DATABASE, and, for one host,
    /// sqlite:///PATH. For another scheme the error lists those that this build supports.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) nodes: Vec<String>,
    /// The configuration file [default: the first of ./quorlock.toml, quorlock/quorlock.toml in
    /// $XDG_CONFIG_HOME or ~/.config, and /etc/quorlock.toml].
    ///
    /// A default file that other users can write is not read unless it is named here.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Prefix for every key [default: none]
    #[arg(long, global = true, hide_short_help = true, value_name = "PREFIX")]
    pub(crate) key_prefix: Option<String>,
    /// How long to wait for one node's answer [default: 1s, more for a distant node]
    #[arg(long, global = true, hide_short_help = true, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) node_timeout: Option<Duration>,
    /// Share of the TTL set aside because clocks run at different rates [default: 0.01]
    #[arg(long, global = true, hide_short_help = true, value_name = "SHARE")]
    pub(crate) drift: Option<f64>,
    /// Longest TTL that any client uses; a restarted node does not vote for that long [default: 30s]
    #[arg(long, global = true, hide_short_help = true, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) max_ttl: Option<Duration>,
    /// User name (ACL user) for nodes whose URL has none
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME")]
    pub(crate) username: Option<String>,
    /// File with the password in its first line; or set the environment variable QUORLOCK_PASSWORD
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// CA certificates (PEM) to trust for TLS, instead of those of the system [default: those of the
    /// system]
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Client certificate (PEM), followed by any intermediate certificates
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key (PEM) of the client certificate
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Name that the certificate of every node must have [default: the host of its address]
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME")]
    pub(crate) tls_server_name: Option<String>,
    /// The kinds of node that addresses may name, in every source.
    #[arg(skip)]
    pub(crate) kinds: Kinds,
}

/// `quorlock run`.
#[expect(clippy::doc_markdown, reason = "these comments are the help, which is plain text")]
#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// Name of the lock. Its key on the nodes is the prefix followed by this name
    pub(crate) resource: String,
    /// The command and its arguments; options of quorlock go before it
    #[arg(trailing_var_arg = true, required_unless_present = "shell", value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    /// Run STRING with $SHELL, or /bin/sh, instead of COMMAND
    #[arg(short = 'c', long, value_name = "STRING", conflicts_with = "command")]
    pub(crate) shell: Option<OsString>,
    /// Send SIGTERM this long before the lock expires, so that the command can shut down cleanly;
    /// SIGKILL follows just before it expires. Never more than a third of the TTL, whatever is set
    #[arg(short, long, hide_short_help = true, value_name = "DURATION", default_value = "5s",
          value_parser = duration::parse)]
    pub(crate) kill_after: Duration,
    /// Keep the lock until every process that the command started has ended, including those that
    /// left its process group, such as daemons. Linux only
    #[arg(long, hide_short_help = true)]
    pub(crate) wait_for_descendants: bool,
    /// Run at most once per DURATION, on any number of hosts.
    ///
    /// DURATION counts from the start of COMMAND. The lock stays taken until it has passed, also after COMMAND
    /// has ended, with whatever exit code; other clients wait while COMMAND runs, and exit with 75 (or -E)
    /// without waiting once it has ended. If the host crashes during the run, the lock expires after its TTL, and
    /// another host may run COMMAND again. Choose DURATION longer than the difference between the hosts' clocks,
    /// and shorter than the time between two runs. It is not limited by max-ttl.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, conflicts_with_all = ["shared", "also"])]
    pub(crate) at_least: Option<Duration>,
    /// Allow up to N holders (1 to 64) at the same time: a semaphore instead of a lock
    ///
    /// Every client must use the same N: nodes refuse a different N while a permit is taken. Use a name
    /// for a lock or for a semaphore, not for both: they do not exclude each other.
    #[arg(long, value_name = "N", conflicts_with_all = ["shared", "also"])]
    pub(crate) permits: Option<usize>,
    /// Report events on stderr as JSON, one per line.
    ///
    /// Events: acquired, held, no_quorum, interrupted, lost, released, unconfirmed, retained, error,
    /// warning. The reference lists their fields.
    #[arg(long)]
    pub(crate) json: bool,
    // Last, because its heading covers everything after it.
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
    /// Exit with 79 for warnings too
    #[arg(long)]
    pub(crate) strict: bool,
    /// TTL of the locks, by which round trips are judged [default: 30s]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// Whether the clients exclude recently restarted nodes from voting [default: on]
    #[arg(long, value_name = "WHETHER")]
    pub(crate) restart_guard: Option<Switch>,
}

/// A setting that is on or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// How long to wait, as written in options and files.
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
Settings can also come from environment variables, such as QUORLOCK_NODES or QUORLOCK_MAX_TTL, and
from the configuration file, as `nodes` or `max-ttl`. Flags override variables, which override the
file. This covers everything under Nodes and Metrics, and --ttl, --wait and --restart-guard. The
password is read from QUORLOCK_PASSWORD, the path of the configuration file from QUORLOCK_CONFIG.";

const RUN_USAGE: &str = "\
quorlock run [OPTIONS] <RESOURCE> [--] <COMMAND>...
       quorlock run [OPTIONS] <RESOURCE> --shell <STRING>";

/// The most important lines of [`exit::TABLE`] and [`RUN_EXAMPLES`].
const RUN_SHORT: &str = "\
Exit codes: the command's own, 75 lock held by another client, 69 no quorum, 76 lock lost.

Examples:
  quorlock run nightly-report -- ./report.sh --all
  quorlock run -q -E 0 --at-least 5min cron/cleanup -- cleanup   # in ten crontabs: one runs it";

const RUN_EXAMPLES: &str = "\
Environment of the command:
  QUORLOCK_HELD      1
  QUORLOCK_RESOURCE  name of the lock; with --also all names, joined by ` + `
  QUORLOCK_FENCE     fencing token, a number that only grows; unset with --fencing off
  QUORLOCK_TOKEN     token stored on the nodes; a process that knows it can release the lock
  QUORLOCK_TTL_MS    TTL in milliseconds
  QUORLOCK_PERMIT    with --permits N, the number of the permit, 0 to N-1

Getting started:
  quorlock demo -- quorlock run my-job -- ./job.sh  # on five temporary local servers
  export QUORLOCK_NODES=redis://10.0.0.1,redis://10.1.0.1,redis://10.2.0.1
  quorlock doctor                                   # checks the servers; exits non-zero if unsafe
  quorlock run my-job -- ./job.sh

Examples:
  quorlock run nightly-report -- ./report.sh --all
  quorlock run -q -E 0 --at-least 5min cron/cleanup -- cleanup   # in ten crontabs: one runs it
  quorlock run -w forever -t 10s leader -- ./serve  # hot standby
  quorlock run --shared catalog -- ./export         # together with other readers
  quorlock run --permits 3 exports -- ./export.sh   # at most three
  quorlock run accounts/1 --also accounts/2 -- pay  # both or neither
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
    fn a_wait_of_zero_tries_once() {
        assert_eq!("0s".parse(), Ok(WaitArg(Wait::Never)));
        assert_eq!("forever".parse(), Ok(WaitArg(Wait::Forever)));
        assert_eq!("90".parse(), Ok(WaitArg(Wait::UpTo(Duration::from_secs(90)))));
        assert_eq!("90s".parse(), Ok(WaitArg(Wait::UpTo(Duration::from_secs(90)))));
        assert!("soon".parse::<WaitArg>().unwrap_err().contains("forever"), "the cure is named");
    }
}
