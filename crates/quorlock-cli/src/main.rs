//! `quorlock` with every kind of node that it was built with.

use std::process::ExitCode;

fn main() -> ExitCode {
    quorlock_cli::main(quorlock_kinds::all())
}
