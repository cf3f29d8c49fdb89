//! Writes `docs/benchmarks.md` with its plots, and `docs/costs.md`, from what has been measured.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::lineup::{BETWEEN_PROCESSES, LOCKS, PROMISES, SYSTEMS, Subject};
use crate::measure::{CONTENDERS, Part, TASKS};
use crate::order::Work;
use crate::plot::{self, Bar};
use crate::record::{Record, Row, Window};

mod words;

/// Those of the [promises](PROMISES) that lock on five servers.
const FIVE_SERVERS: usize = 6;

/// Writes the pages whose parts have been measured.
pub(crate) fn write(records: &Path, docs: &Path) -> Result<()> {
    let of = |part: Part| Record::read(&records.join(part.name()).with_extension("json"));
    let promises = of(Part::Promises);
    if let Ok(record) = &promises {
        fs::write(docs.join("costs.md"), costs(record))?;
    }
    let parts = [of(Part::Cycles), of(Part::Contention), of(Part::Processes), of(Part::Systems)];
    if promises.is_ok() && parts.iter().all(Result::is_err) {
        return Ok(());
    }
    let [cycles, contention, processes, systems] = parts;
    let (cycles, contention, processes, systems) = (cycles?, contention?, processes?, systems?);
    let all = [
        (Part::Cycles, &cycles),
        (Part::Contention, &contention),
        (Part::Processes, &processes),
        (Part::Systems, &systems),
    ];
    let text = [
        words::HEAD.to_owned(),
        words::where_others_are_ahead(&cycles, &contention, &processes),
        machine(&all),
        free_locks(&cycles),
        one_lock(&contention),
        between_processes(&processes),
        other_systems(&systems),
        words::what_this_says(&cycles, &contention, &processes, &systems),
        skipped(&all),
        words::HOW.to_owned(),
        versions(&all),
    ];
    let plots = docs.join("benchmarks");
    fs::create_dir_all(&plots)?;
    for (file, svg) in plot_all(&cycles, &contention, &processes, &systems) {
        fs::write(plots.join(file).with_extension("svg"), svg)?;
    }
    Ok(fs::write(docs.join("benchmarks.md"), joined(text))?)
}

/// Joins the sections that are not empty.
fn joined<const N: usize>(sections: [String; N]) -> String {
    let sections: Vec<String> = sections.into_iter().filter(|section| !section.is_empty()).collect();
    sections.join("\n")
}

fn free_locks(record: &Record) -> String {
    let one =
        |figure: fn(&Window) -> f64| move |subject: &str| median(record, subject, Work::Cycles, 1, figure);
    let most = |figure: fn(&Window) -> f64| {
        move |subject: &str| median(record, subject, Work::Cycles, TASKS[2], figure)
    };
    let rate = |tasks| move |subject: &str| median(record, subject, Work::Cycles, tasks, Window::rate);
    let table = Table::new(
        record,
        &LOCKS,
        &[
            ("cycle p50, 1 task (µs)", Box::new(one(Window::p50))),
            ("p99 (µs)", Box::new(one(Window::p99))),
            ("cycles/s, 1 task", Box::new(rate(TASKS[0]))),
            ("cycles/s, 16 tasks", Box::new(rate(TASKS[1]))),
            ("cycles/s, 64 tasks", Box::new(rate(TASKS[2]))),
            ("client CPU s per 10k cycles, 1 task", Box::new(one(Window::client_cpu))),
            ("client CPU s per 10k cycles, 64 tasks", Box::new(most(Window::client_cpu))),
            ("servers' CPU s per 10k cycles, 64 tasks", Box::new(most(Window::server_cpu))),
        ],
    );
    format!(
        "## A free lock\n\nA cycle is one acquisition and one release; each task has a lock of its own. In parentheses: \
         the ratio to quorlock.\n\n{table}\n\
         ![Cycles per second at 64 tasks](benchmarks/cycles-64.svg)\n\n\
         ![Median time of a cycle at one task](benchmarks/cycle-p50.svg)\n"
    )
}

/// A page of its own: what each promise costs.
fn costs(record: &Record) -> String {
    let all = [(Part::Promises, record)];
    let one =
        |figure: fn(&Window) -> f64| move |subject: &str| median(record, subject, Work::Cycles, 1, figure);
    let rate = |tasks| move |subject: &str| median(record, subject, Work::Cycles, tasks, Window::rate);
    let most = |figure: fn(&Window) -> f64| {
        move |subject: &str| median(record, subject, Work::Cycles, TASKS[2], figure)
    };
    let columns = || -> Vec<(&str, Figure<'_>)> {
        vec![
            ("commands a cycle", Box::new(one(Window::commands))),
            ("bytes", Box::new(one(Window::bytes))),
            ("p50, 1 task (µs)", Box::new(one(Window::p50))),
            ("cycles/s, 1 task", Box::new(rate(TASKS[0]))),
            ("cycles/s, 16 tasks", Box::new(rate(TASKS[1]))),
            ("cycles/s, 64 tasks", Box::new(rate(TASKS[2]))),
            ("client CPU s per 10k cycles, 64 tasks", Box::new(most(Window::client_cpu))),
            ("servers' CPU s per 10k cycles, 64 tasks", Box::new(most(Window::server_cpu))),
        ]
    };
    let (five, one_server) = PROMISES.split_at(FIVE_SERVERS);
    let (five, one_server) =
        (Table::new(record, five, &columns()), Table::new(record, one_server, &columns()));
    let tables = format!("## Five servers\n\n{five}\n## One server\n\n{one_server}");
    joined([words::COSTS.to_owned(), tables, machine(&all), skipped(&all), versions(&all)])
}

fn one_lock(record: &Record) -> String {
    let of = |figure: fn(&Window) -> f64| {
        move |subject: &str| median(record, subject, Work::Contend, CONTENDERS, figure)
    };
    let together =
        |subject: &str| median(record, subject, Work::Together, CONTENDERS, Window::micros) / 1000.0;
    let table = Table::new(
        record,
        &LOCKS,
        &[
            ("grants/s", Box::new(of(Window::rate))),
            ("hand-over p50 (µs)", Box::new(of(Window::p50))),
            ("p99 (µs)", Box::new(of(Window::p99))),
            ("commands per grant", Box::new(of(Window::commands))),
            ("fairness (Jain)", Box::new(of(Window::fairness))),
            ("32 arrive together: all have held once (ms)", Box::new(together)),
        ],
    );
    let overlaps = record.rows.iter().flat_map(|row| &row.windows).map(|window| window.findings.overlaps);
    let overlaps: u64 = overlaps.sum();
    format!(
        "## A contended lock\n\n{CONTENDERS} tasks of one process, holds of 1 ms. A hand-over is the time from the end of \
         one hold, before its release, to the beginning of the next. Fairness is 1 if all tasks had the same number of \
         grants, and 1/{CONTENDERS} if one had all. Commands are those that the servers carried out, including those \
         inside scripts.\n\n{table}\n\
         Two clients held the lock at the same time: {overlaps} times, over all subjects.\n\n\
         ![Grants per second](benchmarks/grants.svg)\n\n\
         ![Time until 32 that arrive together have held once](benchmarks/together.svg)\n"
    )
}

fn between_processes(record: &Record) -> String {
    let of = |processes, distance, figure: fn(&Window) -> f64| {
        move |subject: &str| of_processes(record, subject, processes, distance, figure)
    };
    let millis = |processes| {
        move |subject: &str| of_processes(record, subject, processes, 0, Window::client_cpu) / 10.0
    };
    let near = Table::new(
        record,
        &BETWEEN_PROCESSES,
        &[
            ("grants/s, 2 processes", Box::new(of(2, 0, Window::rate))),
            ("8", Box::new(of(8, 0, Window::rate))),
            ("32", Box::new(of(32, 0, Window::rate))),
            ("100", Box::new(of(100, 0, Window::rate))),
            ("grants/s, 8 processes, 20 ms", Box::new(of(8, 20, Window::rate))),
            ("32 processes, 20 ms", Box::new(of(32, 20, Window::rate))),
            ("8 processes, 100 ms", Box::new(of(8, 100, Window::rate))),
        ],
    );
    let cost = Table::new(
        record,
        &BETWEEN_PROCESSES,
        &[
            ("commands per grant, 2 processes", Box::new(of(2, 0, Window::commands))),
            ("8", Box::new(of(8, 0, Window::commands))),
            ("32", Box::new(of(32, 0, Window::commands))),
            ("100", Box::new(of(100, 0, Window::commands))),
            ("client CPU ms per grant, 2 processes", Box::new(millis(2))),
            ("32", Box::new(millis(32))),
            ("100", Box::new(millis(100))),
            ("fairness (Jain), 32 processes", Box::new(of(32, 0, Window::fairness))),
            ("100", Box::new(of(100, 0, Window::fairness))),
        ],
    );
    format!(
        "## Contention between processes\n\nProcesses with one task each, which ask again immediately; holds of \
         1 ms; a new name in each window. The servers are on loopback, or farther away by the round trip in the column. \
         With distant servers there is one window, four times as long.\n\n{near}\n\
         Costs, on loopback:\n\n{cost}\n\
         ![Grants per second, 32 processes](benchmarks/processes.svg)\n"
    )
}

/// NaN where there is no such row.
fn of_processes(
    record: &Record,
    subject: &str,
    processes: usize,
    distance: u64,
    figure: impl Fn(&Window) -> f64,
) -> f64 {
    record.row_of_processes(subject, processes, distance).map_or(f64::NAN, |row| row.median(figure))
}

fn other_systems(record: &Record) -> String {
    let rate = |tasks| move |subject: &str| median(record, subject, Work::Cycles, tasks, Window::rate);
    let contended = |figure: fn(&Window) -> f64| {
        move |subject: &str| median(record, subject, Work::Contend, CONTENDERS, figure)
    };
    let table = Table::new(
        record,
        &SYSTEMS,
        &[
            (
                "cycle p50, 1 task (µs)",
                Box::new(|subject| median(record, subject, Work::Cycles, 1, Window::p50)),
            ),
            ("cycles/s, 1 task", Box::new(rate(TASKS[0]))),
            ("cycles/s, 16 tasks", Box::new(rate(TASKS[1]))),
            ("cycles/s, 64 tasks", Box::new(rate(TASKS[2]))),
            ("grants/s, 32 tasks on one lock", Box::new(contended(Window::rate))),
            ("hand-over p50 (µs)", Box::new(contended(Window::p50))),
        ],
    );
    format!(
        "## Other lock systems\n\n{table}\n![Cycles per second of lock systems](benchmarks/systems.svg)\n"
    )
}

type Figure<'a> = Box<dyn Fn(&str) -> f64 + 'a>;

/// A row for each subject that took part, a column for each figure; the first subject is the measure.
struct Table {
    text: String,
}

impl Table {
    fn new(record: &Record, subjects: &[Subject], columns: &[(&str, Figure<'_>)]) -> Table {
        let mut text = String::from("| |");
        for (title, _) in columns {
            let _ = write!(text, " {title} |");
        }
        text.push_str("\n|---|");
        text.push_str(&"--:|".repeat(columns.len()));
        text.push('\n');
        let reference = subjects.first().map_or("", |subject| subject.name);
        for Subject { name, .. } in subjects {
            if !record.versions.iter().any(|(present, _)| present == name) {
                continue;
            }
            let _ = write!(text, "| {name} |");
            for (_, figure) in columns {
                let (its, ours) = (figure(name), figure(reference));
                if *name == reference {
                    let _ = write!(text, " **{}** |", number(its));
                } else if its.is_nan() {
                    text.push_str(" – |");
                } else {
                    let _ = write!(text, " {} ({}) |", number(its), ratio(its, ours));
                }
            }
            text.push('\n');
        }
        Table { text }
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// NaN where there is no such row.
fn median(record: &Record, subject: &str, work: Work, tasks: usize, figure: impl Fn(&Window) -> f64) -> f64 {
    record.row(subject, work, tasks).map_or(f64::NAN, |row: &Row| row.median(figure))
}

/// Three digits that count, with commas between the thousands.
pub(crate) fn number(figure: f64) -> String {
    if figure.is_nan() {
        return "–".to_owned();
    }
    if figure < 10.0 {
        return format!("{figure:.2}");
    }
    if figure < 100.0 {
        return format!("{figure:.1}");
    }
    let digits = format!("{figure:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn ratio(its: f64, ours: f64) -> String {
    let ratio = its / ours;
    if ratio.is_finite() { format!("{}×", number(ratio)) } else { "–".to_owned() }
}

fn machine(all: &[(Part, &Record)]) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let servers: BTreeSet<&str> =
        all.iter().flat_map(|(_, record)| &record.servers).map(String::as_str).collect();
    let commits: BTreeSet<&str> = all.iter().map(|(_, record)| record.commit.as_str()).collect();
    let dates: BTreeSet<&str> = all.iter().map(|(_, record)| record.date.as_str()).collect();
    let mut text = format!(
        "## Machine\n\n| | |\n|---|---|\n| quorlock | commit {} |\n| parts ended | {} to {} |\n| processor | {}, {cores} cores, shared by clients and servers |\n\
         | system | {} {}, {} |\n",
        commits.into_iter().collect::<Vec<_>>().join(", "),
        dates.first().unwrap_or(&""),
        dates.last().unwrap_or(&""),
        model.unwrap_or("unknown"),
        read("/proc/sys/kernel/ostype").trim(),
        read("/proc/sys/kernel/osrelease").trim().split('-').next().unwrap_or_default(),
        std::env::consts::ARCH,
    );
    for server in servers {
        let _ = writeln!(text, "| servers | {server} |");
    }
    for (part, record) in all {
        let windows = record.rows.first().map_or(0, |row| row.windows.len());
        let _ = writeln!(text, "| {} | medians of {windows} windows of {} ms |", part.name(), record.millis);
    }
    text
}

/// A row for each version, with all subjects of that version.
fn versions(all: &[(Part, &Record)]) -> String {
    let mut rows: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut seen = BTreeSet::new();
    for (subject, version) in all.iter().flat_map(|(_, record)| &record.versions) {
        if !seen.insert(subject) {
            continue;
        }
        let (subject, version) = (subject.as_str(), version.as_str());
        match rows.iter_mut().find(|(of, _)| *of == version) {
            Some((_, subjects)) => subjects.push(subject),
            None => rows.push((version, vec![subject])),
        }
    }
    let mut text = String::from("## Versions\n\n| subjects | version |\n|---|---|\n");
    for (version, subjects) in rows {
        let _ = writeln!(text, "| {} | {version} |", subjects.join("; "));
    }
    text
}

fn skipped(all: &[(Part, &Record)]) -> String {
    let lines: BTreeSet<String> = all
        .iter()
        .flat_map(|(_, record)| &record.skipped)
        .map(|(who, why)| format!("- {who}: {why}\n"))
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    format!("## Skipped\n\n{}", lines.into_iter().collect::<String>())
}

fn plot_all(
    cycles: &Record,
    contention: &Record,
    processes: &Record,
    systems: &Record,
) -> Vec<(&'static str, String)> {
    let fence_hint =
        |title, unit: &str, record, subjects: &[Subject], figure: &dyn Fn(&Record, &str) -> f64| {
            let mut bars: Vec<Bar> = subjects
                .iter()
                .map(|subject| Bar {
                    label: subject.name.to_owned(),
                    figure: figure(record, subject.name),
                    ours: subject.name.contains("quorlock"),
                })
                .filter(|bar| bar.figure.is_finite())
                .collect();
            bars.sort_by(|a, b| b.figure.total_cmp(&a.figure));
            // The best first.
            if unit.ends_with("less is better") {
                bars.reverse();
            }
            plot::bars(title, unit, &bars)
        };
    let rate_at_most =
        |record: &Record, subject: &str| median(record, subject, Work::Cycles, TASKS[2], Window::rate);
    vec![
        (
            "cycles-64",
            fence_hint(
                "A free lock, 64 tasks",
                "cycles per second, more is better",
                cycles,
                &LOCKS,
                &rate_at_most,
            ),
        ),
        (
            "cycle-p50",
            fence_hint(
                "A free lock, one task",
                "median of a cycle in µs, less is better",
                cycles,
                &LOCKS,
                &|record, subject| median(record, subject, Work::Cycles, 1, Window::p50),
            ),
        ),
        (
            "grants",
            fence_hint(
                "One lock, 32 tasks",
                "grants per second, more is better",
                contention,
                &LOCKS,
                &|record, subject| median(record, subject, Work::Contend, CONTENDERS, Window::rate),
            ),
        ),
        (
            "together",
            fence_hint(
                "32 arrive together",
                "ms until all have held once, less is better",
                contention,
                &LOCKS,
                &|record, subject| {
                    median(record, subject, Work::Together, CONTENDERS, Window::micros) / 1000.0
                },
            ),
        ),
        (
            "processes",
            fence_hint(
                "One lock, 32 processes",
                "grants per second, more is better",
                processes,
                &BETWEEN_PROCESSES,
                &|record, subject| of_processes(record, subject, 32, 0, Window::rate),
            ),
        ),
        (
            "systems",
            fence_hint(
                "Lock systems, 64 tasks",
                "cycles per second, more is better",
                systems,
                &SYSTEMS,
                &rate_at_most,
            ),
        ),
    ]
}
