//! What a waiter learns from refusals, where it waits, and when it asks again.
//!
//! | to decide | use |
//! |---|---|
//! | which node to ask first | [`Learnt`], [`AskOrder`] |
//! | for how long to pause, and for which hints | [`Pause`] |
//! | in which queue to wait, and what to believe of its node | [`Places`] |

mod learn;
mod pause;
mod place;

pub use learn::{AskOrder, Learnt, Preference};
pub use pause::{ASKED_AGAIN, Pause};
pub use place::{Doubt, OTHER_NODE_EVERY, Places};
