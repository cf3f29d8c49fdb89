//! What is to be found out about order among those who wait.

use super::{Order, Scheme};
use crate::case::Expected::{Holds, Violated};
use crate::case::{Case, Expected, Size};
use crate::explore::{Report, hunt, prove};

/// All of them. The names are those of the tests.
#[must_use]
pub fn all() -> Vec<Case> {
    vec![
        case("tickets let somebody go on whatever order nodes hear of them in", Holds, |_| {
            prove(Order::<5, 3> { scheme: Scheme::Tickets }, 1)
        }),
        case("nodes that serve only their own head wait for each other", Violated, |_| {
            hunt(&Order::<5, 3> { scheme: Scheme::OwnHead })
        }),
    ]
}

fn case(name: &'static str, expected: Expected, run: fn(u64) -> Report) -> Case {
    Case { name, expected, size: Size::Quick, run }
}
