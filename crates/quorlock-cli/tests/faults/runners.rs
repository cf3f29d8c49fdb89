//! The runners: repeated `quorlock run`, and the faults that they get.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quorlock_testkit::{Proxy, SeededRng, Way, eventually, patience};

use crate::command::{LASTS, PART, RECORD, RUNNER};
use crate::record::{Part, Record, now};
use crate::servers::Masters;
use crate::{LOCKS, RUNNERS, TTL};

pub(crate) struct Runners {
    record: PathBuf,
    /// The proxies of each runner to the servers.
    ways: Vec<Vec<Proxy>>,
    /// When each is connected again, if it is cut off.
    cut_until: Vec<Option<Duration>>,
    cuts: usize,
    slots: Vec<Option<Runner>>,
    /// The faults of each runner.
    history: History,
    /// The number of runners started.
    count: u32,
    codes: BTreeMap<String, usize>,
    /// By the number of the runner.
    idle_since: BTreeMap<u32, Duration>,
}

/// The faults of runners, by their number: process ids are reused within minutes.
pub(crate) type History = BTreeMap<u32, Fate>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Fate {
    /// The times during which it was stopped.
    pub(crate) stopped: Vec<(Duration, Duration)>,
    pub(crate) killed: Option<Duration>,
    /// When its end was seen.
    pub(crate) ended: Option<Duration>,
}

struct Runner {
    number: u32,
    process: Child,
    /// Since when it is stopped, and until when.
    still: Option<(Duration, Duration)>,
    /// Not to be killed before then, since its guardian was killed: losing both is documented to be unsafe.
    spared_until: Duration,
}

impl Runner {
    /// Whether its command, or a process that it left behind, still exists.
    fn has_a_command(&self) -> bool {
        self.children().any(|(_, name)| name != GUARDIAN)
    }

    fn guardian(&self) -> Option<i32> {
        self.children().find(|(_, name)| name == GUARDIAN).map(|(pid, _)| pid)
    }

    /// Its children, with their names.
    fn children(&self) -> impl Iterator<Item = (i32, String)> {
        let pid = self.process.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let children: Vec<i32> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        children
            .into_iter()
            .filter_map(|pid| Some((pid, fs::read_to_string(format!("/proc/{pid}/comm")).ok()?)))
    }
}

const GUARDIAN: &str = "lock-guardian\n";
/// The commands, with this program as `$0`: they trap signals, spawn, daemonise, linger, or kill themselves. `$WORK`
/// ignores signals, or does not.
const SCRIPTS: [&str; 9] = [
    "exec $WORK",
    "$WORK; true",
    "$WORK & exit 0",
    "$WORK & $WORK & wait",
    "($WORK &) ; exit 3",
    "trap '' TERM HUP INT QUIT; $WORK & $WORK; wait",
    "$WORK & while [ $((turn += 1)) -lt 3000 ]; do :; done; kill -KILL 0",
    "$DAEMON & $WORK",
    "$DAEMON & $WORK & exit 0",
];

/// Long enough for a runner to notice that its guardian has ended, and start another.
const SPARED: Duration = Duration::from_secs(1);

const SIGNALS: [Signal; 9] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGKILL,
    Signal::SIGSTOP,
];

impl Runners {
    pub(crate) async fn new(masters: &Masters, record: &Record) -> Runners {
        let mut ways = Vec::new();
        for _ in 0..RUNNERS {
            ways.push(masters.ways().await);
        }
        Runners {
            record: record.path(),
            ways,
            cut_until: vec![None; RUNNERS],
            cuts: 0,
            slots: (0..RUNNERS).map(|_| None).collect(),
            history: History::new(),
            count: 0,
            codes: BTreeMap::new(),
            idle_since: BTreeMap::new(),
        }
    }

    /// Restarts those that have ended, and continues those that were stopped for long enough.
    pub(crate) fn tend(&mut self, rng: &SeededRng) {
        for place in 0..self.slots.len() {
            if self.cut_until[place].is_some_and(|until| now() >= until) {
                self.mend(place);
            }
            if let Some(runner) = &mut self.slots[place] {
                if let Some((since, until)) = runner.still
                    && now() >= until
                {
                    send(&runner.process, Signal::SIGCONT);
                    runner.still = None;
                    let fate = self.history.entry(runner.number).or_default();
                    fate.stopped.push((since, now()));
                }
                let Some(status) = runner.process.try_wait().expect("a runner is our child") else {
                    continue;
                };
                *self.codes.entry(status.to_string()).or_default() += 1;
                self.history.entry(runner.number).or_default().ended = Some(now());
                if let Some((since, _)) = runner.still {
                    self.history.entry(runner.number).or_default().stopped.push((since, now()));
                }
            }
            self.slots[place] = Some(self.start(place, rng));
        }
    }

    fn start(&mut self, place: usize, rng: &SeededRng) -> Runner {
        self.count += 1;
        let nodes: Vec<String> = self.ways[place].iter().map(Proxy::url).collect();
        let ttl = format!("{}ms", TTL.as_millis());
        let lock = format!("lock-{}", rng.number(0, LOCKS - 1));
        // Some end soon, some run until they get a signal, and some ignore signals.
        let lasts = if rng.below(3) == 0 { 3_600_000 } else { rng.number(0, 299) };
        let deaf = if rng.below(3) == 0 { r#"trap "" TERM HUP INT QUIT;"# } else { "" };
        // Some keep their lock for processes that leave the group; otherwise those end on their own.
        let (option, part) = if rng.below(2) == 0 {
            (Some("--wait-for-descendants"), Part::WaitedFor)
        } else {
            (None, Part::Daemon)
        };
        let work = format!("sh -c '{deaf} exec \"$0\"' $0");
        let daemon = format!("env {PART}={part:?} {LASTS}={} setsid {work}", rng.number(0, 1499));
        let script = SCRIPTS[rng.below(SCRIPTS.len())].replace("$WORK", &work).replace("$DAEMON", &daemon);
        let this = std::env::current_exe().expect("this program");
        let process = Command::new(env!("CARGO_BIN_EXE_quorlock"))
            .args(["run", "-q", "-w", "3s", "-t", &ttl, "--max-ttl", &ttl, "--max-hold", "3s"])
            .args(option)
            .args([&lock, "--"])
            .args(["sh", "-c", &script])
            .arg(this)
            .env("QUORLOCK_NODES", nodes.join(","))
            .env("QUORLOCK_RESTART_GUARD", "on")
            .env(RECORD, &self.record)
            .env(LASTS, lasts.to_string())
            .env(RUNNER, self.count.to_string())
            .env(PART, format!("{:?}", Part::Group))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("quorlock starts");
        Runner { number: self.count, process, still: None, spared_until: Duration::ZERO }
    }

    /// Cuts one of them off from all servers, for long enough to lose its lock while others can acquire it.
    pub(crate) fn cut(&mut self, rng: &SeededRng) {
        if let Some(place) = self.busy(rng) {
            self.ways[place].iter().for_each(|way| way.hold(Way::Both));
            self.cut_until[place] = Some(now() + TTL * 2);
            self.cuts += 1;
        }
    }

    /// One that has a command, and is not cut off.
    fn busy(&self, rng: &SeededRng) -> Option<usize> {
        let first = rng.below(RUNNERS);
        let busy = |place: &usize| {
            self.cut_until[*place].is_none() && self.slots[*place].as_ref().is_some_and(Runner::has_a_command)
        };
        (0..RUNNERS).map(|step| (first + step) % RUNNERS).find(busy)
    }

    fn mend(&mut self, place: usize) {
        self.ways[place].iter().for_each(|way| way.release(Way::Both));
        self.cut_until[place] = None;
    }

    /// Sends a signal to one of them, or to its guardian.
    pub(crate) fn hurt(&mut self, rng: &SeededRng) {
        let signal = SIGNALS[rng.below(SIGNALS.len())];
        // These two matter while there is a command; the others in any phase.
        let matters = matches!(signal, Signal::SIGKILL | Signal::SIGSTOP);
        let any = rng.below(RUNNERS);
        let place = self.busy(rng).filter(|_| matters).unwrap_or(any);
        let length = Duration::from_millis(rng.number(0, 2 * u64::try_from(TTL.as_millis()).unwrap() - 1));
        // A runner that is cut off gets no other fault.
        if self.cut_until[place].is_some() {
            return;
        }
        let Some(runner) = self.slots[place].as_mut().filter(|runner| runner.still.is_none()) else { return };
        if matters && now() < runner.spared_until {
            return;
        }
        if matters && rng.below(3) == 0 {
            if let Some(guardian) = runner.guardian() {
                // A reused id would not be that of a child of the runner.
                let _ = kill(Pid::from_raw(guardian), signal);
                runner.spared_until = now() + SPARED;
            }
            return;
        }
        let Runner { number, process, still, .. } = runner;
        send(process, signal);
        if signal == Signal::SIGKILL {
            self.history.entry(*number).or_default().killed = Some(now());
        } else if matches!(signal, Signal::SIGSTOP | Signal::SIGTSTP) {
            // SIGSTOP takes effect immediately, SIGTSTP when the runner has stopped its command.
            *still = Some((now(), now() + length));
        }
    }

    /// Checks that no runner keeps a lock for long without a command. For a moment each does: before its command
    /// starts, and after it has ended.
    pub(crate) fn check(&mut self, tokens: &[String]) {
        for runner in self.slots.iter().flatten() {
            let pid = runner.process.id();
            // `… host:pid`
            let holds = tokens.iter().any(|token| token.ends_with(&format!(":{pid}")));
            if holds && runner.still.is_none() && !runner.has_a_command() {
                let since = *self.idle_since.entry(runner.number).or_insert_with(now);
                let kept = now().saturating_sub(since);
                assert!(kept < TTL * 3, "runner {pid} has kept a lock for {kept:?} without its command");
            } else {
                self.idle_since.remove(&runner.number);
            }
        }
    }

    /// Asks all of them to end, and waits until they have.
    pub(crate) async fn end(&mut self) {
        (0..RUNNERS).for_each(|place| self.mend(place));
        for runner in self.slots.iter_mut().flatten() {
            send(&runner.process, Signal::SIGCONT);
            if let Some((since, _)) = runner.still.take() {
                self.history.entry(runner.number).or_default().stopped.push((since, now()));
            }
            // And again below, for commands that ignore it.
            send(&runner.process, Signal::SIGTERM);
        }
        eventually("the end of all runners", patience(), async || {
            self.slots.iter_mut().flatten().all(|runner| {
                let ended = runner.process.try_wait().expect("a runner is our child").is_some();
                if ended {
                    self.history.entry(runner.number).or_default().ended.get_or_insert_with(now);
                } else {
                    send(&runner.process, Signal::SIGTERM);
                }
                ended
            })
        })
        .await
        .expect("no runner stays");
    }

    pub(crate) fn history(&self) -> History {
        self.history.clone()
    }

    /// Describes how often one was cut off, and how they ended.
    pub(crate) fn fates(&self) -> String {
        format!("{} times one was cut off; they ended with {:?}", self.cuts, self.codes)
    }
}

impl Drop for Runners {
    fn drop(&mut self) {
        for runner in self.slots.iter_mut().flatten() {
            drop(runner.process.kill());
            drop(runner.process.wait());
        }
    }
}

fn send(process: &Child, signal: Signal) {
    // It has not been reaped, so its id is not reused; an error means that it has ended.
    let _ = kill(Pid::from_raw(i32::try_from(process.id()).expect("a process id")), signal);
}
