//! Nodes on real clusters of etcd, which the tests start; skipped if etcd is not installed.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod contract;
mod interop;
mod login;
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
