//! Runs a case and checks its result.

use quorlock_model::case;

/// Tests always take the same walks; the nightly run takes others.
const SEED: u64 = 1;

/// Runs the case of this name.
pub(crate) fn confirm(name: &str) {
    let mut cases = case::all();
    cases.retain(|case| case.name == name);
    assert_eq!(cases.len(), 1, "no case is named {name:?}");
    let case = cases.remove(0);
    let report = (case.run)(SEED);
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

/// Declares a test for each case, which has the name of the test.
macro_rules! cases {
    ($(#[$test:meta] fn $name:ident();)+) => {
        $(
            #[$test]
            fn $name() {
                common::confirm(stringify!($name));
            }
        )+
    };
}
