//! Defects of other lock libraries and tools, as guarantees of ours.
//!
//! `docs/comparison.md` lists the defects. These tests use nodes in memory with paused time;
//! those with real servers are in `tests/real/rivals.rs`, those of the command line in the tests of
//! quorlock-cli. Where a test of the subject itself has the same condition, the table names that one.

mod acquiring;
mod configuring;
mod fencing;
mod kept;
mod losing;
mod nodes;
mod promises;
mod releasing;
mod renewing;
mod table;
mod waiting;
