//! Writes what has been measured: tables, plots, and the parts of `docs/benchmarks.md` between its marks. What surrounds
//! the marks is written by hand.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::figures::Window;
use crate::order::Work;
use crate::run::Row;
use crate::scenarios::{Column, Figure, Scenario};

/// Replaces what is between the mark of this name and the next end.
pub(crate) fn replace(page: &Path, name: &str, part: &str) -> Result<()> {
    let text = fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let begin = format!("<!-- measured: {name} -->\n");
    let (before, rest) = text.split_once(&begin).with_context(|| format!("the page has no part {name}"))?;
    let (_, after) =
        rest.split_once("<!-- end -->").with_context(|| format!("the part {name} of the page has no end"))?;
    Ok(fs::write(page, format!("{before}{begin}\n{part}\n<!-- end -->{after}"))?)
}

/// The median of the windows of a step; NaN without any.
fn median(row: &Row, step: usize, figure: Figure) -> f64 {
    let mut figures: Vec<f64> = row.windows[step].iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A row for each subject: its figures, or their ratios to those of the first one.
pub(crate) fn table(scenario: &Scenario, rows: &[Row]) -> String {
    let heads: Vec<&str> = scenario.columns.iter().map(|column| column.head).collect();
    let mut text = format!("| | {} |\n|---|{}\n", heads.join(" | "), "--:|".repeat(heads.len()));
    for (place, row) in rows.iter().enumerate() {
        let cell = |Column { step, figures, .. }: &Column| {
            let of = |row, figure| median(row, *step, figure);
            let shown: Vec<String> = figures.iter().map(|figure| number(of(row, *figure))).collect();
            match (scenario.ratios, place, &shown[..]) {
                (true, 0, [only]) => format!("**{only}**"),
                (true, _, _) => times(of(row, figures[0]) / of(&rows[0], figures[0])),
                (_, _, [only]) => only.clone(),
                (_, _, [first, others @ ..]) => format!("{first} ({})", others.join(", ")),
                (_, _, []) => String::new(),
            }
        };
        let cells: Vec<String> = scenario.columns.iter().map(cell).collect();
        let _ = writeln!(text, "| {} | {} |", row.subject.name, cells.join(" | "));
    }
    if scenario.steps.iter().any(|step| step.work == Work::Contend && step.processes == 1) {
        let windows = rows.iter().flat_map(|row| row.windows.iter().flatten());
        let overlaps: u64 = windows.map(|window| window.findings.overlaps).sum();
        let _ = write!(
            text,
            "\nTimes that two clients held a lock simultaneously, over all subjects: {overlaps}.\n"
        );
    }
    text
}

/// Lists where others are faster than quorlock.
pub(crate) fn ahead(scenario: &Scenario, rows: &[Row]) -> String {
    let mut lines = String::new();
    let cycles: &[(&str, Figure)] = &[("cycles per second of free locks", Window::rate)];
    let contended: &[(&str, Figure)] = &[
        ("grants per second of one lock", Window::rate),
        ("changes of holder per second of one lock", Window::changes),
    ];
    for (number, step) in scenario.steps.iter().enumerate() {
        let figures = match step.work {
            Work::Cycles => cycles,
            Work::Contend => contended,
            Work::Together => continue,
        };
        for (what, figure) in figures {
            let ratio = |row| median(row, number, *figure) / median(&rows[0], number, *figure);
            let others = rows.iter().filter(|row| !row.subject.name.starts_with("quorlock"));
            let mut others: Vec<_> = others.map(|row| (row.subject.name, ratio(row))).collect();
            others.retain(|(_, ratio)| *ratio > 1.005 && ratio.is_finite());
            others.sort_by(|a, b| b.1.total_cmp(&a.1));
            let others: Vec<String> =
                others.into_iter().map(|(name, ratio)| format!("{name} {}", times(ratio))).collect();
            if !others.is_empty() {
                let _ = writeln!(lines, "- {what}, {}: {}", step.title(), others.join("; "));
            }
        }
    }
    lines
}

/// Three digits that count, with commas between the thousands.
fn number(figure: f64) -> String {
    if figure.is_nan() {
        return "–".to_owned();
    }
    if figure < 100.0 {
        return format!("{figure:.*}", if figure < 10.0 { 2 } else { 1 });
    }
    let digits = format!("{figure:.0}");
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap_or_default()).collect();
    groups.join(",")
}

fn times(ratio: f64) -> String {
    if ratio.is_finite() { format!("{}×", number(ratio)) } else { "–".to_owned() }
}

/// What ran, where, in which versions, and what did not.
pub(crate) fn conditions(servers: &[String], versions: &[String], skipped: &BTreeSet<String>) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let described = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let commit = described.map(|ended| String::from_utf8_lossy(&ended.stdout).trim().to_owned());
    let mut text = format!(
        "| | |\n|---|---|\n| quorlock | commit {} |\n| machine | {}, {cores} cores, shared by clients and servers; {} {}, {} \
         |\n| servers | {} |\n| versions | {} |\n",
        commit.unwrap_or_default(),
        model.map_or("unknown", |(_, model)| model),
        read("/proc/sys/kernel/ostype").trim(),
        read("/proc/sys/kernel/osrelease").trim().split('-').next().unwrap_or_default(),
        std::env::consts::ARCH,
        servers.join("; "),
        versions.join(", "),
    );
    if !skipped.is_empty() {
        let skipped: Vec<&str> = skipped.iter().map(String::as_str).collect();
        let _ = writeln!(text, "| not measured | {} |", skipped.join("; "));
    }
    text
}

/// Draws the columns that are drawn: the file of each, and bars from zero, the longest first.
pub(crate) fn plots(scenario: &Scenario, rows: &[Row]) -> Vec<(&'static str, String)> {
    const STYLE: &str = "text { fill: #24292f } .other { fill: #8c959f } .ours { fill: #0969da } .paper { fill: #ffffff }\n\
        @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .other { fill: #656c76 } .ours { fill: #4493f8 } .paper \
        { fill: #0d1117 } }";
    let plot = |column: &Column| {
        let [file, title] = column.plot?;
        let bars = rows.iter().map(|row| (row.subject.name, median(row, column.step, column.figures[0])));
        let mut bars: Vec<_> = bars.filter(|(_, figure)| figure.is_finite()).collect();
        bars.sort_by(|a, b| b.1.total_cmp(&a.1));
        let (longest, height) = (bars.first().map_or(1.0, |bar| bar.1), 50 + 26 * bars.len());
        // Paper behind all of it, since the page may not follow the reader's preference of colours.
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"788\" height=\"{height}\" role=\"img\" font-family=\"system-ui, \
             sans-serif\" font-size=\"13\">\n<title>{title}</title>\n<style>{STYLE}</style>\n<rect class=\"paper\" width=\"788\" \
             height=\"{height}\" rx=\"6\"/>\n<text x=\"14\" y=\"24\" font-size=\"15\" font-weight=\"600\">{title}</text>\n"
        );
        for (place, (name, figure)) in bars.iter().enumerate() {
            let (top, length) = (40 + 26 * place, (figure / longest * 420.0).max(1.0));
            let (text, behind, figure) = (top + 14, 276.0 + length, number(*figure));
            let class = if name.contains("quorlock") { "ours" } else { "other" };
            let _ = writeln!(
                svg,
                "<text x=\"262\" y=\"{text}\" text-anchor=\"end\">{name}</text><rect class=\"{class}\" x=\"270\" y=\"{top}\" \
                 width=\"{length:.1}\" height=\"18\" rx=\"2\"/><text x=\"{behind:.1}\" y=\"{text}\">{figure}</text>"
            );
        }
        Some((file, svg + "</svg>\n"))
    };
    scenario.columns.iter().filter_map(plot).collect()
}
