//! `--watch`.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, SystemTime};

use humantime::format_rfc3339_millis;
use quorlock::{
    Coordinator,
    runtime::{Clock as _, SystemClock},
};
use rustix::termios::tcgetwinsize;

use super::{Look, StatusArgs, code, look, show};
use crate::exit;
use crate::failure::Failure;
use crate::runtime::{now, sleep_until};
use crate::signals::Signals;
use crate::stdout::print;
use crate::width::wrapped;

/// Shows the locks repeatedly until a signal ends it, which is no failure. The last picture stays.
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
    let mut last = exit::SUCCESS;
    tokio::select! {
        biased;
        _ = signals.next_end() => {
            // The terminal has echoed ^C.
            if io::stdout().is_terminal() {
                print("\n")?;
            }
            Ok(last)
        }
        failed = async {
            let mut screen = Screen::new(args.json);
            loop {
                let began = now();
                let looks = look(args, coordinator).await?;
                last = code(&looks);
                screen.show(&looks)?;
                sleep_until(began + interval).await;
            }
        } => failed,
    }
}

/// Where the picture goes.
enum Screen {
    /// A terminal: replaces the previous picture of `lines` lines.
    Terminal { lines: usize },
    /// Anything else: a line for each lock that has changed.
    Lines { json: bool, before: Vec<String> },
}

impl Screen {
    fn new(json: bool) -> Screen {
        if !json && io::stdout().is_terminal() {
            Screen::Terminal { lines: 0 }
        } else {
            Screen::Lines { json, before: Vec::new() }
        }
    }

    fn show(&mut self, looks: &[Look]) -> Result<(), Failure> {
        match self {
            Screen::Terminal { lines } => {
                let picture = Picture::of(looks);
                let back = if *lines == 0 { String::new() } else { format!("\x1b[{lines}A") };
                *lines = picture.lines.len();
                // Each line clears its rest and the end clears what is below, so that the screen is never
                // empty in between and does not flicker.
                let text: Vec<&str> = picture.lines.iter().flat_map(|line| [line, "\x1b[K\n"]).collect();
                print(&format!("{back}{}\x1b[J", text.concat()))
            }
            Screen::Lines { json, before } => {
                let now: Vec<String> = looks.iter().map(Look::gist).collect();
                let changed =
                    looks.iter().enumerate().filter(|(place, _)| before.get(*place) != now.get(*place));
                let text: String = changed.map(|(_, look)| look.line(*json)).collect();
                let printed = if text.is_empty() { Ok(()) } else { print(&text) };
                *before = now;
                printed
            }
        }
    }
}

/// What fits on the terminal.
struct Picture {
    lines: Vec<String>,
}

impl Picture {
    fn of(looks: &[Look]) -> Picture {
        let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 1);
        let (width, height) = size.map_or((80, 24), |size| (size.ws_col, usize::from(size.ws_row)));
        let mut lines = Vec::new();
        for look in looks {
            lines.extend(look.table(Some(width.into())).lines().map(str::to_owned));
            lines.push(String::new());
            let sentence = wrapped(&look.sentence(), usize::from(width));
            lines.extend(sentence.iter().map(|line| look.finding.painted(line)));
            lines
                .extend(show::waiters(&look.queue).iter().flat_map(|line| wrapped(line, usize::from(width))));
            lines.push(String::new());
        }
        lines.pop();
        // Lines that have scrolled out cannot be overwritten.
        lines.truncate(height - 1);
        Picture { lines }
    }
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
