//! The behaviour of the library on nodes in memory, with paused or simulated time, and of its sources and
//! pages; nothing here starts a server or another process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::float_cmp,
    clippy::unchecked_time_subtraction,
    reason = "a test fails by panicking"
)]

mod acquire;
mod bare_quorum;
mod cancel;
mod capabilities;
mod circles;
mod common;
mod comparison;
mod config;
mod doctor;
mod edges;
mod election;
mod events;
mod fairness;
mod fence;
mod fencing;
mod first_come;
mod handoff;
mod health;
mod hints;
mod idle;
mod late;
mod launchers;
mod layers;
mod limits;
mod listing;
mod log;
mod loss;
#[cfg(feature = "metrics")]
mod metrics;
mod migration;
mod names;
mod node_kinds;
mod offer;
mod outage;
mod owner;
mod passing_on;
mod queue;
mod release;
mod renewal;
mod restart;
mod retaining;
mod revoke;
mod rivals;
mod runtimes;
mod semaphore;
mod several;
mod shared;
mod shipped;
mod take_up;
mod timing;
mod until_free;
mod waiting;
mod way;
