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
/// A history that is empty breaks no promise: see [`Report::seen`] for how much was there to be
/// judged.
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
    // A resource may have writes and no hold: those of a client that crashed as it acquired.
    for resource in holds.keys().chain(writes.keys().filter(|resource| !holds.contains_key(*resource))) {
        let holds = holds.get(resource).map_or(&[][..], Vec::as_slice);
        let writes = writes.get(resource).map_or(&[][..], Vec::as_slice);
        let apart = permits::apart(holds);
        // Tokens of different permits have nothing to do with each other: each has a register of its own.
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
    if let (Some(bound), Some(heal)) = (expect.recovery, faults.last_heal()) {
        report.violations.extend(liveness::check(&attempts, heal, end, bound));
    }
    report.violations.extend(loss::check(&attempts, &faults, end, expect.slack));
    report.violations.sort_by_key(Violation::check);
    report
}

/// What the checks found. `Display` is for people: what was seen, and the first few violations of
/// each check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
#[must_use = "a report that nobody reads proves nothing"]
pub struct Report {
    /// Every violation, by check.
    pub violations: Vec<Violation>,
    /// Resources for which the search for an order would have taken too long. Nothing is known of
    /// their mutex, but everything else is.
    pub gave_up: Vec<Resource>,
    /// How much there was to be judged.
    pub seen: Seen,
}

impl Report {
    /// Whether all checks came to an end and found nothing.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.gave_up.is_empty()
    }

    /// What one check found.
    pub fn of(&self, check: Check) -> impl Iterator<Item = &Violation> {
        self.violations.iter().filter(move |violation| violation.check() == check)
    }
}

/// How much a history has of everything. A test whose faults did nothing shows here: no loss, no
/// write refused, no key seen.
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
    /// Leases that were over without a release or a crash.
    pub lost: usize,
    /// Clients that crashed.
    pub crashes: usize,
    /// Writes that a guarded resource accepted.
    pub accepted: usize,
    /// Writes that it refused: with holders that were stopped past the end of their validity, some
    /// have to be.
    pub refused: usize,
    /// Keys seen at nodes.
    pub keys: usize,
    /// Disturbances.
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

/// As many violations of one check are shown: more of them say nothing new.
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
        if self.is_clean() { f.write_str("\nno promise broken") } else { Ok(()) }
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
