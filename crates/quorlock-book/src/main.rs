//! Builds the book.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Build the pages under `docs/` as a searchable book, and print the path of its first page.
#[derive(Parser)]
#[command(name = "quorlock-book")]
struct Options {
    /// Output folder [default: target/book]
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
