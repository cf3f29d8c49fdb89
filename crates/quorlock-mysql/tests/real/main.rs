//! Nodes on real servers of MariaDB, which the tests start; skipped where there is none.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod contract;
mod faults;
mod program;
mod queue;
mod rights;
mod server;
mod shedlock;

/// Ends the test where no server can be started.
macro_rules! need_server {
    () => {
        if let Some(why) = crate::server::missing() {
            println!("{why}");
            return;
        }
    };
}
use need_server;
