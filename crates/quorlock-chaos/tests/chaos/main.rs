//! The program, on real servers, databases and containers.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod chaos;
mod compose;
mod databases;
mod network;
