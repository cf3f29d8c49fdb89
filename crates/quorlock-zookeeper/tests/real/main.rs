//! Nodes on real ensembles of ZooKeeper, which the tests start; skipped if there is none.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod contract;
mod cutoff;
mod foreign;
mod interop;
mod moves;
#[path = "../../../../tests/stores/ordered.rs"]
mod ordered;
mod queue;
#[path = "../../../../tests/stores/reconnects.rs"]
mod reconnects;
mod support;
#[cfg(feature = "tls")]
mod tls;
#[path = "../../../../tests/stores/together.rs"]
mod together;
