//! Something to find out, and what it should turn out to be.

use crate::explore::Report;

/// A model, and what is expected of it.
#[derive(Clone)]
pub struct Case {
    /// What it says, as a sentence.
    pub name: &'static str,
    /// What should come out.
    pub expected: Expected,
    /// How long it takes.
    pub size: Size,
    /// Looks.
    pub run: fn(seed: u64) -> Report,
}

/// A case that should hold.
pub(crate) fn holds(name: &'static str, run: fn(u64) -> Report) -> Case {
    Case { name, expected: Expected::Holds, size: Size::Quick, run }
}

/// A case that should hold and takes minutes.
pub(crate) fn nightly(name: &'static str, run: fn(u64) -> Report) -> Case {
    Case { size: Size::Nightly, ..holds(name, run) }
}

/// A case with a rule broken on purpose: a violation should be found.
pub(crate) fn violated(name: &'static str, run: fn(u64) -> Report) -> Case {
    Case { expected: Expected::Violated, ..holds(name, run) }
}

/// What should come out of a [`Case`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// Nothing is violated.
    Holds,
    /// Something is: this is how we know that the model would tell.
    Violated,
}

/// How long a [`Case`] takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Size {
    /// Seconds.
    Quick,
    /// Minutes.
    Nightly,
}

impl Case {
    /// Whether it came out as expected. What holds must also have been looked at: everything that
    /// should be possible was met.
    #[must_use]
    pub fn is_as_expected(&self, report: &Report) -> bool {
        match self.expected {
            Expected::Holds => report.broken.is_none() && report.missing.is_empty(),
            Expected::Violated => report.broken.is_some(),
        }
    }
}

/// All of them.
#[must_use]
pub fn all() -> Vec<Case> {
    [
        crate::lock::cases::all(),
        crate::shared::cases::all(),
        crate::fence::cases::all(),
        crate::permits::cases::all(),
        crate::several::cases::all(),
        crate::passing::cases::all(),
        crate::late::cases::all(),
        crate::retained::cases::all(),
        crate::queue::cases::all(),
        crate::offer::cases::all(),
    ]
    .concat()
}
