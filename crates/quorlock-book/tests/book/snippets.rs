//! Compiles every block of Rust of the README and the book, and runs it on real servers.
//!
//! `build.rs` generates the functions. Compiler errors refer to the generated file, which has the page and
//! line of the block above each function.

#![allow(
    clippy::pedantic,
    clippy::disallowed_methods,
    clippy::type_complexity,
    clippy::wildcard_enum_match_arm,
    unused,
    unreachable_pub,
    reason = "blocks of pages are short"
)]

mod given;

use std::error::Error;
use std::fmt::Debug;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use given::*;
use quorlock_testkit::patience;

/// How long a block that never ends is run.
const A_WHILE: Duration = Duration::from_secs(1);

pub(crate) type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

pub(crate) struct Snippet {
    place: &'static str,
    endless: bool,
    run: Run,
}

enum Run {
    Async(fn() -> LocalBoxFuture<'static, Outcome>),
    /// On a thread of its own, as its `main` would be.
    Program(fn() -> Outcome),
}

include!(concat!(env!("OUT_DIR"), "/snippets.rs"));

#[tokio::test(flavor = "multi_thread")]
async fn every_block_of_rust_compiles_and_runs() {
    let _servers = given::start().await;
    assert!(SNIPPETS.len() > 5, "{} were found", SNIPPETS.len());
    for Snippet { place, endless, run } in SNIPPETS {
        let outcome: Result<Result<(), String>, _> = match run {
            Run::Async(run) => {
                let timeout = if *endless { A_WHILE } else { patience() };
                tokio::time::timeout(timeout, async { run().await.map_err(|error| error.to_string()) }).await
            }
            Run::Program(run) => {
                let run = *run;
                let program = tokio::task::spawn_blocking(move || {
                    // Outside the runtime of this test.
                    std::thread::spawn(move || run().map_err(|error| error.to_string())).join()
                });
                let ended = tokio::time::timeout(patience(), program).await;
                ended.map(|ended| ended.unwrap().unwrap_or_else(|_| Err("it panicked".to_owned())))
            }
        };
        match outcome {
            Ok(outcome) => assert_eq!(outcome, Ok(()), "{place}"),
            Err(_) => assert!(endless, "{place} did not end"),
        }
    }
}

/// The return value of a `main`.
trait Ending {
    fn outcome(self) -> Outcome;
}

impl Ending for () {
    fn outcome(self) -> Outcome {
        Ok(())
    }
}

impl<E: Debug> Ending for Result<(), E> {
    fn outcome(self) -> Outcome {
        self.map_err(|error| format!("{error:?}").into())
    }
}

fn ended(main: impl Ending) -> Outcome {
    main.outcome()
}
