//! `quorlock`: runs a command while a quorum of independent Redis or Valkey masters holds its lock.

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Args, Verb};
use crate::failure::Failure;

mod args;
mod bench;
mod child;
mod completions;
mod config;
mod demo;
mod doctor;
pub mod exit;
mod failure;
mod hold;
mod logging;
mod man;
mod metrics;
mod notice;
mod paint;
mod parent_death;
mod program;
#[cfg(test)]
mod reference;
mod release;
mod report;
mod run;
mod runtime;
mod signals;
mod status;
mod stderr;
mod stdout;
mod terminal;
mod waiting;

fn main() -> ExitCode {
    quorlock_testkit::serve_if_asked();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(answer) => return explain(&answer),
    };
    logging::start(&args);
    paint::choose(args.color);
    let json = args.wants_json();
    let outcome = match args.verb {
        Verb::Run(run) => run::run(run, args.deployment, args.quiet),
        Verb::Hold(hold) => hold::hold(&hold, args.deployment, args.quiet),
        Verb::Status(status) => status::status(&status, args.deployment),
        Verb::Doctor(doctor) => doctor::doctor(&doctor, args.deployment, args.quiet),
        Verb::Release(release) => release::release(&release, args.deployment),
        Verb::Bench(bench) => bench::bench(&bench, args.deployment, args.quiet),
        Verb::Demo(demo) => demo::demo(demo),
        Verb::Completions(completions) => completions::completions(&completions),
        Verb::Man(man) => man::man(&man),
    };
    let code = outcome.unwrap_or_else(|failure| explain_failure(&failure, json, args.quiet));
    stderr::finish();
    ExitCode::from(code)
}

/// The help that was asked for, or what is wrong with the arguments.
fn explain(answer: &clap::Error) -> ExitCode {
    // Nobody may be reading any more.
    drop(answer.print());
    ExitCode::from(if answer.use_stderr() { exit::USAGE } else { exit::SUCCESS })
}

fn explain_failure(failure: &Failure, json: bool, quiet: bool) -> u8 {
    if failure.is_worth_saying(quiet) {
        let text = if json { report::failure(failure) } else { format!("quorlock: {}", failure.full()) };
        stderr::say(format!("{text}\n"));
    }
    failure.code()
}
