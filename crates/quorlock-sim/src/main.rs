//! `quorlock-sim`: runs the simulation with many seeds, and shrinks those that fail.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use quorlock_sim::{Counts, Kind, Options, Outcome, name_of, run, shrink};
use rustix::time::{ClockId, clock_gettime};

use crate::args::Args;

mod args;

fn main() -> ExitCode {
    simulate(&Args::parse()).unwrap_or_else(|error| {
        // The reader of the output may be gone.
        if error.kind() != io::ErrorKind::BrokenPipe {
            eprintln!("quorlock-sim: no verdict: {error}");
        }
        ExitCode::FAILURE
    })
}

fn simulate(args: &Args) -> io::Result<ExitCode> {
    let options = args.options();
    let mut out = io::stdout();
    let mut totals = Totals::default();
    let mut failed = 0;
    for seed in args.seeds.clone() {
        let outcome = run(seed, &options);
        totals.add(&outcome);
        if options.trace {
            writeln!(out, "seed {seed}: trace {:016x}", outcome.trace)?;
        }
        if outcome.entries == 0 && options.kept.as_ref().is_some_and(|kept| !kept.is_empty()) {
            return Err(io::Error::other(format!("no entry of --keep is in the schedule of seed {seed}")));
        }
        if outcome.finding.is_some() {
            failed += 1;
            clear_progress();
            report(seed, &options, outcome, !args.no_shrink)?;
            if failed >= args.most_failures {
                break;
            }
        }
        totals.show_progress(seed);
    }
    clear_progress();
    writeln!(out, "{}", totals.summary())?;
    if failed == 0 {
        writeln!(out, "no violations")?;
        Ok(ExitCode::SUCCESS)
    } else {
        writeln!(out, "{failed} of {} seeds found a violation", totals.seeds)?;
        Ok(ExitCode::FAILURE)
    }
}

fn report(seed: u64, options: &Options, outcome: Outcome, wants_less: bool) -> io::Result<()> {
    let print = |options: &Options, outcome: &Outcome| {
        let mut out = io::stdout();
        if let Some(finding) = &outcome.finding {
            writeln!(out, "  {finding}")?;
        }
        writeln!(out, "  replay: {}", args::command(seed, options))
    };
    writeln!(io::stdout(), "seed {seed}:")?;
    print(options, &outcome)?;
    if wants_less {
        let (smaller, outcome) = shrink(seed, options, outcome);
        let faults = smaller.kept.as_ref().map_or(outcome.entries, Vec::len);
        writeln!(io::stdout(), "  shrunk to {} clients and {faults} faults:", outcome.clients)?;
        print(&smaller, &outcome)?;
    }
    Ok(())
}

/// The sum over all runs.
#[derive(Default)]
struct Totals {
    seeds: u64,
    simulated: Duration,
    counts: Counts,
    faults: BTreeMap<Kind, u64>,
}

impl Totals {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.simulated += outcome.simulated;
        self.counts += outcome.counts;
        for (kind, times) in &outcome.faults {
            *self.faults.entry(*kind).or_default() += times;
        }
    }

    fn show_progress(&self, seed: u64) {
        if io::stderr().is_terminal() && self.seeds.is_multiple_of(10) {
            let hours = self.simulated.as_secs_f64() / 3600.0;
            eprint!("\rseed {seed}: {hours:.1} simulated hours, {} grants", self.counts.granted);
            drop(io::stderr().flush());
        }
    }

    fn summary(&self) -> String {
        let hours = self.simulated.as_secs_f64() / 3600.0;
        let (used, counts) = (cpu_time().as_secs_f64(), self.counts);
        let faults: Vec<_> =
            self.faults.iter().map(|(kind, times)| format!("{} {times}", name_of(kind))).collect();
        format!(
            "{} seeds, {hours:.2} simulated hours in {used:.1} s of CPU time: {:.0} hours in an hour, {:.1} ms a minute\n\
             {} asked ({} for a differing number of permits), {} granted ({} to readers, {} downgraded, {} of several), {} observed, {} contended, {} unavailable, {} given up, {} lost, {} checks\n\
             faults: {}",
            self.seeds,
            hours * 3600.0 / used,
            used * 1000.0 / (hours * 60.0),
            counts.asked,
            counts.differing,
            counts.granted,
            counts.shared,
            counts.downgraded,
            counts.several,
            counts.observed,
            counts.contended,
            counts.unavailable,
            counts.given_up,
            counts.lost,
            counts.checks,
            if faults.is_empty() { "none".to_owned() } else { faults.join(", ") },
        )
    }
}

fn clear_progress() {
    if io::stderr().is_terminal() {
        eprint!("\r{:70}\r", "");
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
