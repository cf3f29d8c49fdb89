//! Whether the record is one that the promises allow.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::record::Entry;
use crate::runners::{Fate, History};
use crate::starvation::Gap;

/// One command, from its first word to its last.
#[derive(Clone, Debug)]
struct Span {
    lock: String,
    fence: u64,
    runner: u32,
    pid: u32,
    began: Duration,
    last: Duration,
}

/// What was seen.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) commands: usize,
    /// Two at once, because the runner of the first was stopped: the exception that is documented.
    stopped: usize,
    /// The same, because the machine had no time for the runner.
    starved: usize,
    /// How long a command outlived a runner that was killed, at most.
    outlived: Duration,
    killed: usize,
}

/// After a runner that was stopped goes on, or is killed, its command ends within this.
const LATE: Duration = Duration::from_millis(1500);
/// A runner that goes on looks at its lease at once.
const AT_ONCE: Duration = Duration::from_millis(250);
/// A gap this long before the overlap may have delayed the timer that would have prevented it.
const NEAR: Duration = Duration::from_millis(500);

/// Checks that for no lock two commands ran at once, in any other than the documented case, that
/// their numbers grow, and that none outlived its runner.
pub(crate) fn judge(entries: &[Entry], history: &History, gaps: &[Gap]) -> Figures {
    let spans = spans(entries);
    let mut figures = Figures { commands: spans.len(), ..Figures::default() };
    for (place, first) in spans.iter().enumerate() {
        let fate = history.get(&first.runner);
        if let Some(killed) = fate.and_then(|fate| fate.killed) {
            let outlived = first.last.saturating_sub(killed);
            assert!(outlived < LATE, "{first:?} outlived its runner, which was killed, by {outlived:?}");
            figures.outlived = figures.outlived.max(outlived);
            figures.killed += 1;
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
                    "two ran at once for {:?}: {first:?}, {second:?}; {fate:?}",
                    first.last.saturating_sub(second.began)
                );
            }
        }
    }
    figures
}

/// Whether the runner of the first stood still before the second began, and the first ended soon
/// after it went on.
fn was_stopped(fate: &Fate, first: &Span, second: &Span) -> bool {
    fate.stopped.iter().any(|(from, to)| {
        *from < second.began && first.began < *to && second.began < *to + AT_ONCE && first.last < *to + LATE
    })
}

/// Whether the machine had no time right before the second began, and the overlap is no longer than
/// that explains.
fn was_starved(gap: &Gap, first: &Span, second: &Span) -> bool {
    let overlap = first.last.saturating_sub(second.began);
    gap.from < second.began
        && gap.to + NEAR > second.began
        && overlap < gap.to.saturating_sub(gap.from) + AT_ONCE
}

/// In the order in which they began.
fn spans(entries: &[Entry]) -> Vec<Span> {
    let mut spans: BTreeMap<(String, u64), Span> = BTreeMap::new();
    for Entry { at, lock, fence, runner, pid } in entries {
        let new =
            || Span { lock: lock.clone(), fence: *fence, runner: *runner, pid: *pid, began: *at, last: *at };
        let span = spans.entry((lock.clone(), *fence)).or_insert_with(new);
        assert_eq!(span.pid, *pid, "two commands have the same number for `{lock}`");
        span.last = span.last.max(*at);
    }
    let mut spans: Vec<Span> = spans.into_values().collect();
    spans.sort_by_key(|span| span.began);
    spans
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} commands ran; two at once {} times while the runner of one was stopped, {} times while the \
             machine had no time for it, and never else; {} runners were killed over their commands, which \
             outlived them by {:?} at most",
            self.commands, self.stopped, self.starved, self.killed, self.outlived
        )
    }
}
