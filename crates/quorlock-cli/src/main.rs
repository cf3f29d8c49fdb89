//! `quorlock`, with the kinds of node that the library has.

use std::process::ExitCode;

use quorlock::Kinds;

fn main() -> ExitCode {
    quorlock_cli::main(Kinds::default())
}
