//! Deterministic simulation of `quorlock`.
//!
//! The real coordinator, keepers, wait queues and Redis nodes run over a simulated network, on simulated
//! clocks, against the test kit's own server. Simulated time costs no real time, and all randomness is
//! derived from a seed. A seed determines the run down to each event, so a violation is reproducible.
//!
//! Each host is a runtime of its own that runs when an event for it occurs: bytes arrive, or a
//! timer is due. So a host can be stopped, suspended or killed, and has its own clock.
//!
//! ```text
//!   seed ─► plan ─► sim: next event of world ─► one host runs until it is idle ─► new events
//!                     │                            │
//!                     ├─ nemesis: faults of the    └─ client: acquires, renews, hands off, releases
//!                     │  plan, at their times            │
//!                     │                                  ▼
//!                     └─ judge at the end  ◄────────── record ─► what the nodes store, after each event
//! ```
//!
//! - `plan` is all that a seed decides: hosts, clients, faults. It is data, so `shrink` can leave parts out
//!   of a run that fails, as long as it keeps failing.
//! - `world` has the time, the queue of events, the network and the clocks of the hosts. Nothing else may
//!   have a source of time or chance: `Options::trace` prints a hash that shows if something has.
//! - `record` is what the clients did and found. Whether a lease is backed by a quorum, who leads, and what is left behind
//!   is checked on the nodes event by event, and such a violation ends the run. The whole history, with the true time, is
//!   judged by `quorlock-history` at the end. Reported is what happened first.
//! - A `Twist` removes one protection. Its canary test checks that the simulation then finds a violation.
//!
//! Begin with [`run`], then with `sim`, which is the loop.

#![expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a broken simulation must stop immediately"
)]

mod client;
mod fault;
mod plan;
mod record;
mod remembering;
mod shrink;
mod sim;
mod world;

/// Returns the name of a fault, a twist or a subject on the command line.
#[must_use]
pub fn name_of(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

pub use {
    fault::Kind,
    plan::{Options, Subject, Twist},
    record::{Counts, Finding, Rule},
    shrink::shrink,
    sim::{Outcome, run},
};
