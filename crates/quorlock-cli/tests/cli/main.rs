//! The program `quorlock`, as its users meet it, on real servers.

#![cfg(unix)]

mod command;
mod demonstration;
mod exit_codes;
mod loss;
mod metrics;
mod observability;
mod secrets;
mod settings;
mod status;
mod support;
#[cfg(feature = "tls")]
mod tls;
mod waiting;
mod wrappers;
