//! Everything, on real servers.
//!
//! Each test starts its own servers on loopback. No test asserts on durations: `benches/` prints
//! figures.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod bad_nodes;
#[cfg(feature = "blocking")]
mod blocking;
mod cluster;
mod contract;
mod cut;
mod examples;
mod failovers;
mod faults;
mod fence;
mod health;
mod hostile;
mod impostors;
mod interop;
mod lists;
mod load;
mod moves;
mod offers;
mod passwords;
mod promotion;
mod record;
mod redisson;
mod restart;
mod rights;
mod rivals;
mod runtimes;
mod secrets;
mod semaphore;
mod sentinel;
mod several;
#[path = "../stores/together.rs"]
mod together;
mod tracking;
#[cfg(unix)]
mod unix;
mod waiting;
mod world;
