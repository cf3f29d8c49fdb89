//! The program `quorlock`, as its users meet it, on real servers.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod benching;
mod command;
mod dashboard;
mod databases;
mod dead_holders;
mod demonstration;
mod distance;
mod doctor;
mod electing;
mod etcd;
mod examples;
mod exit_codes;
mod files;
#[cfg(target_os = "linux")]
mod first_process;
mod freeing;
#[cfg(target_os = "linux")]
mod guarding;
mod habits;
mod holding;
#[cfg(target_os = "linux")]
mod keys_of_terminal;
mod lingering;
mod listing;
mod logs;
mod loss;
mod manual;
mod metrics;
mod migration;
mod nasty;
mod observability;
mod once;
mod outage;
mod packaging;
#[cfg(target_os = "linux")]
mod permits;
mod phases;
mod programs;
#[cfg(target_os = "linux")]
mod pty;
mod redisson;
mod releasing;
mod replacing;
mod secrets;
mod settings;
mod sharing;
mod shown;
mod signal_table;
mod signals;
mod sqlite;
mod status;
mod steady;
mod support;
#[cfg(target_os = "linux")]
mod terminal;
#[cfg(feature = "tls")]
mod tls;
mod together;
mod waiting;
mod watching;
mod writing;
mod zookeeper;
