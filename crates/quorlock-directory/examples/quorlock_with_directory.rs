//! The program `quorlock` with support for directories.
//!
//! ```sh
//! mkdir -p /var/lib/locks && cargo run -p quorlock-directory --example quorlock_with_directory -- \
//!     --nodes directory:///var/lib/locks run nightly -- ./nightly.sh
//! ```

use std::process::ExitCode;

use quorlock::node::Kinds;
use quorlock_directory::DirectoryKind;

fn main() -> ExitCode {
    quorlock_cli::main(Kinds::default().with(DirectoryKind::new()))
}
