//! The book of quorlock: its pages, their contents, and how it is built.
//!
//! The tests of this crate check the book: every page is in the summary, every link has a target, every block
//! of Rust compiles and runs, every command line runs on real servers, and every configuration file is read
//! by its program.

pub mod block;
pub mod link;
pub mod page;
pub mod render;
