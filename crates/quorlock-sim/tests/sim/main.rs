//! The simulation: seeds without a finding, broken protections that it finds, and the same run for the same seed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod canaries;
mod determinism;
mod program;
mod seeds;
