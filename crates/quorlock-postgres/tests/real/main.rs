//! Nodes on real PostgreSQL servers, which the tests start; skipped if PostgreSQL is not installed.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod connections;
mod contract;
mod hostile;
#[cfg(feature = "tls")]
mod login;
mod moves;
mod node;
mod order;
mod owners;
mod program;
#[path = "../../../../tests/stores/reconnects.rs"]
mod reconnects;
#[path = "../../../../tests/stores/requests.rs"]
mod requests;
mod shedlock;
mod strangers;
mod support;
#[path = "../../../../tests/stores/together.rs"]
mod together;
mod versions;
