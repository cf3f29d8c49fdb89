//! The command line.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use quorlock_sim::{Kind, Options, Subject, Twist, name_of};

/// Simulates quorlock under faults and checks its guarantees.
///
/// The exit code is 0 only if no guarantee was violated.
#[derive(Debug, Parser)]
#[command(name = "quorlock-sim", version)]
pub(crate) struct Args {
    /// The seeds to run: FROM..TO, or a single one.
    #[arg(long, default_value = "0..100", value_parser = seeds)]
    pub(crate) seeds: RangeInclusive<u64>,

    /// How many simulated minutes of faults each run has.
    #[arg(long, default_value = "1", value_parser = minutes)]
    minutes: f64,

    /// The kinds of faults, or `none`. Default: every kind the library is designed to tolerate.
    #[arg(long, value_parser = faults, value_name = "NAME,…")]
    faults: Option<Faults>,

    /// A variation of the run, such as a canary (a deliberately broken protection).
    #[arg(long, value_enum, default_value = "none")]
    twist: Twist,

    /// What the clients want: locks, semaphores or elections.
    #[arg(long, value_enum, default_value = "locks")]
    of: Subject,

    /// The maximum number of clients.
    #[arg(long, value_name = "N")]
    clients: Option<NonZeroUsize>,

    /// Keep only these entries of the fault schedule.
    #[arg(long, value_parser = entries, value_name = "N,…")]
    keep: Option<Entries>,

    /// Print every event.
    #[arg(long)]
    trace: bool,

    /// Do not shrink failed runs.
    #[arg(long)]
    pub(crate) no_shrink: bool,

    /// Stop after this many failed seeds.
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub(crate) most_failures: u64,
}

// Separate types, because clap treats a plain list as an option that may be repeated.
type Faults = std::sync::Arc<[Kind]>;
type Entries = std::sync::Arc<[usize]>;

impl Args {
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::default();
        options.span = Duration::from_secs_f64(self.minutes.clamp(0.0, 1e6) * 60.0);
        options.twist = self.twist;
        options.subject = self.of;
        options.trace = self.trace;
        options.kept = self.keep.as_deref().map(<[usize]>::to_vec);
        if let Some(faults) = &self.faults {
            options.faults = faults.to_vec();
        }
        if let Some(clients) = self.clients {
            options.most_clients = clients.get();
        }
        options
    }
}

/// Returns the command that repeats `seed` with `options`.
pub(crate) fn command(seed: u64, options: &Options) -> String {
    let mut command = format!("cargo run --release -p quorlock-sim -- --seeds {seed}");
    let mut add = |option: String| {
        command.push(' ');
        command.push_str(&option);
    };
    add(format!("--minutes {}", options.span.as_secs_f64() / 60.0));
    if options.subject != Subject::Locks {
        add(format!("--of {}", name_of(&options.subject)));
    }
    if options.twist != Twist::None {
        add(format!("--twist {}", name_of(&options.twist)));
    }
    if options.faults != Kind::PROMISED {
        let names: Vec<_> = options.faults.iter().map(name_of).collect();
        add(format!("--faults {}", if names.is_empty() { "none".to_owned() } else { names.join(",") }));
    }
    if options.most_clients != usize::MAX {
        add(format!("--clients {}", options.most_clients));
    }
    if let Some(kept) = &options.kept {
        let numbers: Vec<_> = kept.iter().map(ToString::to_string).collect();
        add(format!("--keep {}", if numbers.is_empty() { "none".to_owned() } else { numbers.join(",") }));
    }
    command
}

fn minutes(text: &str) -> Result<f64, String> {
    let finite = text.parse::<f64>().ok().filter(|minutes| minutes.is_finite() && *minutes >= 0.0);
    finite.ok_or_else(|| "write a number such as 0.5".to_owned())
}

fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| "write FROM..TO, such as 0..1000".to_owned());
    match text.split_once("..") {
        Some((from, to)) => {
            let (from, to) = (number(from)?, number(to)?);
            let last = to.checked_sub(1).filter(|last| from <= *last);
            last.map(|last| from..=last).ok_or_else(|| format!("no seed is in {text}"))
        }
        None => number(text).map(|seed| seed..=seed),
    }
}

fn faults(text: &str) -> Result<Faults, String> {
    if text == "none" {
        return Ok(Faults::default());
    }
    let known = || Kind::value_variants().iter().map(name_of).collect::<Vec<_>>().join(", ");
    let unknown = |name| format!("unknown fault `{name}`, expected one of: {}", known());
    text.split(',').map(|name| Kind::from_str(name, false).map_err(|_| unknown(name))).collect()
}

fn entries(text: &str) -> Result<Entries, String> {
    if text == "none" {
        return Ok(Entries::default());
    }
    text.split(',').map(|number| number.parse().map_err(|_| format!("`{number}` is not a number"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_that_would_simulate_nothing_are_refused() {
        assert_eq!(seeds("7"), Ok(7..=7));
        assert_eq!(seeds("0..100"), Ok(0..=99));
        assert_eq!(seeds(&u64::MAX.to_string()), Ok(u64::MAX..=u64::MAX));
        for nothing in ["5..5", "100..0", "0..0"] {
            assert!(seeds(nothing).is_err_and(|error| error.contains(nothing)), "{nothing}");
        }
    }
}
