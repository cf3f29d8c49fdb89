//! Deterministic simulation of `quorlock`.
//!
//! The real coordinator, keepers, waiting and Redis nodes run here over a simulated network, on
//! simulated clocks, against the test kit's own server; time costs nothing, and chance comes from a
//! seed. One seed is one run, down to each event: a run that finds a broken promise finds it again.
//!
//! Each host is a runtime of its own, which goes on when something happens to it: bytes arrive, or
//! a timer is due. So a host can be stopped, suspended or killed, and has a clock of its own.

#![expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a simulation that is wrong itself must stop at once"
)]

mod client;
mod clock;
mod dice;
mod fault;
mod nemesis;
mod network;
mod oracle;
mod plan;
mod record;
mod remembering;
mod shrink;
mod sim;
mod standing;
mod world;

pub use {
    fault::Kind,
    plan::{Options, Subject, Twist},
    record::{Counts, Finding, Rule},
    shrink::shrink,
    sim::{Outcome, run},
};
