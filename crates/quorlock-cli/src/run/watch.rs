//! Watches the running command: forwards signals, and stops the command before its lock expires.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::Signal;
use quorlock::duration;
use quorlock::protocol::Moment;

use super::job::{Change, Job};
use super::notice::{Notice, Stage, Step};
use super::requests::{Request, Requests};
use crate::failure::Failure;
use crate::report::{Reason, Report};
use crate::runtime::{now, sleep_until};
use crate::signals::{self, Interruption, Received, Signals};
use crate::stderr;
use crate::terminal::Terminal;
use crate::wanted::LeaseWatch;

/// How the command ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    /// On its own, or by a signal from outside.
    ByItself(ExitStatus),
    /// Stopped because of its lock, whatever its exit status.
    Stopped {
        /// What was wrong with the lock.
        reason: Reason,
        /// Whether a signal had asked it to end before.
        asked_to_end: bool,
    },
}

/// Watches `job` until the command and its whole group have ended.
///
/// With little validity left, the group gets SIGTERM and then SIGKILL, so that it has ended before the lease expires.
/// If the lease is lost earlier, because a quorum no longer has the key, another client may already hold the lock:
/// then it gets SIGKILL immediately.
///
/// Returns also whether a key of the terminal ended the command.
pub(super) async fn until_ended(
    job: Job,
    lease: &LeaseWatch,
    notice: Notice,
    signals: &mut Signals,
    report: Report,
) -> Result<(Ended, Option<Interruption>), Failure> {
    let mut terminal = Terminal::of_stdin();
    if let Some(terminal) = terminal.as_mut().filter(|_| Terminal::is_undivided()) {
        terminal.lend(job.group());
    }
    let watch = Watch {
        job,
        lease,
        notice,
        report,
        terminal,
        stage: Stage::Running,
        stopped: None,
        requests: Requests::default(),
        forwarded: None,
        interrupted: None,
    };
    watch.run(signals).await.map_err(Failure::to("watch the command"))
}

struct Watch<'a> {
    job: Job,
    lease: &'a LeaseWatch,
    notice: Notice,
    report: Report,
    terminal: Option<Terminal>,
    stage: Stage,
    /// Why the command was first stopped, if its lock is the reason.
    stopped: Option<Reason>,
    requests: Requests,
    /// The last signal that a program sent, and that was forwarded.
    forwarded: Option<Signal>,
    interrupted: Option<Interruption>,
}

enum Event {
    Job(Change),
    Signal(Received),
    Lost,
    Time,
}

/// By how much a timer is late only if the machine or this process stood still, or is very busy.
const LATE: Duration = Duration::from_millis(100);

impl Watch<'_> {
    async fn run(mut self, signals: &mut Signals) -> std::io::Result<(Ended, Option<Interruption>)> {
        let mut look: Option<Moment> = None;
        loop {
            let (present, remaining) = (now(), self.lease.remaining());
            // No renewal extends the longest hold.
            let overslept =
                look.is_some_and(|look| present.since(look) > LATE) && !self.lease.is_at_max_hold();
            look = match self.notice.next(self.stage, present, remaining, overslept) {
                Step::Look(moment) => {
                    if self.still_runs() {
                        self.stage = Stage::Running;
                        self.job.trust(self.notice.guard_until(present, remaining));
                    }
                    Some(moment)
                }
                Step::LetRenew { until } => {
                    self.stage = Stage::Late { until };
                    Some(until)
                }
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
                change = self.job.change() => Event::Job(change?),
                _ = self.lease.lost(), if look.is_some() => Event::Lost,
                signal = signals.next() => Event::Signal(signal),
                () = sleep_until(look.unwrap_or_else(now)), if look.is_some() => Event::Time,
            };
            match event {
                Event::Job(Change::Over(status)) => return Ok(self.finish(status)),
                Event::Job(Change::Lingers(status)) => self.lingers(status),
                Event::Job(Change::Stopped(signal)) => self.job_stopped(signal),
                Event::Signal(Received::Named(signal)) => self.pass_on(signal),
                Event::Signal(Received::RealTime(number)) => self.job.signal_in_real_time(number),
                // `Notice::next` decides what follows; after a loss it is SIGKILL, since no validity remains.
                Event::Lost | Event::Time => {}
            }
        }
    }

    /// Whether nothing has been done to end the command.
    fn still_runs(&self) -> bool {
        matches!(self.stage, Stage::Running | Stage::Late { .. })
    }

    fn ask_to_end(&mut self, kill_at: Moment) {
        debug_assert!(self.still_runs(), "the moment of the kill never moves (rule I-18)");
        self.job.signal(Signal::SIGTERM);
        // A stopped process cannot end.
        self.job.signal(Signal::SIGCONT);
        self.stopping(Some(kill_at.since(now())));
        self.stage = Stage::Asked { kill_at };
    }

    fn kill(&mut self) {
        self.job.signal(Signal::SIGKILL);
        if self.still_runs() {
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
        match self.lease.check() {
            Err(lost) => Reason::Lost(lost.reason),
            Ok(()) if self.lease.is_at_max_hold() => Reason::MaxHold,
            Ok(()) => Reason::NotRenewed,
        }
    }

    fn pass_on(&mut self, signal: Signal) {
        if signal == Signal::SIGCONT {
            return self.go_on();
        }
        let by_key = signals::is_by_key(signal);
        if signal == Signal::SIGTSTP && by_key {
            // The shell's other processes got it as well.
            return self.stop_itself(signal, false);
        }
        self.forwarded = (!by_key).then_some(signal);
        match self.requests.count(signal, now()) {
            Request::PassOn => self.job.signal(signal),
            Request::Repeated => {}
            Request::Kill => {
                self.report.words("asked to end a second time: killing the command");
                self.job.signal(Signal::SIGKILL);
            }
        }
    }

    /// The command itself has ended, but processes that it started have not, and the lock is kept for them.
    /// From now on Ctrl-C comes here: shells make their background processes ignore it.
    fn lingers(&mut self, status: ExitStatus) {
        tracing::info!(
            code = super::code_of(status),
            "the command has ended; processes that it started still run"
        );
        self.note_interruption(status);
        self.give_terminal_back(status);
    }

    fn job_stopped(&mut self, signal: Signal) {
        let wants_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        let has_terminal = self.terminal.as_ref().is_some_and(Terminal::is_lent);
        if !has_terminal && self.forwarded.take() == Some(signal) {
            // A program stopped the command alone, and the lock is kept.
            return;
        }
        let group = self.job.group();
        if wants_terminal && self.terminal.as_mut().is_some_and(|terminal| terminal.lend(group)) {
            self.job.signal(Signal::SIGCONT);
        } else if wants_terminal || has_terminal {
            // Ctrl-Z: the shell waits for us, and for the script that runs us, not for the command.
            self.stop_itself(if wants_terminal { signal } else { Signal::SIGTSTP }, true);
        }
        // Otherwise the command alone was stopped, and the lock is kept.
    }

    /// Stops itself together with the command. Nothing renews the lock then, so it may expire: the command must
    /// not continue before that was checked, hence SIGSTOP, which it cannot ignore.
    fn stop_itself(&mut self, signal: Signal, whole_group: bool) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
        self.job.signal(Signal::SIGSTOP);
        let left = duration::format(self.lease.remaining());
        self.report.words(&format!("stopped: the lock is not renewed meanwhile, and expires in {left}"));
        stderr::finish();
        // If it was continued, SIGCONT has arrived, and `go_on` is next.
        if !signals::stop(signal, whole_group) {
            self.go_on();
        }
    }

    fn go_on(&mut self) {
        if self.lease.check().is_err() {
            // The next step kills the command.
            return;
        }
        let group = self.job.group();
        match &mut self.terminal {
            Some(terminal) if Terminal::is_undivided() && !self.job.lingers() => drop(terminal.lend(group)),
            Some(_) => {}
            None => self.terminal = Terminal::of_stdin(),
        }
        self.job.signal(Signal::SIGCONT);
    }

    fn give_terminal_back(&mut self, status: ExitStatus) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
            if status.code().is_none() {
                terminal.restore_modes();
            }
        }
    }

    /// A key ended the command: its signal reached us, or the whole group of the command, which has the terminal.
    fn note_interruption(&mut self, status: ExitStatus) {
        let signal = status.signal().and_then(|number| Signal::try_from(number).ok());
        let Some(signal @ (Signal::SIGINT | Signal::SIGQUIT)) = signal else { return };
        let has_terminal = self.terminal.as_ref().is_some_and(Terminal::is_lent);
        let of_command_alone =
            has_terminal && self.job.ended_by() == Some(signal) && self.forwarded != Some(signal);
        if of_command_alone || signals::is_by_key(signal) {
            self.interrupted = Some(Interruption { signal, of_command_alone });
        }
    }

    fn finish(mut self, status: ExitStatus) -> (Ended, Option<Interruption>) {
        if !self.job.lingers() {
            self.note_interruption(status);
            self.give_terminal_back(status);
        }
        // The guardian killed it while we were stopped.
        let by_guardian = status.signal() == Some(Signal::SIGKILL as i32) && self.lease.check().is_err();
        if self.stopped.is_none() && by_guardian {
            self.stopping(None);
        }
        let asked_to_end = self.requests.is_any();
        let ended = match self.stopped {
            Some(reason) => Ended::Stopped { reason, asked_to_end },
            None => Ended::ByItself(status),
        };
        (ended, self.interrupted)
    }
}
