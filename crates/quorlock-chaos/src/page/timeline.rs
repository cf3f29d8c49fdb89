//! The picture of a timeline: a lane for the latency of uncontended locks, and one for each node and worker.

use std::fmt::Write as _;

use quorlock_history::Ending;

use super::escaped;
use crate::figures::span;
use crate::outcome::{FaultSpan, Outcome};

const WIDTH: f64 = 1200.0;
/// Of the names of lanes.
const GUTTER: f64 = 130.0;
const LANE: f64 = 24.0;
const LATENCY: f64 = 90.0;
const TOP: f64 = 30.0;
const FAULT: &str = "#e69f00";
const BAD: &str = "#b5122b";
const INK: &str = "#1c1e21";
/// Colours of locks, distinguishable for colour-blind readers.
const LOCKS: [&str; 8] =
    ["#0072b2", "#009e73", "#aa4499", "#56b4e9", "#6a51a3", "#7a7a00", "#666666", "#44aa99"];

struct Picture {
    svg: String,
    /// Microseconds.
    end: f64,
}

#[expect(clippy::cast_precision_loss, reason = "a pixel is longer than what is lost")]
fn float(micros: u64) -> f64 {
    micros as f64
}

impl Picture {
    fn x(&self, micros: u64) -> f64 {
        GUTTER + (WIDTH - GUTTER) * (float(micros) / self.end).min(1.0)
    }

    fn bar(&mut self, (from, until): (u64, u64), y: f64, height: f64, fill: &str, title: &str) {
        let (x, width) = (self.x(from), (self.x(until) - self.x(from)).max(1.0));
        let title =
            if title.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(title)) };
        let _ = write!(
            self.svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\">{title}</rect>"
        );
    }

    /// A small triangle that points down, at this moment.
    fn mark(&mut self, at: u64, y: f64, fill: &str, title: &str) {
        let (x, title) = (self.x(at), escaped(title));
        let _ = write!(
            self.svg,
            "<path d=\"M{:.1} {y:.1}h8l-4 8z\" fill=\"{fill}\"><title>{title}</title></path>",
            x - 4.0
        );
    }

    fn text(&mut self, x: f64, y: f64, text: &str) {
        let _ = write!(self.svg, "<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(text));
    }

    fn faults<'a>(&mut self, faults: impl Iterator<Item = &'a FaultSpan>, y: f64) {
        for FaultSpan { kind, name, from_micros, until_micros, .. } in faults {
            let took = span(until_micros.saturating_sub(*from_micros));
            let title = format!("{kind}: {name}, {took}");
            self.bar((*from_micros, *until_micros), y + 1.0, LANE - 4.0, FAULT, &title);
        }
    }

    /// The middle half of the latencies of each period, on a logarithmic scale, and in red the share that failed.
    fn latency(&mut self, outcome: &Outcome, y: f64) {
        let (bins, each) = (&outcome.timeline.bins, outcome.timeline.bin_micros);
        let longest = bins.iter().map(|bin| bin.p99_micros).max().unwrap_or(0).max(10);
        let height = |micros: u64| (LATENCY - 8.0) * float(micros.max(1)).ln() / float(longest).ln();
        self.text(0.0, y + 12.0, "latency");
        self.text(0.0, y + 26.0, &format!("to {}", span(longest)));
        for (from, bin) in (0..).map(|number| number * each).zip(bins) {
            if bin.acquired > 0 {
                let (low, high) = (height(bin.p50_micros), height(bin.p99_micros));
                self.bar((from, from + each), y + LATENCY - high, (high - low).max(1.0), "#33404d", "");
            }
            if bin.acquired < bin.tried {
                let failed = float(bin.tried - bin.acquired) / float(bin.tried) * LATENCY;
                self.bar((from, from + each), y + LATENCY - failed, failed, BAD, "");
            }
        }
    }

    fn worker(&mut self, outcome: &Outcome, worker: usize, y: f64) {
        let timeline = &outcome.timeline;
        let rows = timeline.resources.len().clamp(1, LOCKS.len());
        let height = (LANE - 4.0) / float(rows as u64);
        for hold in timeline.holds.iter().filter(|hold| hold.worker == worker) {
            let row = hold.resource % rows;
            let top = y + 1.0 + height * float(row as u64);
            let fill = LOCKS.get(row).copied().unwrap_or(INK);
            self.bar((hold.from_micros, hold.until_micros), top, height, fill, "");
            if hold.ending != Ending::Released {
                let title = format!("{:?}", hold.ending);
                self.mark(hold.until_micros, y + 6.0, INK, &title);
            }
        }
        for write in timeline.writes.iter().filter(|write| write.worker == worker) {
            let (fill, how) = if write.refused { (INK, "refused") } else { (BAD, "NOT refused") };
            self.mark(write.at_micros, y + 6.0, fill, &format!("a late write, {how}"));
        }
    }
}

/// The end of the run: a fault that never healed must not compress it.
fn end_of(outcome: &Outcome) -> u64 {
    let holds = outcome.timeline.holds.iter().map(|hold| hold.until_micros);
    let violations = outcome.violations.iter().filter_map(|broken| broken.at_micros);
    let last = holds.chain(violations).filter(|at| *at <= 2 * outcome.duration_micros).max();
    last.unwrap_or(0).max(outcome.duration_micros).max(1)
}

/// Returns the picture as SVG.
pub(super) fn picture(outcome: &Outcome) -> String {
    let end = end_of(outcome);
    let mut picture = Picture { svg: String::new(), end: float(end) };
    let mut y = TOP;
    picture.latency(outcome, y);
    y += LATENCY + 8.0;
    for (number, name) in outcome.nodes.iter().enumerate() {
        picture.text(0.0, y + 15.0, name);
        picture.faults(outcome.faults.iter().filter(|fault| fault.nodes.contains(&number)), y);
        y += LANE;
    }
    let elsewhere = |fault: &&FaultSpan| fault.nodes.is_empty() && fault.workers.is_empty();
    if outcome.faults.iter().any(|fault| elsewhere(&fault)) {
        picture.text(0.0, y + 15.0, "elsewhere");
        picture.faults(outcome.faults.iter().filter(elsewhere), y);
        y += LANE;
    }
    for (number, name) in outcome.workers.iter().enumerate() {
        picture.text(0.0, y + 15.0, name);
        picture.faults(outcome.faults.iter().filter(|fault| fault.workers.contains(&number)), y);
        picture.worker(outcome, number, y);
        y += LANE;
    }
    for broken in &outcome.violations {
        let Some(at) = broken.at_micros else { continue };
        let fill = if broken.expected { "#5a6068" } else { BAD };
        picture.bar((at, at), TOP, y - TOP, fill, "");
        picture.mark(at, TOP - 9.0, fill, &format!("{}: {}", broken.check, broken.text));
    }
    for tenth in 0..=10 {
        let at = end / 10 * tenth;
        let x = picture.x(at).min(WIDTH - 50.0);
        picture.text(x, 14.0, &span(at));
    }
    let legend: String =
        outcome.timeline.resources.iter().zip(LOCKS).fold(String::new(), |legend, (name, colour)| {
            format!("{legend}<tspan fill=\"{colour}\">\u{25a0} </tspan>{}  ", escaped(name))
        });
    let _ = write!(
        picture.svg,
        "<text x=\"{GUTTER}\" y=\"{:.1}\" xml:space=\"preserve\"><tspan fill=\"{FAULT}\">\u{25a0} </tspan>fault  {legend}</text>",
        y + 18.0
    );
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" font-family=\"system-ui, \
         sans-serif\" font-size=\"12\"><title>Timeline of {}</title><rect width=\"100%\" height=\"100%\" fill=\"#fcfcfa\"/>{}</svg>",
        y + 28.0,
        escaped(&outcome.scenario),
        picture.svg
    )
}
