//! The nodes, servers and faults that the test kit provides.

#![allow(clippy::indexing_slicing, reason = "a test fails by panicking")]

mod builtin;
mod contract;
mod entropy;
mod hints;
mod memory;
mod proxy;
mod rng;
mod scripts;
mod servers;
