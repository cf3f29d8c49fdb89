//! SQLite databases as nodes.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod calendar;
mod contract;
mod files;
mod node;
#[path = "../../../../tests/stores/requests.rs"]
mod requests;
#[path = "../../../../tests/stores/together.rs"]
mod together;
