//! `quorlock top`: the locks that are held, live, the longest waits first.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::stream::unfold;
use futures::{Stream, StreamExt as _};
use humantime::format_rfc3339_millis;
use quorlock::{
    Coordinator, duration,
    node::ListedKeys,
    runtime::{Clock as _, SystemClock},
};
use serde_json::json;
use tokio::sync::watch;

use crate::config::Settings;
use crate::deployment::DeploymentArgs;
use crate::exit;
use crate::failure::Failure;
use crate::list::entry::{self, Entry, Seen, table};
use crate::list::survey::{self, Survey};
use crate::live::{self, Size};
use crate::report::{Report, json_line};
use crate::runtime::{block_on, now, sleep_until};
use crate::signals::Signals;
use crate::stdout::{print, unread};

/// `quorlock top`.
#[derive(clap::Args)]
pub(crate) struct TopArgs {
    /// Only locks whose names begin with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// How often to look at the locks that are shown
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    interval: Duration,
    /// Show N pictures and exit [default: until q or Ctrl-C]
    #[arg(long, value_name = "N")]
    iterations: Option<u64>,
    /// Print JSON instead of a table, one line per picture
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const TOP_EXAMPLES: &str = "\
Exit codes:
  0    ended by q or a signal, or after --iterations
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
        let coordinator = settings.observer()?;
        let mut signals = Signals::listen().map_err(Failure::to("receive signals"))?;
        let mut unread = pin!(unread());
        let names = tokio::select! {
            biased;
            _ = signals.next_end() => return Ok(exit::SUCCESS),
            failure = &mut unread => return Err(failure),
            names = Names::list(&coordinator, &args.prefix, report) => names,
        };
        names.held.warn();
        if !names.held.is_complete() {
            return Ok(exit::NO_QUORUM);
        }
        let pictures = pictures(args, &coordinator, names);
        if args.json || !io::stdout().is_terminal() {
            tokio::select! {
                biased;
                printed = print_all(args.json, &mut signals, pictures) => printed?,
                failure = unread => return Err(failure),
            }
        } else {
            live::show(&mut signals, pictures, |picture, size| picture.lines(Some(size))).await?;
        }
        Ok(exit::SUCCESS)
    })
}

/// Prints the pictures one after the other, until a signal.
async fn print_all(
    json: bool,
    signals: &mut Signals,
    pictures: impl Stream<Item = Result<Picture, Failure>>,
) -> Result<(), Failure> {
    let mut pictures = pin!(pictures);
    loop {
        tokio::select! {
            biased;
            _ = signals.next_end() => return Ok(()),
            picture = pictures.next() => match picture {
                None => return Ok(()),
                Some(picture) if json => print(&picture?.in_json())?,
                Some(picture) => print(&format!("{}\n\n", picture?.lines(None).join("\n")))?,
            },
        }
    }
}

/// Looks at the locks in each interval, as often as was asked for.
fn pictures(
    args: &TopArgs,
    coordinator: &Coordinator,
    first: Names,
) -> impl Stream<Item = Result<Picture, Failure>> {
    let (sender, names) = watch::channel(first);
    // It ends with the program.
    tokio::spawn(list_again(sender, coordinator.clone(), args.prefix.clone()));
    let pictures = unfold((BTreeSet::new(), now()), move |(shown, next)| {
        let names = names.clone();
        async move {
            sleep_until(next).await;
            let began = now();
            let latest = names.borrow().clone();
            let asked = latest.first(&shown).into_iter();
            let (mut entries, unknown) = Seen::sorted(survey::entries(coordinator, asked).collect().await);
            entries.sort_by(|one, other| one.order().cmp(&other.order()));
            let names = entries.iter().map(|entry| &entry.resource).chain(&unknown);
            let shown = names.map(|name| name.as_str().into()).collect();
            let at = SystemTime::UNIX_EPOCH + SystemClock::default().wall();
            let (listed, is_current) = (latest.held.names.len(), latest.is_current);
            let picture = Picture { at, listed, is_current, unknown: unknown.len(), entries };
            Some((Ok(picture), (shown, began + args.interval)))
        }
    });
    pictures.take(args.iterations.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX)))
}

/// The locks at one time.
struct Picture {
    at: SystemTime,
    /// How many names are stored.
    listed: usize,
    /// Whether enough nodes could be listed the last time.
    is_current: bool,
    /// How many locks could not be looked at.
    unknown: usize,
    entries: Vec<Entry>,
}

impl Picture {
    /// Returns its lines: those that fit, if the size is given.
    fn lines(&self, size: Option<Size>) -> Vec<String> {
        let waited_for = self.entries.iter().filter(|entry| entry.has_waiters()).count();
        let at = format_rfc3339_millis(self.at);
        let unclear = match self.unknown {
            0 => String::new(),
            unknown => format!(", held or free, unknown: {unknown}"),
        };
        let old = if self.is_current { "" } else { ", not up to date: too few nodes can be listed" };
        let listed = self.listed;
        let mut head = format!("{at}  stored: {listed}, shown with waiters: {waited_for}{unclear}{old}");
        head.truncate(size.map_or(head.len(), |size| size.columns));
        let mut lines = vec![head, String::new()];
        match size {
            Some(Size { columns, rows }) => {
                lines.extend(entry::lines(self.entries.iter().take(rows), columns));
                lines.truncate(rows);
            }
            None => lines.extend(table(&self.entries, None).lines().map(str::to_owned)),
        }
        lines
    }

    fn in_json(&self) -> String {
        let locks: Vec<_> = self.entries.iter().map(Entry::in_json).collect();
        let at = format_rfc3339_millis(self.at).to_string();
        json_line(&json!({
            "at": at,
            "listed": self.listed,
            "current": self.is_current,
            "unknown": self.unknown,
            "locks": locks,
        }))
    }
}

/// Lists the names again and again. Keeps what was known while too few nodes can be listed.
async fn list_again(names: watch::Sender<Names>, coordinator: Coordinator, prefix: String) {
    while !names.is_closed() {
        sleep_until(now() + AGAIN_AFTER).await;
        let listed = Names::list(&coordinator, &prefix, Report::Errors).await;
        if listed.held.is_complete() {
            names.send_replace(listed);
        } else {
            names.send_modify(|names| names.is_current = false);
        }
    }
}

/// The names that may be shown.
#[derive(Clone)]
struct Names {
    held: Arc<Survey>,
    waited_for: Arc<Survey>,
    /// Whether enough nodes could be listed the last time.
    is_current: bool,
}

impl Names {
    async fn list(coordinator: &Coordinator, prefix: &str, report: Report) -> Names {
        let held = survey::names(coordinator, prefix, ListedKeys::Locks, report).await;
        let waited_for = survey::names(coordinator, prefix, ListedKeys::Queues, report).await;
        Names { held: held.into(), waited_for: waited_for.into(), is_current: true }
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
