//! `quorlock-chaos`: kills lock servers under load and checks that no two holders ever overlap.
//!
//! Only its help is here so far.

use std::process::ExitCode;

use clap::Parser;

/// Kill lock servers under load, and check that no two holders ever overlap
///
/// It will start five masters and many workers that contend for locks, kill, freeze and cut off
/// masters and workers by a seeded schedule, record who held what and when, and exit with 0 only
/// if every expectation held. None of that is there yet: there are no scenarios to run.
#[derive(Parser)]
#[command(name = "quorlock-chaos", version, about)]
struct Args {}

/// The exit code of a program that could not do what it is for.
const FAILED: u8 = 125;

fn main() -> ExitCode {
    let Args {} = Args::parse();
    eprintln!("quorlock-chaos: there are no scenarios yet; `quorlock demo` kills three masters of five");
    ExitCode::from(FAILED)
}
