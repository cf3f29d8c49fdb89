//! The program `quorlock`, which runs a command under a lock held by a quorum of independent Redis or Valkey
//! masters, as a library: to build a `quorlock` with more kinds of node.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use quorlock::node::Kinds;
//!
//! fn main() -> ExitCode {
//!     quorlock_cli::main(Kinds::default()) // and `.with(MyKind)`
//! }
//! ```
//!
//! # How it is laid out
//!
//! Each verb is a file with its name (`elect` is in `run`): its options, what it does, and the text that it prints. Begin
//! with [`main`] and the `match` below it, then with one verb: `wait` is the shortest, and `run` the one that matters most.
//!
//! | modules | what they do |
//! |---|---|
//! | `args`, `deployment`, `lock_args`, `config`, `values` | from the command line, the environment and a file to nodes and a lock |
//! | `wanted`, `waiting` | the lock that is wanted, and waiting for it with a way out by Ctrl-C |
//! | `run` | a command under a lock: `run/job` is the command and its process group, `run/watch` stops it in time, `run/guardian` does so when this process cannot |
//! | `run/notice`, `run/requests` | when a command is stopped, and which signals count. Pure: `now` is an argument |
//! | `signals`, `terminal`, `child`, `closed` | what belongs to the operating system |
//! | `report`, `failure`, `exit` | what a person or a program reads: sentences, JSON, exit codes |
//! | `habits` | the line to type in answer to one of another tool |
//! | `help`, `completions`, `man`, `reference` | all from one definition of the command line |
//!
//! All runs on one thread: the kernel kills a command with the thread that started it.

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap::error::ErrorKind;
use quorlock::{node::Kinds, protocol::printable};

use crate::args::{Args, Verb};
use crate::failure::Failure;
use crate::report::Report;
use crate::signals::Interruption;

mod args;
mod bench;
mod child;
mod closed;
mod completions;
mod config;
mod demo;
mod deployment;
mod doctor;
mod exit;
mod failure;
mod habits;
mod help;
mod hold;
mod init;
mod list;
mod live;
mod lock_args;
mod log;
mod logging;
mod man;
mod marks;
mod metrics;
mod paint;
mod panic;
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
mod time_left;
mod top;
mod values;
mod wait;
mod waiting;
mod wanted;
mod width;

/// Runs the program: parses the command line, does what it asks, and returns the exit code. Addresses on the
/// command line, in the environment and in the configuration file may be of any of these `kinds`.
///
/// Call it once, first thing in `main`: it installs the logger and the panic hook of the process, handles its
/// signals, and may start the program again with other arguments.
#[must_use]
pub fn main(kinds: Kinds) -> ExitCode {
    quorlock_servers::serve_if_asked();
    let mut interruption = None;
    let code = panic::contained(|| work(kinds, &mut interruption));
    stderr::finish();
    if let Some(interruption) = interruption {
        signals::die_of(interruption);
    }
    ExitCode::from(code)
}

/// Runs the verb and returns the exit code. If a key of the terminal ended it, so it is to end this process.
fn work(kinds: Kinds, interruption: &mut Option<Interruption>) -> u8 {
    let mut words = env::args_os().collect();
    let mut args = match habits::parse(&mut words) {
        Ok(args) => args,
        Err(answer) => return explain(&answer, &words),
    };
    args.deployment.kinds = kinds;
    report::choose(Report::to(args.wants_json(), args.quiet));
    logging::start(&args.logged());
    paint::choose(args.color);
    let quiet = args.quiet;
    let outcome = match args.verb {
        Verb::Run(run) => run::run(&run, args.deployment, args.quiet),
        Verb::Elect(elect) => run::elect(&elect, args.deployment, args.quiet),
        Verb::Hold(hold) => hold::hold(&hold, args.deployment, args.quiet),
        Verb::Wait(wait) => wait::wait(&wait, args.deployment, args.quiet),
        Verb::List(list) => list::list(&list, args.deployment, args.quiet),
        Verb::Top(top) => top::top(&top, args.deployment, args.quiet),
        Verb::Status(status) => status::status(&status, args.deployment),
        Verb::Log(log) => log::log(&log, args.deployment),
        Verb::Doctor(doctor) => doctor::doctor(&doctor, args.deployment, args.quiet),
        Verb::Init(init) => init::init(&init, args.deployment, args.quiet),
        Verb::Release(release) => release::release(&release, args.deployment),
        Verb::Bench(bench) => bench::bench(&bench, args.deployment, args.quiet),
        Verb::Demo(demo) => demo::demo(demo, &args.deployment.kinds),
        Verb::Completions(completions) => completions::completions(&completions, Args::command()),
        Verb::Man(man) => man::man(&man, Args::command()),
    };
    outcome.unwrap_or_else(|failure| {
        *interruption = failure.interruption();
        explain_failure(&failure, quiet)
    })
}

/// Prints the requested help, or what is wrong with the arguments.
fn explain(answer: &clap::Error, words: &[OsString]) -> u8 {
    // What it quotes of the words is among its own lines, so the same words are parsed again, escaped; and this
    // definition is laid out for the terminal.
    let words: Vec<_> = words.iter().map(|word| printable(&word.to_string_lossy()).to_string()).collect();
    let escaped = help::command().try_get_matches_from(&words).err().map(|mut escaped| {
        habits::advise(&mut escaped, &words);
        escaped
    });
    if answer.kind() == ErrorKind::DisplayHelp
        && let Some(problem) = habits::mistaken_for_help(&words)
    {
        if habits::asks_for_json(&words) {
            report::choose(Report::Json);
        }
        return explain_failure(&Failure::Usage(problem), false);
    }
    let shown = escaped.as_ref().unwrap_or(answer);
    if answer.use_stderr() && habits::asks_for_json(&words) {
        report::choose(Report::Json);
        return explain_failure(&Failure::Usage(sentence(&shown.to_string())), false);
    }
    // The reader may have gone.
    drop(shown.print());
    if answer.use_stderr() { exit::USAGE } else { exit::SUCCESS }
}

/// Returns what the parser says to people in one line, without how to ask for help.
fn sentence(text: &str) -> String {
    let lines = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let lines = lines.map(|line| line.trim().trim_start_matches("error: ")).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ").replace(" tip: ", "; tip: ")
}

fn explain_failure(failure: &Failure, quiet: bool) -> u8 {
    if failure.is_worth_saying(quiet) {
        let text = if report::is_json() {
            report::failure(failure)
        } else {
            format!("quorlock: {}\n", printable(&failure.full()))
        };
        stderr::say(text);
    }
    failure.code()
}
