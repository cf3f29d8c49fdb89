//! `quorlock-model`: runs the cases and prints the results.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;
use quorlock::runtime::{Entropy, SystemEntropy};
use quorlock_model::case::{Case, Expected, Size};
use quorlock_model::cases;
use quorlock_model::explore::Report;

/// Check the rules of quorlock in every order of events within bounds
///
/// Exits with 0 only if every case had its expected result: what should hold held in every state,
/// and each rule broken on purpose was detected.
#[derive(Parser)]
#[command(name = "quorlock-model", version, about)]
struct Args {
    /// The cases to run
    #[arg(value_enum, default_value = "quick")]
    which: Size,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// List the cases without running them
    #[arg(long)]
    list: bool,
    /// The seed of the random walks; random by default
    #[arg(long)]
    seed: Option<u64>,
    /// Print each violation step by step
    #[arg(long)]
    steps: bool,
}

/// The exit code if a case had an unexpected result, or one that cannot be printed.
const UNEXPECTED: u8 = 1;

/// The exit code if no case has the name, as for an invalid option.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    check(&Args::parse()).unwrap_or_else(|error| {
        // The reader of the output may be gone.
        if error.kind() != io::ErrorKind::BrokenPipe {
            eprintln!("quorlock-model: cannot print the results: {error}");
        }
        ExitCode::from(UNEXPECTED)
    })
}

fn check(args: &Args) -> io::Result<ExitCode> {
    let mut out = io::stdout();
    let mut cases = cases();
    cases.retain(|case| (case.size <= args.which || args.list) && case.name.contains(&args.only));
    if cases.is_empty() {
        eprintln!("no case of this size has {:?} in its name: `quorlock-model --list` shows all", args.only);
        return Ok(ExitCode::from(USAGE));
    }
    if args.list {
        for case in &cases {
            writeln!(out, "{:<8} {}", size(case), case.name)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let seed = args.seed.unwrap_or_else(|| SystemEntropy::default().next_u64());
    let mut unexpected = 0;
    for case in &cases {
        let report = (case.run)(seed);
        if !case.is_as_expected(&report) {
            unexpected += 1;
        }
        print(&mut out, case, &report, args.steps)?;
    }
    writeln!(out, "{} of {} cases as expected, seed {seed}", cases.len() - unexpected, cases.len())?;
    Ok(if unexpected == 0 { ExitCode::SUCCESS } else { ExitCode::from(UNEXPECTED) })
}

fn size(case: &Case) -> &'static str {
    match case.size {
        Size::Quick => "quick",
        Size::Nightly => "nightly",
    }
}

fn print(out: &mut impl io::Write, case: &Case, report: &Report, steps: bool) -> io::Result<()> {
    let is_as_expected = case.is_as_expected(report);
    let verdict = match (&report.broken, report.missing.as_slice()) {
        (Some(_), _) => "violated",
        (None, []) => "holds",
        (None, _) => "empty",
    };
    let judgement = if is_as_expected { "ok" } else { "UNEXPECTED" };
    let seconds = report.took.as_secs_f64();
    writeln!(out, "{judgement:<10} {verdict:<8} {seconds:7.1} s  {:<76} {}", case.name, report.seen)?;
    if let Some(story) = report.broken.as_ref().filter(|_| steps || case.expected == Expected::Holds) {
        writeln!(out, "{story}")?;
    }
    if case.expected == Expected::Holds {
        for property in &report.missing {
            writeln!(out, "never met: {property}")?;
        }
    }
    Ok(())
}
