//! The command line.

use std::ops::Range;
use std::time::Duration;

use clap::Parser;
use quorlock_sim::{Kind, Options, Subject, Twist};

/// Simulates quorlock under faults, and checks that it keeps its promises.
///
/// The exit code is 0 only if all of them held.
#[derive(Debug, Parser)]
#[command(name = "quorlock-sim", version)]
pub(crate) struct Args {
    /// The seeds to run: FROM..TO, or a single one.
    #[arg(long, default_value = "0..100", value_parser = seeds)]
    pub(crate) seeds: Range<u64>,

    /// For how many simulated minutes things go wrong in each run.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,

    /// What may go wrong; everything that the library promises to survive unless given, or `none`.
    #[arg(long, value_parser = faults, value_name = "NAME,…")]
    faults: Option<Faults>,

    /// What is special about the run, such as a canary.
    #[arg(long, default_value = "none", value_parser = crate::twist)]
    twist: Twist,

    /// What the clients want: locks, semaphores or elections.
    #[arg(long, default_value = "locks", value_parser = subject)]
    of: Subject,

    /// At most so many clients.
    #[arg(long, value_name = "N")]
    clients: Option<usize>,

    /// Only these entries of the schedule.
    #[arg(long, value_parser = entries, value_name = "N,…")]
    keep: Option<Entries>,

    /// Print everything that happens.
    #[arg(long)]
    trace: bool,

    /// Do not make failed runs smaller.
    #[arg(long)]
    pub(crate) no_shrink: bool,

    /// Stop after so many failed seeds.
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub(crate) most_failures: u64,
}

// Types of their own, because clap takes a plain list for an option that is given several times.
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
            options.most_clients = clients;
        }
        options
    }
}

/// The command that runs `seed` with `options` again.
pub(crate) fn command(seed: u64, options: &Options) -> String {
    let mut command = format!("cargo run --release -p quorlock-sim -- --seeds {seed}");
    let mut add = |option: String| {
        command.push(' ');
        command.push_str(&option);
    };
    add(format!("--minutes {}", options.span.as_secs_f64() / 60.0));
    if options.subject != Subject::Locks {
        add(format!("--of {}", options.subject.name()));
    }
    if options.twist != Twist::None {
        add(format!("--twist {}", options.twist.name()));
    }
    if options.faults != Kind::PROMISED {
        let names: Vec<_> = options.faults.iter().map(|kind| kind.name()).collect();
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

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| "write FROM..TO, such as 0..1000".to_owned());
    match text.split_once("..") {
        Some((from, to)) => Ok(number(from)?..number(to)?),
        None => number(text).map(|seed| seed..seed + 1),
    }
}

fn subject(name: &str) -> Result<Subject, String> {
    let known = Subject::ALL.iter().find(|(known, _)| *known == name).map(|(_, subject)| *subject);
    known.ok_or_else(|| format!("known are {}", Subject::ALL.map(|(name, _)| name).join(", ")))
}

fn faults(text: &str) -> Result<Faults, String> {
    if text == "none" {
        return Ok(Faults::default());
    }
    let known = || Kind::ALL.map(|(name, _)| name).join(", ");
    text.split(',')
        .map(|name| Kind::named(name).ok_or_else(|| format!("`{name}` is none of {}", known())))
        .collect()
}

fn entries(text: &str) -> Result<Entries, String> {
    if text == "none" {
        return Ok(Entries::default());
    }
    text.split(',').map(|number| number.parse().map_err(|_| format!("`{number}` is no number"))).collect()
}
