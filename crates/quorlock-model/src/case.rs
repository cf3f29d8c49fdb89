//! Cases: models with their expected results.

use crate::explore::Report;

/// A model with its expected result.
#[derive(Clone)]
pub struct Case {
    /// The name, which is that of its test.
    pub name: &'static str,
    /// The expected result.
    pub expected: Expected,
    /// How long it takes.
    pub size: Size,
    /// Runs it.
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

/// The expected result of a [`Case`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// No property is violated.
    Holds,
    /// A violation is found, which shows that the model detects a broken rule.
    Violated,
}

/// How long a [`Case`] takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum Size {
    /// Cases that take seconds
    Quick,
    /// All cases: the others take minutes
    Nightly,
}

impl Case {
    /// Whether the result was as expected. A case that holds must also have met everything that
    /// should be possible.
    #[must_use]
    pub fn is_as_expected(&self, report: &Report) -> bool {
        match self.expected {
            Expected::Holds => report.broken.is_none() && report.missing.is_empty(),
            Expected::Violated => report.broken.is_some(),
        }
    }
}

/// Runs the case of this name as a test does: with the same walks each time, while the nightly run takes others.
#[cfg(test)]
pub(crate) fn confirm(cases: Vec<Case>, name: &str) {
    let case = cases.into_iter().find(|case| case.name == name).unwrap();
    let report = (case.run)(1);
    println!("{name}: {}, in {:?}", report.seen, report.took);
    if let Some(story) = &report.broken {
        println!("{story}");
    }
    assert!(
        case.is_as_expected(&report),
        "{name}: expected {:?}, but violated: {:?}, never met: {:?}",
        case.expected,
        report.broken.as_ref().map(|story| story.property),
        report.missing,
    );
}

/// Defines `all`, which returns cases: what is expected, how that is searched, the name, and the model. Each that takes seconds
/// is a test of its name.
macro_rules! cases {
    ($($expected:ident $search:ident $(($walks:expr))? $name:ident: $model:expr;)+) => {
        $(cases!(@test $expected $name);)+

        /// Returns all cases.
        pub(crate) fn all() -> Vec<$crate::case::Case> {
            vec![$($crate::case::$expected(stringify!($name), |_seed| {
                cases!(@$expected $search, $model, _seed $(, $walks)?)
            })),+]
        }
    };
    (@test nightly $name:ident) => {};
    (@test $expected:ident $name:ident) => {
        #[test]
        fn $name() {
            $crate::case::confirm(all(), stringify!($name));
        }
    };
    (@nightly prove, $model:expr, $seed:ident) => { $crate::explore::prove($model, 2) };
    (@$expected:ident prove, $model:expr, $seed:ident) => { $crate::explore::prove($model, 1) };
    (@$expected:ident hunt, $model:expr, $seed:ident) => { $crate::explore::hunt(&$model) };
    (@$expected:ident walk, $model:expr, $seed:ident, $walks:expr) => {
        $crate::walk::walk(&$model, $seed, $walks)
    };
}
