//! The book, and what it says: its links, commands, blocks of Rust, settings and jobs.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod book;
mod commands;
mod jobs;
mod masters;
mod safety;
mod snippets;
