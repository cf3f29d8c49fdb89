use std::fmt;

use serde::{Deserialize, Serialize};

use crate::attempts::{Attempt, Attempts, epsilon};
use crate::expectations::Expectations;
use crate::faults::Faults;
use crate::history::{Answer, Event, History, What};
use crate::hold::Ending;
use crate::names::Resource;
use crate::search::GaveUp;
use crate::stamp::Stamp;
use crate::violation::{Check, Violation};
use crate::{exclusion, liveness, loss, mutex, observers, orphans, permits, register};

/// Runs all checks.
///
/// An empty history violates nothing: [`Report::seen`] says how much there was to check.
pub fn check(history: &History, expect: &Expectations) -> Report {
    let events = history.in_order();
    let end = events.last().map_or(Stamp::default(), |event| event.at);
    let epsilon = epsilon(&events);
    let faults = Faults::of(&events);
    let (attempts, flaws) = Attempts::of(&events);
    let holds = attempts.holds();
    let writes = register::writes(&events);

    let mut report = Report { violations: flaws, gave_up: Vec::new(), seen: Seen::of(&events, &attempts) };
    for (resource, holds) in &holds {
        report.violations.extend(permits::check(holds, epsilon));
        for holds in permits::apart(holds) {
            report.violations.extend(exclusion::check(&holds, epsilon));
            match mutex::check(&holds, epsilon, expect.search_steps) {
                Ok(violation) => report.violations.extend(violation),
                Err(GaveUp) => report.gave_up.push(resource.clone()),
            }
        }
    }
    // A resource may have writes but no hold: those of a client that crashed while acquiring.
    for resource in holds.keys().chain(writes.keys().filter(|resource| !holds.contains_key(*resource))) {
        let holds = holds.get(resource).map_or(&[][..], Vec::as_slice);
        let writes = writes.get(resource).map_or(&[][..], Vec::as_slice);
        let apart = permits::apart(holds);
        // Tokens of different permits are unrelated: each permit is a register of its own.
        let shared = if apart.len() > 1 { &[][..] } else { writes };
        for holds in &apart {
            report.violations.extend(register::check(holds, shared, &attempts, epsilon));
        }
        if apart.len() != 1 {
            report.violations.extend(register::check(&[], writes, &attempts, epsilon));
        }
    }
    report.violations.extend(observers::check(&events, &attempts, expect, epsilon));
    report.violations.extend(orphans::check(&events, &attempts, &faults, expect, epsilon));
    if let Some(bound) = expect.recovery {
        report.violations.extend(liveness::check(&attempts, &faults, end, bound));
    }
    report.violations.extend(loss::check(&attempts, &faults, end, expect.slack));
    report.violations.sort_by_key(Violation::check);
    report
}

/// The result of the checks. `Display` prints the counts and the first violations of each check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
#[must_use = "an unread report proves nothing"]
pub struct Report {
    /// Every violation, by check.
    pub violations: Vec<Violation>,
    /// Resources whose search exceeded the maximum number of steps. Their mutex check is
    /// inconclusive; all other checks are complete.
    pub gave_up: Vec<Resource>,
    /// How much there was to check.
    pub seen: Seen,
}

impl Report {
    /// Whether all checks completed and found nothing.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.gave_up.is_empty()
    }

    /// Returns the violations found by one check.
    pub fn of(&self, check: Check) -> impl Iterator<Item = &Violation> {
        self.violations.iter().filter(move |violation| violation.check() == check)
    }
}

/// What a history contains. It reveals a test whose faults had no effect: no loss, no refused
/// write, no key seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Seen {
    /// Attempts that began.
    pub attempts: usize,
    /// Attempts that returned a lease.
    pub holds: usize,
    /// Attempts that returned none.
    pub not_acquired: usize,
    /// Renewals.
    pub renewals: usize,
    /// Leases that ended without a release or a crash.
    pub lost: usize,
    /// Clients that crashed.
    pub crashes: usize,
    /// Writes accepted by a guarded resource.
    pub accepted: usize,
    /// Writes refused by it. If holders were stopped past their deadlines, there should be some.
    pub refused: usize,
    /// Keys seen on nodes.
    pub keys: usize,
    /// Faults.
    pub faults: usize,
}

impl Seen {
    fn of(events: &[&Event], attempts: &Attempts) -> Seen {
        let count = |kind: fn(&What) -> bool| events.iter().filter(|event| kind(&event.what)).count();
        let endings: Vec<Ending> =
            attempts.iter().filter_map(Attempt::hold).map(|hold| hold.ending).collect();
        let lost = endings.iter().filter(|ending| matches!(ending, Ending::Lost | Ending::Lapsed));
        Seen {
            attempts: attempts.iter().count(),
            holds: endings.len(),
            lost: lost.count(),
            not_acquired: count(|what| matches!(what, What::NotAcquired { .. })),
            renewals: count(|what| matches!(what, What::Renewed { .. })),
            crashes: count(|what| matches!(what, What::Crashed { .. })),
            accepted: count(|what| matches!(what, What::Wrote { answer: Answer::Accepted, .. })),
            refused: count(|what| matches!(what, What::Wrote { answer: Answer::Refused, .. })),
            keys: count(|what| matches!(what, What::Key { .. })),
            faults: count(|what| matches!(what, What::FaultBegan { .. })),
        }
    }
}

/// The number of violations shown per check.
const SHOWN: usize = 5;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seen)?;
        let mut rest = self.violations.as_slice();
        while let Some(first) = rest.first() {
            let check = first.check();
            let (of_check, others) =
                rest.split_at(rest.iter().take_while(|violation| violation.check() == check).count());
            write!(f, "\n{check}: {} found", of_check.len())?;
            of_check.iter().take(SHOWN).try_for_each(|violation| write!(f, "\n  {violation}"))?;
            if of_check.len() > SHOWN {
                write!(f, "\n  and {} more", of_check.len() - SHOWN)?;
            }
            rest = others;
        }
        for resource in &self.gave_up {
            write!(f, "\nmutex: gave up on `{resource}`; allow more steps")?;
        }
        if self.is_clean() { f.write_str("\nno violations") } else { Ok(()) }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen { attempts, holds, not_acquired, renewals, lost, crashes, accepted, refused, keys, faults } =
            self;
        write!(
            f,
            "attempts: {attempts}, held: {holds}, not acquired: {not_acquired}, renewals: {renewals}, \
             lost: {lost}, crashes: {crashes}, writes accepted: {accepted}, refused: {refused}, \
             keys seen: {keys}, faults: {faults}"
        )
    }
}
