//! A library that is never compiled: it contains what `tests/api` must and must not list.

mod inner;
mod made;
pub mod outer;

pub use inner::{Plain as Renamed, Shown, count};
#[doc(hidden)]
pub use inner::Hidden;
pub use made::Far;
pub use other::Thing;

pub struct Root(pub u32, inner::Secret);

#[cfg(test)]
pub struct OnlyInTests;

#[cfg(windows)]
pub struct OnlyElsewhere;

#[cfg(feature = "extra")]
pub fn extra() {}

pub(crate) fn not_for_the_world() {}
