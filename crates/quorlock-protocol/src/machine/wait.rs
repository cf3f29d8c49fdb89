//! What a waiter learns from refusals, where it waits, and when it asks again.
//!
//! | to decide | use |
//! |---|---|
//! | what is next, and what a refusal means | [`Contest`] |
//! | which node to ask first | [`Learnt`], [`AskOrder`] |
//! | for how long to pause, and for which hints | [`Pause`] |
//! | in which queue to wait, and what to believe of its node | [`Places`], [`Place`] |
//! | whether to take the lock that a holder offers | [`OfferRequests`] |
//! | when a reader, or a caller of several locks, asks for its places, and keeps a turn | [`OpenPlace`] |
//! | when a writer keeps new readers out | [`Intent`] |
//! | when an observer looks at a key again | [`Watch`] |

mod contest;
mod intent;
mod learn;
mod offers;
mod open_place;
mod pause;
mod place;
mod watch;

pub use contest::{Contest, Lost, Patience, Step, Then, WaitsBy};
pub use intent::Intent;
pub use learn::{AskOrder, Learnt, Preference};
pub use offers::{OfferRequests, OfferStep, SharedAttempt, asks_for_offers};
pub use open_place::{OpenPlace, PlaceAnswer, PlaceDue};
pub use pause::{ASKED_AGAIN, Pause};
pub use place::{Doubt, Next, Notice, OTHER_NODE_EVERY, Place, Places};
pub use watch::{Count, Look, Watch};
