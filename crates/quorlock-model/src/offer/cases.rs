//! What is to be found out about offers.

use super::state::Kind::{self, Holder, Plain, Waiter};
use super::{Offer, Scheme, World};
use crate::case::Expected::Holds;
use crate::case::Size::Quick;
use crate::case::{Case, Expected, Size};
use crate::explore::{Report, hunt, prove};

/// All of them. The names are those of the tests.
#[must_use]
pub fn all() -> Vec<Case> {
    vec![]
}
