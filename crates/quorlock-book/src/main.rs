//! Builds the book into `target/book`, or into the folder that is named.

use std::process::ExitCode;

fn main() -> ExitCode {
    match quorlock_book::render::build(std::env::args_os().nth(1).map(Into::into)) {
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
