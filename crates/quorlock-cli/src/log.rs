//! `quorlock log`: who held a lock before, from when and for how long, and how that ended.

use std::io;
use std::time::SystemTime;

use humantime::{format_rfc3339_millis, format_rfc3339_seconds};
use quorlock::{
    ConfigError, FencingToken, duration,
    lock::{HoldLog, SeenHold},
    protocol::{Mode, printable},
    votes::VoteOutcome,
};
use serde_json::{Value, json};

use crate::config::Settings;
use crate::deployment::DeploymentArgs;
use crate::exit;
use crate::failure::Failure;
use crate::program::quoted;
use crate::report::{json_line, millis, row, warn};
use crate::runtime::block_on;
use crate::stdout::print;
use crate::width::{self, keep_whole};

/// `quorlock log`.
#[derive(clap::Args)]
pub(crate) struct LogArgs {
    /// Name of the lock
    resource: String,
    /// Print JSON instead of a table, one line per hold
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const LOG_EXAMPLES: &str = "\
Exit codes:
  0    a quorum of the nodes answered
  69   too few nodes answered, so that holds may be missing
  64   invalid arguments
  78   invalid configuration, or nodes that keep no log
  125  internal error of quorlock

Examples:
  QUORLOCK_LOG=50 quorlock run cron/report -- ./report
  quorlock log cron/report
  quorlock log --json cron/report | jq -r 'select(.ended != \"released\") | .holder'

Nothing is logged unless clients say so: by --log HOLDS, the variable QUORLOCK_LOG, `log` in the
configuration file, or Builder::log. HOLDS is how many the nodes keep for each lock, at most 200. Each
is written once it has ended, by a request that no one waits for: who holds it now is shown by
`quorlock status`. A process that is killed or cut off writes nothing, so its hold is missing. All of
a log is dropped a week after its last hold.

The latest hold is the last. ACQUIRED (UTC) is by the clock of the holder's host, and NODES is how many
nodes have the entry. A semaphore has a log for each permit: `quorlock log 'NAME#0'`.";

/// Asks all nodes, prints the holds, and returns the exit code.
pub(crate) fn log(args: &LogArgs, deployment: DeploymentArgs) -> Result<u8, Failure> {
    let settings = Settings::load(deployment)?;
    block_on(async {
        let coordinator = settings.observer()?;
        let log = coordinator.lock(&args.resource).log().await.map_err(refused)?;
        let silent = silent(&log);
        if args.json {
            let lines = log.holds.iter().map(|seen| json_line(&in_json(&args.resource, seen)));
            print(&lines.collect::<String>())?;
            for why in &silent {
                warn(why);
            }
        } else {
            // Each permit of a semaphore is a lock, with a log of its own.
            let permits = if log.holds.is_empty() {
                coordinator.permits(&args.resource).await.unwrap_or_default()
            } else {
                None
            };
            print(&in_words(&args.resource, &log, permits, &silent, width::of(io::stdout())))?;
        }
        let (answered, needed) = (answered(&log), log.report.quorum().needed());
        Ok(if answered >= needed { exit::SUCCESS } else { exit::NO_QUORUM })
    })
}

/// Nodes that keep no log are no mistake of who reads it.
fn refused(error: ConfigError) -> Failure {
    if matches!(error, ConfigError::Unsupported { .. }) {
        return Failure::Config(error.to_string());
    }
    error.into()
}

/// Returns how many nodes have answered.
fn answered(log: &HoldLog) -> usize {
    log.report.votes().iter().filter(|vote| vote.outcome == VoteOutcome::Granted).count()
}

/// Returns why each of the other nodes has not.
fn silent(log: &HoldLog) -> Vec<String> {
    let silent = log.report.votes().iter().filter(|vote| vote.outcome != VoteOutcome::Granted);
    let why = |outcome: &VoteOutcome| {
        let keeps_none = *outcome == VoteOutcome::Skipped;
        if keeps_none { "keeps no log".to_owned() } else { outcome.to_string() }
    };
    silent.map(|vote| printable(&format!("{}: {}", vote.node, why(&vote.outcome))).to_string()).collect()
}

fn in_json(resource: &str, SeenHold { hold, nodes, .. }: &SeenHold) -> Value {
    json!({
        "resource": resource,
        "holder": hold.context,
        "token": hold.id.get(..SHOWN_DIGITS),
        "fencing_token": hold.fencing_token.map(FencingToken::get),
        "shared": hold.mode == Mode::Shared,
        "acquired": format_rfc3339_millis(SystemTime::UNIX_EPOCH + hold.acquired).to_string(),
        "held_ms": millis(hold.held_for),
        "ended": hold.end.word(),
        "nodes": nodes,
    })
}

/// As many digits of a token as elsewhere.
const SHOWN_DIGITS: usize = 8;

/// Returns a table, in lines of at most `width` characters if given, and what it means.
fn in_words(
    resource: &str,
    log: &HoldLog,
    permits: Option<usize>,
    silent: &[String],
    width: Option<usize>,
) -> String {
    let name = printable(resource);
    let mut lines = Vec::new();
    if !log.holds.is_empty() {
        lines.extend([table(&log.holds, width), String::new()]);
    }
    let (answered, needed) = (answered(log), log.report.quorum().needed());
    lines.push(match (log.holds.len(), permits) {
        (0, Some(permits)) => format!(
            "`{name}` is a semaphore of {permits}, each of which has a log: `quorlock log {}` is that of the first",
            quoted(&printable(&format!("{resource}#0")).to_string())
        ),
        (0, None) if answered < needed => format!("unknown whether holds of `{name}` are logged"),
        (0, None) => format!("no hold of `{name}` is logged: only clients with --log, QUORLOCK_LOG or `log` in their file log holds"),
        (1, _) => format!("1 hold of `{name}` that has ended"),
        (count, _) => format!("{count} holds of `{name}` that have ended, the latest last"),
    });
    if !silent.is_empty() {
        let missing = if answered < needed { format!(", {needed} are needed") } else { String::new() };
        lines.push(format!("{answered} of {} nodes answered{missing}", log.report.votes().len()));
        lines.extend(silent.iter().cloned());
    }
    lines.push(String::new());
    lines.join("\n")
}

const HEADINGS: [&str; 7] =
    ["acquired (UTC)", "held for", "holder", "fencing token", "token", "ended", "nodes"];

fn table(holds: &[SeenHold], width: Option<usize>) -> String {
    let mut table = width::table(HEADINGS, &[1, 3, 6], width);
    for SeenHold { hold, nodes, .. } in holds {
        let acquired = format_rfc3339_seconds(SystemTime::UNIX_EPOCH + hold.acquired).to_string();
        let shared = if hold.mode == Mode::Shared { " (shared)" } else { "" };
        table.add_row(row([
            acquired.replace('T', " ").replace('Z', ""),
            duration::format(hold.held_for),
            format!("{}{shared}", printable(&hold.context)),
            hold.fencing_token.map(|number| number.to_string()).unwrap_or_default(),
            hold.id.get(..SHOWN_DIGITS).unwrap_or_default().to_owned(),
            hold.end.to_string(),
            nodes.to_string(),
        ]));
    }
    keep_whole(&mut table, width, &[0, 1, 3, 4, 6]);
    table.trim_fmt()
}
