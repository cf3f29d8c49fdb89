//! The command line: verbs, options, help.

use std::ffi::OsString;

use clap::{ArgAction, Parser, Subcommand};

use crate::bench::{BENCH_EXAMPLES, BenchArgs};
use crate::completions::{COMPLETIONS_EXAMPLES, CompletionsArgs};
use crate::demo::{DEMO_EXAMPLES, DemoArgs};
use crate::deployment::DeploymentArgs;
use crate::doctor::DoctorArgs;
use crate::exit;
use crate::hold::{HOLD_CODES, HOLD_EXAMPLES, HoldArgs};
use crate::init::{INIT_EXAMPLES, InitArgs};
use crate::list::{LIST_EXAMPLES, ListArgs};
use crate::log::{LOG_EXAMPLES, LogArgs};
use crate::logging;
use crate::man::{MAN_EXAMPLES, ManArgs};
use crate::paint::When;
use crate::release::{RELEASE_CODES, RELEASE_EXAMPLES, ReleaseArgs};
use crate::run::{
    ELECT_CODES, ELECT_EXAMPLES, ELECT_USAGE, ElectArgs, RUN_EXAMPLES, RUN_SHORT, RUN_USAGE, RunArgs,
};
use crate::status::{STATUS_EXAMPLES, StatusArgs};
use crate::top::{TOP_EXAMPLES, TopArgs};
use crate::wait::{WAIT_CODES, WAIT_EXAMPLES, WaitArgs};

/// Runs a command under a lock held by a quorum of independent Redis or Valkey masters.
#[derive(Parser)]
#[expect(clippy::doc_markdown, reason = "these comments are the help, which is plain text")]
#[command(name = "quorlock", version, after_long_help = SOURCES, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct ArgsOf<V: Subcommand> {
    #[command(subcommand)]
    pub(crate) verb: V,
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

/// The command line, with every verb.
pub(crate) type Args = ArgsOf<Verb>;

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
    /// Run a command while this process leads an election, and campaign again after a loss.
    ///
    /// Campaigns until elected, for as long as it takes, and runs COMMAND while it leads: on any number of
    /// hosts, one runs it, and the others are ready to. If the leadership is lost, COMMAND and all that it
    /// started get SIGTERM and then SIGKILL before another candidate can lead, and this process campaigns
    /// again. If COMMAND ends by itself, the leadership is resigned, and the exit code is that of COMMAND: let
    /// a supervisor such as systemd or Kubernetes start quorlock again.
    ///
    /// The promises are those of `quorlock run`, whose lock of the same name it holds while it leads. Programs
    /// that use the library follow the leader with `Observer`, and read the value that --value announces.
    #[command(override_usage = ELECT_USAGE, after_long_help = format!("{ELECT_CODES}\n\n{SOURCES}\n\n{ELECT_EXAMPLES}"))]
    Elect(ElectArgs),
    /// Show who holds a lock on each node, and who waits for it
    #[command(after_long_help = format!("{SOURCES}\n\n{STATUS_EXAMPLES}"))]
    Status(StatusArgs),
    /// List the locks that are held, with their holders and waiters
    #[command(alias = "ls", after_long_help = format!("{LIST_EXAMPLES}\n\n{SOURCES}"))]
    List(ListArgs),
    /// Show who held a lock before, from when and for how long, and how that ended
    #[command(after_long_help = format!("{LOG_EXAMPLES}\n\n{SOURCES}"))]
    Log(LogArgs),
    /// Show the locks that are held, live, the longest waits first
    #[command(after_long_help = format!("{TOP_EXAMPLES}\n\n{SOURCES}"))]
    Top(TopArgs),
    /// Check the nodes: what makes locks unsafe, slow or impossible, and how to fix it
    #[command(after_long_help = format!("{}\n\n{SOURCES}", exit::DOCTOR_TABLE))]
    Doctor(DoctorArgs),
    /// Check the nodes, and write a configuration file for them
    #[command(after_long_help = format!("{INIT_EXAMPLES}\n\n{SOURCES}"))]
    Init(InitArgs),
    /// Hold a lock until a signal or the end of stdin, for scripts that are not one command
    #[command(after_long_help = format!("{HOLD_CODES}\n\n{SOURCES}\n\n{HOLD_EXAMPLES}"))]
    Hold(HoldArgs),
    /// Wait until a lock is free, without acquiring it
    #[command(after_long_help = format!("{WAIT_CODES}\n\n{SOURCES}\n\n{WAIT_EXAMPLES}"))]
    Wait(WaitArgs),
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

/// `run` without the other verbs: defining those takes half a millisecond, as long as starting a command. Without help, which
/// the whole definition shows.
#[derive(Subcommand)]
enum RunAlone {
    Run(RunArgs),
}

impl Args {
    /// Parses a line that begins with `run`; `None` if it does not, or is to be answered by the whole definition.
    pub(crate) fn of_run(words: &[OsString]) -> Option<Args> {
        if words.get(1).is_none_or(|verb| verb != "run") {
            return None;
        }
        let ArgsOf { verb, quiet, verbose, color, deployment } = ArgsOf::try_parse_from(words).ok()?;
        let RunAlone::Run(run) = verb;
        Some(Args { verb: Verb::Run(run), quiet, verbose, color, deployment })
    }

    pub(crate) fn logged(&self) -> logging::Wanted {
        let runs = matches!(self.verb, Verb::Run(_) | Verb::Elect(_));
        let waits = runs || matches!(self.verb, Verb::Hold(_) | Verb::Wait(_));
        let (warnings, ends) = (waits && !self.quiet, !runs || self.wants_json());
        logging::Wanted { verbose: self.verbose, warnings, ends }
    }

    pub(crate) fn wants_json(&self) -> bool {
        match &self.verb {
            Verb::Run(run) => run.json,
            Verb::Elect(elect) => elect.json,
            Verb::Doctor(doctor) => doctor.json,
            Verb::Init(init) => init.json,
            Verb::Hold(hold) => hold.json,
            Verb::Status(status) => status.json,
            Verb::List(list) => list.json,
            Verb::Log(log) => log.json,
            Verb::Top(top) => top.json,
            Verb::Wait(wait) => wait.json,
            Verb::Release(release) => release.json,
            Verb::Bench(bench) => bench.json,
            Verb::Demo(demo) => demo.json,
            Verb::Completions(_) | Verb::Man(_) => false,
        }
    }
}

pub(crate) const SOURCES: &str = "\
Settings can also come from environment variables, such as QUORLOCK_NODES or QUORLOCK_MAX_TTL, and
from the configuration file, as `nodes` or `max-ttl`. Flags override variables, which override the
file. This covers everything under Nodes and Metrics, and --ttl, --wait and --restart-guard. The
password is read from QUORLOCK_PASSWORD, the path of the configuration file from QUORLOCK_CONFIG, of
which /dev/null is none.
A DURATION is a number of seconds, or such as 500ms, 5min, 1h or 1day.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use quorlock::doctor::Check;

    use super::*;
    use crate::failure::RESTART_HINT;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_line_of_run_is_understood_without_the_other_verbs_as_with_them() {
        for (line, alone) in [
            ("quorlock run job true", true),
            ("quorlock run -n -q --nodes redis://a,redis://b,redis://c job -- list -q", true),
            ("quorlock run --wait=5s --ttl 3s -E 0 --color never job -c list", true),
            ("quorlock run -vv --quorum 4 job -- --help", true),
            ("quorlock -q run job true", false),
            ("quorlock lock job true", false),
            ("quorlock list", false),
            ("quorlock run", false),
            ("quorlock run job", false),
            ("quorlock run --help", false),
            ("quorlock run job --permit 3 true", false),
            ("quorlock run -q -v job true", false),
            ("quorlock run list", false),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let (by_run, by_all) = (Args::of_run(&words), Args::try_parse_from(&words));
            assert_eq!(by_run.is_some(), alone, "{line}");
            let (Some(by_run), Ok(by_all)) = (&by_run, &by_all) else {
                assert!(by_run.is_none(), "{line}");
                continue;
            };
            let (Verb::Run(run), Verb::Run(whole)) = (&by_run.verb, &by_all.verb) else {
                panic!("{line} is no run")
            };
            assert_eq!((&run.resource, &run.job.command), (&whole.resource, &whole.job.command));
            assert_eq!((by_run.quiet, by_run.verbose), (by_all.quiet, by_all.verbose), "{line}");
            assert_eq!(by_run.deployment.nodes, by_all.deployment.nodes, "{line}");
        }
    }

    #[test]
    fn no_finding_names_an_option_that_a_verb_lacks() {
        let mut command = Args::command();
        command.build();
        let cures = Check::ALL.iter().map(|check| (check.code(), check.cure()));
        let cures: Vec<_> = cures.chain([("restarted", RESTART_HINT)]).collect();
        let mut looked_at = 0;
        for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
            for (finding, cure) in &cures {
                // Words of other programs are quoted.
                let own = cure.split('`').filter(|quoted| !quoted.starts_with("redis-cli"));
                for word in own.flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-'))
                {
                    let Some(option) = word.strip_prefix("--") else { continue };
                    looked_at += 1;
                    let has = verb.get_arguments().any(|argument| argument.get_long() == Some(option));
                    assert!(has, "`quorlock {}` has no --{option}, which {finding} names", verb.get_name());
                }
            }
        }
        assert!(looked_at > 30, "findings name options: {looked_at}");
    }
}
