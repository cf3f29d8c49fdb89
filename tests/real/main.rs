//! The whole thing, on real servers.
//!
//! Each test starts servers of its own on loopback. No test asserts a time: `benches/` prints
//! figures.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod bad_nodes;
mod contract;
mod cut;
mod election;
mod faults;
mod fence;
mod interop;
mod restart;
mod rivals;
mod semaphore;
mod waiting;
mod world;
