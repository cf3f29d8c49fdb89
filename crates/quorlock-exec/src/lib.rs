//! Programs in any language as nodes of `quorlock`: `exec:PROGRAM?arg=…`.
//!
//! A node is a child process that reads requests as lines of JSON on its standard input and writes answers to its standard
//! output. There is no port and no login: it serves this process alone, and ends with it. `docs/exec.md` has the lines, and
//! a program in Python; [`serve`] makes a program of any [`Node`](quorlock::node::Node) in Rust.
//!
//! # What a child can break
//!
//! What it answers is its vote, and a child that lies about its store is a node that lies. It cannot do more: lines have a
//! limit, so have unanswered requests, what does not follow the protocol ends it, and one that is silent is ended and started
//! again. Until then its requests are unanswered, which is never a refusal.
//!
//! # How it is laid out
//!
//! `wire` defines the lines, and is pure; begin there. `child` is a process and its pipes, `node` the thread that owns it,
//! matches each answer to its request by number, and starts it again with growing pauses. `serve` is the other end.
#![cfg(unix)]

mod address;
mod child;
mod kind;
mod node;
mod serve;
mod stderr;
mod wire;

pub use kind::ExecKind;
pub use node::ExecNode;
pub use serve::serve;
