//! Writes what has been measured into `docs/benchmarks.md`, between its marks, and draws the plots. What surrounds
//! the marks is written by hand.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::lineup::{BETWEEN_PROCESSES, FAR_AWAY, LOCKS, PROMISES, SYSTEMS, Subject};
use crate::measure::{CONTENDERS, Part, TASKS};
use crate::order::Work;
use crate::plot::{self, Bar};
use crate::processes::{DISTANCES, PROCESSES};
use crate::record::{Record, Row, Window};

/// What ends a measured part of the page.
const END: &str = "<!-- end -->";

/// Writes the parts of the page that have been measured.
pub(crate) fn write(records: &Path, docs: &Path) -> Result<()> {
    let of = |part: Part| Record::read(&records.join(part.name()).with_extension("json"));
    let page = docs.join("benchmarks.md");
    let mut text = fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
    let [cycles, contention, processes, distance, systems, promises] = Part::ALL.map(of);
    let (cycles, contention, processes) = (cycles?, contention?, processes?);
    let (distance, systems, promises) = (distance?, systems?, promises?);
    let records = [&cycles, &contention, &processes, &distance, &systems, &promises];
    for (name, part) in [
        ("ahead", where_others_are_ahead(&cycles, &contention, &processes, &distance)),
        ("locks", locks(&cycles, &contention, &systems)),
        ("processes", between_processes(&processes)),
        ("distance", far_away(&distance)),
        ("requests", requests(&promises)),
        ("run", run(&Part::ALL.into_iter().zip(records).collect::<Vec<_>>())),
    ] {
        text = with_part(&text, name, &part)?;
    }
    let plots = docs.join("benchmarks");
    fs::create_dir_all(&plots)?;
    for (file, svg) in plot_all(&cycles, &contention, &processes) {
        fs::write(plots.join(file).with_extension("svg"), svg)?;
    }
    Ok(fs::write(page, text)?)
}

/// Replaces what is between the mark of this name and the next end.
fn with_part(page: &str, name: &str, part: &str) -> Result<String> {
    let begin = format!("<!-- measured: {name} -->\n");
    let (before, rest) =
        page.split_once(begin.as_str()).with_context(|| format!("the page has no part {name}"))?;
    let (_, after) =
        rest.split_once(END).with_context(|| format!("the part {name} of the page has no end"))?;
    Ok(format!("{before}{begin}\n{part}\n{END}{after}"))
}

/// Lists where other subjects are faster.
fn where_others_are_ahead(
    cycles: &Record,
    contention: &Record,
    processes: &Record,
    distance: &Record,
) -> String {
    let mut lines = Vec::new();
    let mut compare = |what: String, others: Vec<(&str, f64)>| {
        let ours = others.first().map_or(f64::NAN, |(_, ours)| *ours);
        let own = |name: &str| name.starts_with("quorlock");
        let mut ahead: Vec<_> =
            others.into_iter().filter(|(name, rate)| !own(name) && *rate > ours * 1.005).collect();
        ahead.sort_by(|a, b| b.1.total_cmp(&a.1));
        let ahead: Vec<String> =
            ahead.into_iter().map(|(name, rate)| format!("{name} {}×", number(rate / ours))).collect();
        if !ahead.is_empty() {
            lines.push(format!("- {what}: {}\n", ahead.join("; ")));
        }
    };
    for tasks in TASKS {
        let rate = |name| median(cycles, name, (Work::Cycles, tasks, 0), Window::rate);
        compare(
            format!(
                "cycles per second of free locks, {}",
                if tasks == 1 { "1 task".to_owned() } else { format!("{tasks} tasks") }
            ),
            LOCKS.iter().map(|subject| (subject.name, rate(subject.name))).collect(),
        );
    }
    for (what, figure) in
        [("grants", Window::rate as fn(&Window) -> f64), ("changes of holder", Window::changes)]
    {
        let rate = |name| median(contention, name, (Work::Contend, CONTENDERS, 0), figure);
        compare(
            format!("{what} per second of one lock, {CONTENDERS} tasks of one process"),
            LOCKS.iter().map(|subject| (subject.name, rate(subject.name))).collect(),
        );
        for count in PROCESSES {
            let rate = |name| median(processes, name, (Work::Contend, count, 0), figure);
            compare(
                format!("{what} per second of one lock, {count} processes"),
                BETWEEN_PROCESSES.iter().map(|subject| (subject.name, rate(subject.name))).collect(),
            );
        }
        for (count, round_trip) in DISTANCES {
            let rate = |name| median(distance, name, (Work::Contend, count, round_trip), figure);
            compare(
                format!("{what} per second of one lock, {count} processes, {round_trip} ms away"),
                FAR_AWAY.iter().map(|subject| (subject.name, rate(subject.name))).collect(),
            );
        }
    }
    let list = if lines.is_empty() { "- nowhere in this run\n".to_owned() } else { lines.concat() };
    format!("Compared with quorlock's defaults, fencing included:\n\n{list}")
}

/// A figure of a subject, NaN where there is none.
type Figure<'a> = Box<dyn Fn(&str) -> f64 + 'a>;

/// All locks, and the systems below them, each beside quorlock in its own run.
fn locks(cycles: &Record, contention: &Record, systems: &Record) -> String {
    let head = head(&[
        "cycle p50, 1 task (µs)",
        "cycles/s, 64 tasks",
        "client's CPU, 64 tasks (s per 10k cycles)",
        "servers' CPU, 64 tasks",
        "changes of holder/s, one lock",
        "grants/s",
        "fairness (Jain)",
        "32 arrive: all have held (ms)",
    ]);
    let of_libraries: [Figure<'_>; 8] = [
        free(cycles, TASKS[0], Window::p50),
        free(cycles, TASKS[1], Window::rate),
        free(cycles, TASKS[1], Window::client_cpu),
        free(cycles, TASKS[1], Window::server_cpu),
        contended(contention, CONTENDERS, Window::changes),
        contended(contention, CONTENDERS, Window::rate),
        contended(contention, CONTENDERS, Window::fairness),
        figure(contention, (Work::Together, CONTENDERS, 0), Window::millis),
    ];
    let of_systems: [Figure<'_>; 8] = [
        free(systems, TASKS[0], Window::p50),
        free(systems, TASKS[1], Window::rate),
        none(),
        none(),
        contended(systems, CONTENDERS, Window::changes),
        contended(systems, CONTENDERS, Window::rate),
        contended(systems, CONTENDERS, Window::fairness),
        none(),
    ];
    let libraries = rows(contention, &LOCKS, LOCKS[0].name, &of_libraries);
    let systems = rows(systems, &SYSTEMS[1..], SYSTEMS[0].name, &of_systems);
    let overlaps = contention.rows.iter().flat_map(|row| &row.windows).map(|window| window.findings.overlaps);
    let overlaps: u64 = overlaps.sum();
    format!(
        "{head}{libraries}{systems}\n\
         Times that two clients held a lock simultaneously, over all subjects: {overlaps}.\n\n\
         ![Cycles per second at 64 tasks](benchmarks/cycles-64.svg)\n\n\
         ![Time until 32 that arrive together have held once](benchmarks/together.svg)\n"
    )
}

fn between_processes(record: &Record) -> String {
    let head = head(&[
        "changes of holder/s, 2 processes",
        "8",
        "32",
        "100",
        "grants/s, 2",
        "8",
        "32",
        "100",
        "fairness (Jain), 32",
        "never served, of 100 (%)",
        "commands a grant, 32",
        "client's CPU a grant (ms), 32",
    ]);
    let figures: [Figure<'_>; 12] = [
        contended(record, 2, Window::changes),
        contended(record, 8, Window::changes),
        contended(record, 32, Window::changes),
        contended(record, 100, Window::changes),
        contended(record, 2, Window::rate),
        contended(record, 8, Window::rate),
        contended(record, 32, Window::rate),
        contended(record, 100, Window::rate),
        contended(record, 32, Window::fairness),
        contended(record, 100, Window::unserved),
        contended(record, 32, Window::commands),
        contended(record, 32, Window::client_millis),
    ];
    let rows = plain_rows(record, &BETWEEN_PROCESSES, &figures);
    format!("{head}{rows}\n![Changes of holder per second, 32 processes](benchmarks/processes.svg)\n")
}

fn far_away(record: &Record) -> String {
    let title = |(count, round_trip): (usize, u64)| format!("{count} processes, {round_trip} ms");
    let titles = DISTANCES.map(title);
    let head = head(&titles.each_ref().map(String::as_str));
    let mut text = head;
    for Subject { name, .. } in FAR_AWAY.iter().filter(|subject| took_part(record, subject.name)) {
        let _ = write!(text, "| {name} |");
        for (count, round_trip) in DISTANCES {
            let of =
                |figure: fn(&Window) -> f64| median(record, name, (Work::Contend, count, round_trip), figure);
            let _ = write!(
                text,
                " {} ({}, {}) |",
                number(of(Window::changes)),
                number(of(Window::rate)),
                number(of(Window::fairness))
            );
        }
        text.push('\n');
    }
    text
}

/// What a cycle sends and makes the servers do.
fn requests(record: &Record) -> String {
    let mut text = head(&["commands a cycle", "bytes"]);
    for Subject { name, .. } in &PROMISES {
        if took_part(record, name) {
            let (commands, bytes) =
                (free(record, 1, Window::commands)(name), free(record, 1, Window::bytes)(name));
            let _ = writeln!(text, "| {name} | {} | {} |", number(commands), number(bytes));
        }
    }
    text
}

fn free(record: &Record, tasks: usize, of: fn(&Window) -> f64) -> Figure<'_> {
    figure(record, (Work::Cycles, tasks, 0), of)
}

fn contended(record: &Record, tasks: usize, of: fn(&Window) -> f64) -> Figure<'_> {
    figure(record, (Work::Contend, tasks, 0), of)
}

fn figure(record: &Record, key: (Work, usize, u64), of: fn(&Window) -> f64) -> Figure<'_> {
    Box::new(move |subject| median(record, subject, key, of))
}

fn none() -> Figure<'static> {
    Box::new(|_| f64::NAN)
}

fn took_part(record: &Record, subject: &str) -> bool {
    record.versions.iter().any(|(present, _)| present == subject)
}

fn head(columns: &[&str]) -> String {
    format!("| | {} |\n|---|{}\n", columns.join(" | "), "--:|".repeat(columns.len()))
}

/// A row for each subject that took part: the figures of the reference, and the ratios of the others to it.
fn rows(record: &Record, subjects: &[Subject], reference: &str, columns: &[Figure<'_>]) -> String {
    let mut text = String::new();
    for Subject { name, .. } in subjects {
        if !took_part(record, name) {
            continue;
        }
        let _ = write!(text, "| {name} |");
        for figure in columns {
            let (its, ours) = (figure(name), figure(reference));
            let cell = if *name == reference { format!("**{}**", number(its)) } else { ratio(its, ours) };
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    text
}

/// A row of figures for each subject that took part.
fn plain_rows(record: &Record, subjects: &[Subject], columns: &[Figure<'_>]) -> String {
    let mut text = String::new();
    for Subject { name, .. } in subjects.iter().filter(|subject| took_part(record, subject.name)) {
        let figures: Vec<String> = columns.iter().map(|figure| number(figure(name))).collect();
        let _ = writeln!(text, "| {name} | {} |", figures.join(" | "));
    }
    text
}

/// NaN where there is no such row, or no window of it.
fn median(record: &Record, subject: &str, key: (Work, usize, u64), figure: impl Fn(&Window) -> f64) -> f64 {
    record.row(subject, key).map_or(f64::NAN, |row: &Row| row.median(figure))
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

/// What ran, where, in which versions, and what did not.
fn run(all: &[(Part, &Record)]) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let records = || all.iter().map(|(_, record)| record);
    let commits: BTreeSet<&str> = records().map(|record| record.commit.as_str()).collect();
    let servers: BTreeSet<&str> = records().flat_map(|record| &record.servers).map(String::as_str).collect();
    let skipped: BTreeSet<String> = records()
        .flat_map(|record| &record.skipped)
        .map(|(subject, why)| format!("{subject}: {why}"))
        .collect();
    let mut versions: Vec<&str> = Vec::new();
    for version in records().flat_map(|record| &record.versions).flat_map(|(_, all)| all.split(", ")) {
        if !versions.contains(&version) {
            versions.push(version);
        }
    }
    let windows = all.iter().map(|(part, record)| {
        let windows = record.rows.first().map_or(0, |row| row.windows.len());
        format!("{}: {windows} of {} ms", part.name(), record.millis)
    });
    let mut text = format!(
        "| | |\n|---|---|\n| quorlock | commit {} |\n\
         | machine | {}, {cores} cores, shared by clients and servers; {} {}, {} |\n\
         | servers | {} |\n| windows | {} |\n| versions | {} |\n",
        joined(commits),
        model.unwrap_or("unknown"),
        read("/proc/sys/kernel/ostype").trim(),
        read("/proc/sys/kernel/osrelease").trim().split('-').next().unwrap_or_default(),
        std::env::consts::ARCH,
        joined(servers),
        windows.collect::<Vec<_>>().join("; "),
        versions.join(", "),
    );
    if !skipped.is_empty() {
        let skipped = skipped.into_iter().collect::<Vec<_>>().join("; ");
        let _ = writeln!(text, "| not measured | {skipped} |");
    }
    text
}

fn joined(words: BTreeSet<&str>) -> String {
    words.into_iter().collect::<Vec<_>>().join("; ")
}

fn plot_all(cycles: &Record, contention: &Record, processes: &Record) -> [(&'static str, String); 3] {
    [
        (
            "cycles-64",
            bars(
                "A free lock, 64 tasks",
                "cycles per second, more is better",
                &LOCKS,
                &free(cycles, TASKS[1], Window::rate),
            ),
        ),
        (
            "together",
            bars(
                "32 arrive together",
                "ms until all have held once, less is better",
                &LOCKS,
                &figure(contention, (Work::Together, CONTENDERS, 0), Window::millis),
            ),
        ),
        (
            "processes",
            bars(
                "One lock, 32 processes",
                "changes of holder per second, more is better",
                &BETWEEN_PROCESSES,
                &contended(processes, 32, Window::changes),
            ),
        ),
    ]
}

/// Bars of all subjects that have the figure, the best first.
fn bars(title: &str, unit: &str, subjects: &[Subject], figure: &Figure<'_>) -> String {
    let mut bars: Vec<Bar> = subjects
        .iter()
        .map(|subject| Bar {
            label: subject.name.to_owned(),
            figure: figure(subject.name),
            ours: subject.name.contains("quorlock"),
        })
        .filter(|bar| bar.figure.is_finite())
        .collect();
    bars.sort_by(|a, b| b.figure.total_cmp(&a.figure));
    if unit.ends_with("less is better") {
        bars.reverse();
    }
    plot::bars(title, unit, &bars)
}
