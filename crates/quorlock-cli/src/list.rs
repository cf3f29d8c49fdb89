//! `quorlock list`: all locks that are held, with their holders and waiters.

use std::io;
use std::pin::pin;

use futures::StreamExt as _;
use quorlock::{Coordinator, node::ListedKeys, protocol::printable};

use crate::config::Settings;
use crate::deployment::DeploymentArgs;
use crate::exit;
use crate::failure::Failure;
use crate::report::{Report, json_line};
use crate::runtime::block_on;
use crate::stdout::print;
use crate::width;

pub(crate) mod entry;
pub(crate) mod survey;

use entry::{Seen, table};
use survey::Survey;

/// `quorlock list`.
#[derive(clap::Args)]
pub(crate) struct ListArgs {
    /// Only locks whose names begin with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// Stop after this many locks, in the order of their names [default: 1000; none with --json]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print JSON instead of a table, one line per lock
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const LIST_EXAMPLES: &str = "\
Exit codes:
  0    all held locks are listed, or as many as --limit allows
  69   too many nodes could not be listed or did not answer, so that locks may be missing; that
       nothing is listed then does not mean that no lock is held
  64   invalid arguments
  78   invalid configuration
  125  internal error of quorlock

Examples:
  quorlock list
  quorlock list cron/
  quorlock list --json | jq -r 'select(.waiters > 0) | .resource'

A lock is listed if a quorum of the nodes stores it when it is looked at; others come and go
meanwhile. SINCE is the time of the fencing token, by the clock of the client that drew it.

A server looks at 100 keys at a time, with pauses of 3 ms: 45 s for a million keys, whatever
the prefix. No more servers do so at the same time than a quorum can do without, two of five, until
as many as intersect every quorum are listed. Then no more than 1,000 locks are looked at in a second.
Redis lists every string of such a name, so use a key prefix where servers keep other data.";

/// How many locks a table has, unless told otherwise.
const ROWS: usize = 1000;

/// Lists the locks, and returns the exit code.
pub(crate) fn list(args: &ListArgs, deployment: DeploymentArgs, quiet: bool) -> Result<u8, Failure> {
    let settings = Settings::load(deployment)?;
    let report = Report::to(args.json, quiet);
    block_on(async {
        let coordinator = settings.observer()?;
        let held = survey::names(&coordinator, &args.prefix, ListedKeys::Locks, report).await;
        held.warn();
        let unknown = if args.json {
            in_json(args, &coordinator, &held).await
        } else {
            in_table(args, &coordinator, &held).await
        }?;
        Ok(if held.is_complete() && unknown == 0 { exit::SUCCESS } else { exit::NO_QUORUM })
    })
}

/// Prints each lock as soon as it is looked at, and returns of how many it is unknown whether they are held.
async fn in_json(args: &ListArgs, coordinator: &Coordinator, held: &Survey) -> Result<usize, Failure> {
    let limit = args.limit.unwrap_or(usize::MAX);
    let mut unknown = 0;
    let entries = survey::entries(coordinator, held.names.iter().cloned()).take(limit);
    let lines = entries.map(|seen| {
        unknown += usize::from(matches!(seen, Seen::Unknown(_)));
        json_line(&seen.in_json())
    });
    {
        // Many lines in one write.
        let mut lines = pin!(lines.ready_chunks(LINES));
        while let Some(lines) = lines.next().await {
            print(&lines.concat())?;
        }
    }
    Ok(unknown)
}

/// The most lines of one write.
const LINES: usize = 256;

async fn in_table(args: &ListArgs, coordinator: &Coordinator, held: &Survey) -> Result<usize, Failure> {
    let limit = args.limit.unwrap_or(ROWS);
    let entries = survey::entries(coordinator, held.names.iter().cloned());
    let (mut rows, unknown) = Seen::sorted(entries.take(limit.saturating_add(1)).collect().await);
    let has_more = rows.len() + unknown.len() > limit;
    rows.truncate(limit);
    let listed = if rows.is_empty() {
        String::new()
    } else {
        format!("{}\n\n", table(&rows, width::of(io::stdout())))
    };
    let gaps: Vec<String> = held.gap().into_iter().chain(not_looked_at(&unknown)).collect();
    let verdict = match (rows.len(), has_more, gaps.is_empty()) {
        (0, _, true) => format!("no lock is held{}", of_prefix(&args.prefix)),
        (0, _, false) => format!("unknown whether a lock is held{}", of_prefix(&args.prefix)),
        (count, true, _) => {
            format!("the first {count} locks; there are more: name a PREFIX, or give --limit N or --json")
        }
        (1, false, true) => "1 lock is held".to_owned(),
        (count, false, true) => format!("{count} locks are held"),
        (1, false, false) => "at least 1 lock is held".to_owned(),
        (count, false, false) => format!("at least {count} locks are held"),
    };
    let why = if gaps.is_empty() { String::new() } else { format!(": {}", gaps.join("; ")) };
    print(&format!("{listed}{verdict}{why}\n"))?;
    Ok(unknown.len())
}

/// Names the locks of which too few nodes said whether they are held.
fn not_looked_at(unknown: &[String]) -> Option<String> {
    const NAMED: usize = 5;
    let named: Vec<String> =
        unknown.iter().take(NAMED).map(|name| format!("`{}`", printable(name))).collect();
    let more = if unknown.len() > NAMED { ", …" } else { "" };
    (!unknown.is_empty()).then(|| format!("too few nodes answered about {}{more}", named.join(", ")))
}

fn of_prefix(prefix: &str) -> String {
    if prefix.is_empty() {
        String::new()
    } else {
        format!(" with a name that begins with `{}`", printable(prefix))
    }
}
