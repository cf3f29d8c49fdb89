//! Nodes on real servers of MariaDB, or of the MySQL that `QUORLOCK_MYSQL` names, which the tests start; skipped if
//! MariaDB is not installed.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod contract;
mod faults;
mod fence;
mod hostile;
mod login;
mod moves;
mod program;
mod queue;
#[path = "../../../../tests/stores/reconnects.rs"]
mod reconnects;
#[path = "../../../../tests/stores/requests.rs"]
mod requests;
mod rights;
mod server;
mod shedlock;
#[path = "../../../../tests/stores/together.rs"]
mod together;
