//! `--watch`.

use std::io::{self, IsTerminal as _};
use std::pin::pin;
use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use futures::stream::unfold;
use humantime::format_rfc3339_millis;
use quorlock::{
    Coordinator,
    runtime::{Clock as _, SystemClock},
};

use super::{Look, StatusArgs, code, look, show};
use crate::exit;
use crate::failure::Failure;
use crate::live::{self, Size};
use crate::runtime::{now, sleep_until};
use crate::signals::Signals;
use crate::stdout::{print, unread};
use crate::width::wrapped;

/// Shows the locks repeatedly until a signal or a key ends it, which is no failure. The last picture stays.
pub(super) async fn watch(
    args: &StatusArgs,
    coordinator: &Coordinator,
    interval: Duration,
) -> Result<u8, Failure> {
    if interval.is_zero() {
        return Err(Failure::Usage(
            "an interval of zero would never pause; use --watch=100ms or more".to_owned(),
        ));
    }
    let mut signals = Signals::listen().map_err(Failure::to("receive signals"))?;
    let looks = unfold(now(), async |next| {
        sleep_until(next).await;
        let began = now();
        Some((look(args, coordinator).await, began + interval))
    });
    if !args.json && io::stdout().is_terminal() {
        let last = live::show(&mut signals, looks, |looks, size| picture(looks, size)).await?;
        return Ok(last.map_or(exit::SUCCESS, |looks| code(&looks)));
    }
    let (mut looks, mut before, mut last) = (Box::pin(looks), Vec::new(), exit::SUCCESS);
    let mut unread = pin!(unread());
    loop {
        tokio::select! {
            biased;
            _ = signals.next_end() => return Ok(last),
            failure = &mut unread => return Err(failure),
            Some(seen) = looks.next() => {
                let seen = seen?;
                last = code(&seen);
                print_changes(&seen, args.json, &mut before)?;
            }
        }
    }
}

/// Prints a line for each lock that has changed.
fn print_changes(looks: &[Look], json: bool, before: &mut Vec<String>) -> Result<(), Failure> {
    let now: Vec<String> = looks.iter().map(Look::gist).collect();
    let changed = looks.iter().enumerate().filter(|(place, _)| before.get(*place) != now.get(*place));
    let text: String = changed.map(|(_, look)| look.line(json)).collect();
    *before = now;
    if text.is_empty() { Ok(()) } else { print(&text) }
}

/// Returns the lines for a terminal of this size.
fn picture(looks: &[Look], size: Size) -> Vec<String> {
    let mut lines = Vec::new();
    for look in looks {
        lines.extend(look.table(Some(size.columns)).lines().map(str::to_owned));
        lines.push(String::new());
        let sentence = wrapped(&look.sentence(), size.columns);
        lines.extend(sentence.iter().map(|line| look.finding.painted(line)));
        lines.extend(show::waiters(&look.queue).iter().flat_map(|line| wrapped(line, size.columns)));
        lines.push(String::new());
    }
    lines.pop();
    lines
}

impl Look {
    /// Returns what must differ for a change to be shown.
    fn gist(&self) -> String {
        show::gist(&self.report, &self.finding, &self.queue)
    }

    fn line(&self, json: bool) -> String {
        if json {
            return self.text(true);
        }
        let at = format_rfc3339_millis(SystemTime::UNIX_EPOCH + SystemClock::default().wall());
        let waiters = match self.queue.waiters.len() {
            0 => String::new(),
            1 => "; 1 process waits".to_owned(),
            more => format!("; {more} processes wait"),
        };
        format!("{at}  {}\n", self.finding.painted(&(self.sentence() + &waiters)))
    }
}
