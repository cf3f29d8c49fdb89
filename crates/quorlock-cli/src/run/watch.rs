//! The time while the command runs: passes signals on, and stops the command before its lock is
//! over.

use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use quorlock::Lease;
use quorlock::protocol::Moment;

use crate::child::{Change, Child};
use crate::failure::Failure;
use crate::notice::{Notice, Stage, Step};
use crate::report::{Reason, Report};
use crate::runtime::{now, sleep_until};
use crate::signals::Signals;
use crate::terminal::Terminal;

/// How the command ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    /// By itself, or by a signal from outside.
    ByItself(ExitStatus),
    /// Because the lock was running out, whatever it said in the end.
    Stopped(Reason),
}

/// Watches over `child` until it has ended and been reaped.
///
/// With little validity left, SIGTERM and then SIGKILL go to its whole group, and it is gone
/// before the lease is over. If the lease is lost earlier than its time, because a quorum has
/// forgotten it, somebody else may hold the lock already: then SIGKILL comes at once.
pub(super) async fn until_ended(
    child: Child,
    lease: &Lease,
    notice: Notice,
    hold_until: Option<Moment>,
    signals: &mut Signals,
    report: Report,
) -> Result<Ended, Failure> {
    let mut terminal = Terminal::of_stdin();
    if let Some(terminal) = terminal.as_mut().filter(|_| Terminal::is_undivided()) {
        terminal.lend(child.group());
    }
    let watch = Watch {
        child,
        lease,
        notice,
        hold_until,
        report,
        terminal,
        stage: Stage::Running,
        stopped: None,
        asked_to_end: false,
    };
    watch.run(signals).await.map_err(Failure::to("watch the command"))
}

/// The hold began when the lock was asked for, which is so much earlier than we know of at most.
const ROUND_TRIP: Duration = Duration::from_millis(100);

struct Watch<'a> {
    child: Child,
    lease: &'a Lease,
    notice: Notice,
    /// When the longest hold is over, give or take the round trip of acquiring.
    hold_until: Option<Moment>,
    report: Report,
    terminal: Option<Terminal>,
    stage: Stage,
    /// Why the command was first told to end, if its lock is the reason.
    stopped: Option<Reason>,
    /// Whether somebody has sent SIGINT or SIGTERM before.
    asked_to_end: bool,
}

enum Event {
    Child(Change),
    Signal(Signal),
    Lost,
    Time,
}

impl Watch<'_> {
    async fn run(mut self, signals: &mut Signals) -> std::io::Result<Ended> {
        loop {
            let look = match self.notice.next(self.stage, now(), self.lease.remaining()) {
                Step::Look(moment) => Some(moment),
                Step::Ask { kill_at } => {
                    self.ask_to_end(kill_at);
                    continue;
                }
                Step::Kill => {
                    self.kill();
                    None
                }
                Step::Wait => None,
            };
            let event = tokio::select! {
                biased;
                change = self.child.change() => Event::Child(change?),
                _ = self.lease.lost(), if look.is_some() => Event::Lost,
                signal = signals.next() => Event::Signal(signal),
                () = sleep_until(look.unwrap_or_else(now)), if look.is_some() => Event::Time,
            };
            match event {
                Event::Child(Change::Ended) => return self.finish(),
                Event::Child(Change::Stopped(signal)) => self.child_stopped(signal),
                Event::Signal(signal) => self.pass_on(signal),
                // The next step is to kill: nothing of the validity remains.
                Event::Lost | Event::Time => {}
            }
        }
    }

    fn ask_to_end(&mut self, kill_at: Moment) {
        self.child.signal(Signal::SIGTERM);
        // What stands still cannot end.
        self.child.signal(Signal::SIGCONT);
        self.stopping(Some(kill_at.since(now())));
        self.stage = Stage::Asked { kill_at };
    }

    fn kill(&mut self) {
        self.child.signal(Signal::SIGKILL);
        if self.stage == Stage::Running {
            self.stopping(None);
        }
        self.stage = Stage::Killed;
    }

    fn stopping(&mut self, grace: Option<Duration>) {
        let reason = self.reason();
        self.report.losing(self.lease, reason, grace);
        self.stopped = Some(reason);
    }

    fn reason(&self) -> Reason {
        let end = now() + self.lease.remaining();
        match self.lease.check() {
            Err(lost) => Reason::Lost(lost.reason),
            Ok(()) if self.hold_until.is_some_and(|longest| end + ROUND_TRIP >= longest) => Reason::MaxHold,
            Ok(()) => Reason::NotRenewed,
        }
    }

    fn pass_on(&mut self, signal: Signal) {
        if signal == Signal::SIGTSTP {
            return self.stand_still();
        }
        if signal == Signal::SIGCONT {
            return self.go_on();
        }
        let asks_to_end = matches!(signal, Signal::SIGINT | Signal::SIGTERM);
        if asks_to_end && self.asked_to_end {
            self.report.words("asked to end a second time: SIGKILL to the command");
            return self.child.signal(Signal::SIGKILL);
        }
        self.asked_to_end |= asks_to_end;
        self.child.signal(signal);
    }

    fn child_stopped(&mut self, signal: Signal) {
        let wants_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        let has_terminal = self.terminal.as_ref().is_some_and(Terminal::is_lent);
        let group = self.child.group();
        if wants_terminal && self.terminal.as_mut().is_some_and(|terminal| terminal.lend(group)) {
            self.child.signal(Signal::SIGCONT);
        } else if wants_terminal || has_terminal {
            // Ctrl-Z: the shell that started us waits for us, and not for the command.
            self.stand_still();
        }
        // Else somebody has stopped the command alone, and the lock stays.
    }

    /// Stands still together with the command. Nobody renews then, so the lock ends after its TTL:
    /// the command must not go on before that was looked at, and SIGSTOP is what it cannot refuse.
    fn stand_still(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
        self.child.signal(Signal::SIGSTOP);
        let _ = raise(Signal::SIGSTOP);
        // Continued: SIGCONT has arrived here, and `go_on` comes next.
    }

    fn go_on(&mut self) {
        if self.lease.check().is_err() {
            // The next step kills.
            return;
        }
        let group = self.child.group();
        match &mut self.terminal {
            Some(terminal) if Terminal::is_undivided() => drop(terminal.lend(group)),
            Some(_) => {}
            None => self.terminal = Terminal::of_stdin(),
        }
        self.child.signal(Signal::SIGCONT);
    }

    fn finish(self) -> std::io::Result<Ended> {
        if self.stopped.is_some() {
            // What the command had started, and what had not ended with it.
            self.child.signal(Signal::SIGKILL);
        }
        let status = self.child.reap()?;
        if let Some(mut terminal) = self.terminal {
            terminal.take_back();
            if status.code().is_none() {
                terminal.restore_modes();
            }
        }
        Ok(self.stopped.map_or(Ended::ByItself(status), Ended::Stopped))
    }
}
