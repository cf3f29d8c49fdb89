//! Checks the record against the promises.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::TTL;
use crate::record::{Entry, Part};
use crate::runners::{Fate, History};
use crate::starvation::Gap;

/// A command and the processes that its lock is kept for, from the first entry to the last.
#[derive(Clone, Debug)]
struct Span {
    lock: String,
    fence: u64,
    runner: u32,
    began: Duration,
    last: Duration,
}

/// The results.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) commands: usize,
    /// Two at the same time, because the runner of the first was stopped while it started its command,
    /// and so learned of the end of its lock only after that.
    stopped: usize,
    /// The same, because the machine ran neither the runner nor its guardian in time.
    starved: usize,
    /// Processes that were started, and those of them that left the group.
    processes: usize,
    daemons: usize,
    /// Commands whose lock was kept for more than one process.
    families: usize,
    /// Runners that were stopped for longer than a TTL while their command ran.
    stood_still: usize,
    /// The longest time that a command outlived a killed runner.
    outlived: Duration,
    killed: usize,
}

/// After a stopped runner continues, or is killed, its command ends within this.
const LATE: Duration = Duration::from_millis(1500);
/// A continued runner checks its lease within this.
const AT_ONCE: Duration = Duration::from_millis(250);
/// A gap this long before the overlap may have delayed the timer that would have prevented it.
const NEAR: Duration = Duration::from_millis(500);

/// Checks that no two commands ran under one lock at the same time, except in the documented case, that their fencing
/// tokens grow, and that none outlived its runner.
pub(crate) fn judge(entries: &[Entry], history: &History, gaps: &[Gap]) -> Figures {
    let spans = spans(entries, history);
    let mut figures = Figures { commands: spans.len(), ..Figures::default() };
    figures.count(entries, history, &spans);
    for (place, first) in spans.iter().enumerate() {
        let fate = history.get(&first.runner);
        if let Some(killed) = fate.and_then(|fate| fate.killed) {
            let outlived = first.last.saturating_sub(killed);
            assert!(outlived < LATE, "{first:?} outlived its runner, which was killed, by {outlived:?}");
            figures.outlived = figures.outlived.max(outlived);
            figures.killed += 1;
        } else if let Some(ended) = fate.and_then(|fate| fate.ended) {
            assert!(first.last <= ended, "{first:?} worked on after its runner had ended, at {ended:?}");
        }
        for second in spans.iter().skip(place + 1).filter(|second| second.lock == first.lock) {
            assert!(
                first.fence < second.fence,
                "the number of a later command is not larger: {first:?}, {second:?}"
            );
            if second.began > first.last {
                continue;
            }
            if fate.is_some_and(|fate| was_stopped(fate, first, second)) {
                figures.stopped += 1;
            } else if gaps.iter().any(|gap| was_starved(gap, first, second)) {
                figures.starved += 1;
            } else {
                panic!(
                    "two overlapped for {:?}: {first:?}, {second:?}; {fate:?}",
                    first.last.saturating_sub(second.began)
                );
            }
        }
    }
    figures
}

/// Whether the runner of the first was stopped before it had started its command and until the second began, and the
/// first ended soon after the runner continued. The guardian stops a command that already runs in time.
fn was_stopped(fate: &Fate, first: &Span, second: &Span) -> bool {
    fate.stopped.iter().any(|(from, to)| {
        *from < first.began + AT_ONCE
            && *to < first.began + AT_ONCE
            && second.began < *to + AT_ONCE
            && first.last < *to + LATE
    })
}

/// Whether the machine was starved right before the second began, for long enough to explain the overlap.
fn was_starved(gap: &Gap, first: &Span, second: &Span) -> bool {
    let overlap = first.last.saturating_sub(second.began);
    gap.from < second.began
        && gap.to + NEAR > second.began
        && overlap < gap.to.saturating_sub(gap.from) + AT_ONCE
}

/// Returns the spans in the order of their start.
fn spans(entries: &[Entry], history: &History) -> Vec<Span> {
    let mut spans: BTreeMap<(String, u64), Span> = BTreeMap::new();
    for entry @ Entry { at, lock, fence, runner, .. } in entries {
        if !is_under_its_lock(entry, history) {
            continue;
        }
        let new = || Span { lock: lock.clone(), fence: *fence, runner: *runner, began: *at, last: *at };
        let span = spans.entry((lock.clone(), *fence)).or_insert_with(new);
        assert_eq!(span.runner, *runner, "two commands have the same number for `{lock}`");
        span.last = span.last.max(*at);
        span.began = span.began.min(*at);
    }
    let mut spans: Vec<Span> = spans.into_values().collect();
    spans.sort_by_key(|span| span.began);
    spans
}

/// Whether the process that wrote this is promised to end with its lock.
fn is_under_its_lock(entry: &Entry, history: &History) -> bool {
    let fate = history.get(&entry.runner);
    match entry.part {
        Part::Group => true,
        // The guardian ends the group, and nothing else.
        Part::WaitedFor => fate.is_none_or(|fate| fate.killed.is_none() && fate.stopped.is_empty()),
        Part::Daemon => false,
    }
}

impl Figures {
    fn count(&mut self, entries: &[Entry], history: &History, spans: &[Span]) {
        let processes: BTreeMap<(u32, u32), &Entry> =
            entries.iter().map(|entry| ((entry.runner, entry.pid), entry)).collect();
        self.processes = processes.len();
        self.daemons = processes.values().filter(|entry| entry.part != Part::Group).count();
        let mut of_command: BTreeMap<(&str, u64), usize> = BTreeMap::new();
        for entry in processes.values().filter(|entry| is_under_its_lock(entry, history)) {
            *of_command.entry((&entry.lock, entry.fence)).or_default() += 1;
        }
        self.families = of_command.values().filter(|count| **count > 1).count();
        let long = |fate: &Fate, span: &Span| {
            fate.stopped.iter().any(|(from, to)| *from > span.began && to.saturating_sub(*from) > TTL)
        };
        let stood_still = |span: &&Span| history.get(&span.runner).is_some_and(|fate| long(fate, span));
        self.stood_still = spans.iter().filter(stood_still).count();
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} commands ran, in {} processes, {} of which left the group, and {} of several at the same \
             time; two commands at the same time {} times because the runner of one was stopped while it \
             started, {} times because the machine had no time, and never else; {} stood still over their \
             commands for more than a TTL; {} were killed over their commands, which outlived them by {:?} \
             at most",
            self.commands,
            self.processes,
            self.daemons,
            self.families,
            self.stopped,
            self.starved,
            self.stood_still,
            self.killed,
            self.outlived
        )
    }
}
