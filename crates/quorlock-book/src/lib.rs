//! The book of quorlock: its pages, what stands in them, and how it is built.
//!
//! The tests of this crate hold the book to its word: each page is in the summary and each link
//! leads somewhere, each block of Rust is compiled and run, each command line is carried out on
//! real servers, and each file of settings is read by the program that it is for.

pub mod block;
pub mod link;
pub mod page;
pub mod render;
