//! The cases of the models, a test for each.

/// Declares a test for each case, which has the name of the test.
macro_rules! cases {
    ($(fn $name:ident();)+) => {
        $(
            #[test]
            fn $name() {
                crate::confirm(stringify!($name));
            }
        )+
    };
}

mod fence;
mod first_come;
mod lock;
mod offer;
mod permits;
mod real;
mod several;
mod shared;

use quorlock_model::cases;

/// Tests always take the same walks; the nightly run takes others.
const SEED: u64 = 1;

/// Runs the case of this name.
fn confirm(name: &str) {
    let mut cases = cases();
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
