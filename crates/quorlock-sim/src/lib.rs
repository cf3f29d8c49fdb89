//! Deterministic simulation of `quorlock`.
//!
//! The real coordinator, keepers, wait queues and Redis nodes run over a simulated network, on simulated
//! clocks, against the test kit's own server. Simulated time costs no real time, and all randomness is
//! derived from a seed. A seed determines the run down to each event, so a violation is reproducible.
//!
//! Each host is a runtime of its own that runs when an event for it occurs: bytes arrive, or a
//! timer is due. So a host can be stopped, suspended or killed, and has its own clock.

#![expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a broken simulation must stop immediately"
)]

mod client;
mod fault;
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
