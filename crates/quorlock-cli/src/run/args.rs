//! The verbs that run a command under a lock.

use std::ffi::OsString;
use std::time::Duration;

use quorlock::duration;

use crate::lock_args::LockArgs;
use crate::metrics::MetricsArgs;
use crate::values::{Switch, WaitArg};

/// `quorlock run`.
#[expect(clippy::doc_markdown, reason = "these comments are the help, which is plain text")]
#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// Name of the lock. Its key on the nodes is the prefix followed by this name
    pub(crate) resource: String,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Run at most once in DURATION, on any number of hosts.
    ///
    /// DURATION counts from the start of COMMAND. The lock stays taken until it has passed, also after COMMAND has
    /// ended, with whatever exit code; other clients with --at-least or --once-per wait while COMMAND runs, and exit
    /// with 75 (or -E) without waiting once it has ended. If the host crashes during the run, the lock expires after
    /// its TTL, and another host may run COMMAND again. Choose DURATION longer than the difference between the hosts'
    /// clocks, and shorter than the time between two runs. It is not limited by max-ttl. If others wait at the end of
    /// a run that lasted longer, the lock stays taken for 5 s: clients that have waited since less than DURATION
    /// after its start exit with 75, later ones run COMMAND.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, conflicts_with_all = ["shared", "also"])]
    pub(crate) at_least: Option<Duration>,
    /// Run at most once per hour, day or other DURATION of the calendar.
    ///
    /// As --at-least, on any number of hosts, but until the end of the current slot instead of for a fixed
    /// time. Slots begin at multiples of DURATION since 1970, by the clock of the host that runs COMMAND: 1h
    /// begins at each full hour of UTC; those of a day or more are whole days of the local calendar, as cron's (TZ):
    /// 1day begins at midnight, 7days on Thursdays; months have no fixed length. So a host that was down and starts late in the slot finds it used,
    /// and the next slot is free from its first moment. Start the hosts at least as long after the start of a slot
    /// as their clocks differ. A run that lasts longer than its slot keeps the lock until it ends, and clients
    /// that have waited since before the end of the slot exit with 75.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse,
          conflicts_with_all = ["shared", "also", "at_least"])]
    pub(crate) once_per: Option<Duration>,
    /// Allow up to N holders (1 to 64) at the same time: a semaphore instead of a lock.
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

/// `quorlock elect`.
#[derive(clap::Args)]
pub(crate) struct ElectArgs {
    /// Name of the election, which is also that of the leader's lock
    pub(crate) resource: String,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// What the leader announces to observers, such as the address at which it can be reached; up to 200
    /// bytes, shown by `quorlock status` after host and process id
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) value: String,
    /// Lead for at most this long in a row, then stop the command, resign and campaign again
    /// [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) max_hold: Option<Duration>,
    /// How long to campaign before giving up with exit code 75 or 69, or `forever`
    #[arg(short, long, value_name = "DURATION", default_value = "forever")]
    pub(crate) wait: WaitArg,
    /// How long the leader's lock lasts without a renewal, and so how soon a leader that crashed is
    /// replaced; it is renewed every third of this [default: 30s]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// Whether recently restarted nodes are excluded from voting [default: on]
    #[arg(long, hide_short_help = true, value_name = "WHETHER")]
    pub(crate) restart_guard: Option<Switch>,
    /// Report events on stderr as JSON, one per line.
    ///
    /// Events: acquired when it is elected, lost, released, and the others of `quorlock run`.
    #[arg(long)]
    pub(crate) json: bool,
    // Last, because its heading covers everything after it.
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
}

impl ElectArgs {
    /// Returns the options of the leader's lock.
    pub(crate) fn lock(&self) -> LockArgs {
        LockArgs::of_leader(self.wait, self.ttl, self.max_hold, self.restart_guard, self.value.clone())
    }
}

/// A command to run under a lock.
#[derive(clap::Args)]
pub(crate) struct JobArgs {
    /// The command and its arguments; options of quorlock go before it
    #[arg(trailing_var_arg = true, required_unless_present = "shell", value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    /// Run STRING with $SHELL, or /bin/sh, instead of COMMAND
    #[arg(short = 'c', long, value_name = "STRING", conflicts_with = "command")]
    pub(crate) shell: Option<OsString>,
    /// Send SIGTERM this long before the lock expires, so that the command can shut down cleanly;
    /// SIGKILL follows just before it expires. Never more than a third of the TTL or of --max-hold
    #[arg(short, long, hide_short_help = true, value_name = "DURATION", default_value = "5s",
          value_parser = duration::parse)]
    pub(crate) kill_after: Duration,
    /// Keep the lock until every process that the command started has ended, including those that
    /// left its process group, such as daemons. Linux only
    #[arg(long, hide_short_help = true)]
    pub(crate) wait_for_descendants: bool,
}

pub(crate) const RUN_USAGE: &str = "\
quorlock run [OPTIONS] <RESOURCE> [--] <COMMAND>...
       quorlock run [OPTIONS] <RESOURCE> --shell <STRING>";

/// The most important lines of [`exit::TABLE`](crate::exit::TABLE) and [`RUN_EXAMPLES`].
pub(crate) const RUN_SHORT: &str = "\
Exit codes: the command's own, 75 lock held by another client, 69 no quorum, 76 lock lost.

Examples:
  quorlock run nightly-report -- ./report.sh --all
  quorlock run -q -E 0 --once-per 1day cron/cleanup -- cleanup   # in ten crontabs: one runs it";

pub(crate) const RUN_EXAMPLES: &str = "\
Environment of the command:
  QUORLOCK_HELD      1
  QUORLOCK_RESOURCE  name of the lock; with --also all names, sorted, joined by ` + `
  QUORLOCK_FENCE     fencing token, a number that only grows; unset with --fencing off
  QUORLOCK_TOKEN     token stored on the nodes; a process that knows it can release the lock
  QUORLOCK_TTL_MS    TTL in milliseconds
  QUORLOCK_PERMIT    with --permits N, the number of the permit, 0 to N-1

Getting started:
  quorlock demo -- quorlock run my-job -- ./job.sh  # on five temporary local servers
  quorlock init --nodes redis://10.0.0.1,redis://10.1.0.1,redis://10.2.0.1   # checks, writes quorlock.toml
  quorlock run my-job -- ./job.sh

Examples:
  quorlock run nightly-report -- ./report.sh --all
  quorlock run -q -E 0 --once-per 1day cron/cleanup -- cleanup   # in ten crontabs: one runs it
  quorlock run -q -E 0 --at-least 5min cron/mail -- send-mail    # the same, for jobs every 15 minutes
  quorlock run --shared catalog -- ./export         # together with other readers
  quorlock run --permits 3 exports -- ./export.sh   # at most three
  quorlock run accounts/1 --also accounts/2 -- pay  # both or neither
  quorlock run db/migrate -c 'migrate up && seed'";

pub(crate) const ELECT_USAGE: &str = "\
quorlock elect [OPTIONS] <RESOURCE> [--] <COMMAND>...
       quorlock elect [OPTIONS] <RESOURCE> --shell <STRING>";

pub(crate) const ELECT_CODES: &str = "\
Exit codes:
  N      the command's own: it ended by itself, and the leadership was resigned
  128+N  signal N ended the command, or quorlock while it campaigned (143: SIGTERM)
  76     the leadership was lost after quorlock was asked to end
  75     with --wait: another candidate led for the whole wait
  69     nodes must be reconfigured, such as a wrong password; with --wait also: no quorum
  64     invalid arguments
  78     invalid configuration
  125    internal error of quorlock
  126    the command is not executable
  127    the command was not found";

pub(crate) const ELECT_EXAMPLES: &str = "\
The command has the environment of `quorlock run`: QUORLOCK_FENCE is the fencing token of this
leadership. With --metrics ADDRESS, /ready of that address answers 200 while it leads, else 503.

Examples:
  quorlock elect scheduler -- ./scheduler           # on three hosts: one of them runs it
  quorlock elect --ttl 10s --value http://10.0.0.7:8080 api -- ./serve";
