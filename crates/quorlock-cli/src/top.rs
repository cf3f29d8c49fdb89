//! `quorlock top`: the locks that are held, live, the longest waits first.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use humantime::format_rfc3339_millis;
use quorlock::{
    Coordinator, duration,
    node::ListedKeys,
    runtime::{Clock as _, SystemClock},
};
use rustix::termios::tcgetwinsize;
use serde_json::json;
use tokio::sync::watch;

use crate::args::DeploymentArgs;
use crate::config::Settings;
use crate::exit;
use crate::failure::Failure;
use crate::list::entry::{Entry, table};
use crate::list::survey::{self, Survey};
use crate::report::{Report, json_line};
use crate::runtime::{block_on, now, sleep_until};
use crate::signals::Signals;
use crate::stdout::print;

/// `quorlock top`.
#[derive(clap::Args)]
pub(crate) struct TopArgs {
    /// Only locks whose names begin with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// How often to look at the locks that are shown
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    interval: Duration,
    /// Show N pictures and exit [default: until Ctrl-C]
    #[arg(long, value_name = "N")]
    iterations: Option<u64>,
    /// Print JSON instead of a table, one line per picture
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const TOP_EXAMPLES: &str = "\
Exit codes:
  0    ended by a signal, or after --iterations
  69   too many nodes could not be listed
  64   invalid arguments
  78   invalid configuration
  125  internal error of quorlock

Examples:
  quorlock top
  quorlock top --iterations 1 --json cron/ | jq '.locks[0]'

The nodes are listed again and again, as by `quorlock list`; on large servers it takes a while until a
new lock or waiter is seen. No more than 1000 locks are looked at in each interval: those with waiters
first, and of others the first by name.";

/// How many locks are looked at in an interval: what fits on a screen, and what may come next.
const WATCHED: usize = 1000;

/// Shows the locks, and returns the exit code.
pub(crate) fn top(args: &TopArgs, deployment: DeploymentArgs, quiet: bool) -> Result<u8, Failure> {
    if args.interval.is_zero() {
        return Err(Failure::Usage(
            "an interval of zero would never pause; use --interval 100ms or more".to_owned(),
        ));
    }
    let settings = Settings::load(deployment)?;
    let report = Report::to(args.json, quiet);
    block_on(async {
        let coordinator = settings.coordinator()?;
        let mut signals = Signals::listen().map_err(Failure::to("receive signals"))?;
        tokio::select! {
            biased;
            _ = signals.next_end() => {
                // The terminal has echoed ^C.
                if io::stdout().is_terminal() {
                    print("\n")?;
                }
                Ok(exit::SUCCESS)
            }
            ended = show(args, &coordinator, report) => ended,
        }
    })
}

async fn show(args: &TopArgs, coordinator: &Coordinator, report: Report) -> Result<u8, Failure> {
    let first = Names::list(coordinator, &args.prefix, report).await;
    first.held.warn();
    if !first.held.is_complete() {
        return Ok(exit::NO_QUORUM);
    }
    let (sender, names) = watch::channel(first);
    // It ends with the program.
    tokio::spawn(list_again(sender, coordinator.clone(), args.prefix.clone()));
    let (mut lines, mut shown, mut number) = (0, BTreeSet::new(), 0);
    loop {
        let began = now();
        let latest = names.borrow().clone();
        let asked = latest.first(&shown).into_iter();
        let mut entries: Vec<Entry> = survey::entries(coordinator, asked).collect().await;
        entries.sort_by(|one, other| one.order().cmp(&other.order()));
        shown = entries.iter().map(|entry| entry.resource.as_str().into()).collect();
        lines = draw(args, &entries, latest.held.names.len(), lines)?;
        number += 1;
        if args.iterations.is_some_and(|most| number >= most) {
            return Ok(exit::SUCCESS);
        }
        sleep_until(began + args.interval).await;
    }
}

/// Lists the names again and again. Keeps what was known while too few nodes can be listed.
async fn list_again(names: watch::Sender<Names>, coordinator: Coordinator, prefix: String) {
    while !names.is_closed() {
        sleep_until(now() + AGAIN_AFTER).await;
        let listed = Names::list(&coordinator, &prefix, Report::Errors).await;
        if listed.held.is_complete() {
            names.send_replace(listed);
        }
    }
}

/// The names that may be shown.
#[derive(Clone)]
struct Names {
    held: Arc<Survey>,
    waited_for: Arc<Survey>,
}

impl Names {
    async fn list(coordinator: &Coordinator, prefix: &str, report: Report) -> Names {
        let held = survey::names(coordinator, prefix, ListedKeys::Locks, report).await;
        let waited_for = survey::names(coordinator, prefix, ListedKeys::Queues, report).await;
        Names { held: held.into(), waited_for: waited_for.into() }
    }

    /// Returns the names to look at: those with waiters, those shown before, and others up to the limit.
    fn first(&self, shown: &BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
        let mut first: BTreeSet<Arc<str>> = self.waited_for.names.iter().take(WATCHED).cloned().collect();
        for name in shown.iter().chain(&self.held.names) {
            if first.len() >= WATCHED {
                break;
            }
            first.insert(Arc::clone(name));
        }
        first
    }
}

/// The pause between two listings.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Draws a picture over the last one, which had this number of `lines`, and returns its own number.
fn draw(args: &TopArgs, entries: &[Entry], listed: usize, lines: usize) -> Result<usize, Failure> {
    let at = format_rfc3339_millis(SystemTime::UNIX_EPOCH + SystemClock::default().wall());
    if args.json {
        let locks: Vec<_> = entries.iter().map(Entry::in_json).collect();
        print(&json_line(&json!({ "at": at.to_string(), "listed": listed, "locks": locks })))?;
        return Ok(0);
    }
    let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 4);
    let (width, height) = match size {
        Some(size) => (Some(usize::from(size.ws_col)), usize::from(size.ws_row)),
        None => (None, entries.len() + 4),
    };
    let waited_for = entries.iter().filter(|entry| entry.has_waiters()).count();
    let head = format!("{at}  stored: {listed}, shown with waiters: {waited_for}");
    // Lines that have scrolled out cannot be overwritten.
    let text = format!("{head}\n\n{}", table(entries.iter().take(height.saturating_sub(4)), width));
    let picture: Vec<&str> = text.lines().take(height.saturating_sub(1)).collect();
    if !io::stdout().is_terminal() {
        print(&format!("{}\n\n", picture.join("\n")))?;
        return Ok(0);
    }
    let back = if lines == 0 { String::new() } else { format!("\x1b[{lines}A") };
    let drawn: Vec<&str> = picture.iter().flat_map(|line| [*line, "\x1b[K\n"]).collect();
    print(&format!("{back}{}\x1b[J", drawn.concat()))?;
    Ok(picture.len())
}
