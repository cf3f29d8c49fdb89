//! Builds the book.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Build the pages under `docs/` as a book with a search, and print where it begins.
#[derive(Parser)]
#[command(name = "quorlock-book")]
struct Options {
    /// Where to put it [default: target/book]
    folder: Option<PathBuf>,
}

fn main() -> ExitCode {
    match quorlock_book::render::build(Options::parse().folder) {
        Ok(folder) => {
            println!("{}", folder.join("index.html").display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("quorlock-book: {error:#}");
            ExitCode::FAILURE
        }
    }
}
