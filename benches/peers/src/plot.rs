//! Bar charts, as SVG that is readable on light and dark backgrounds.

use std::fmt::Write;

pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) figure: f64,
    /// The reference, drawn in its own colour.
    pub(crate) ours: bool,
}

const ROW: usize = 26;
const LABELS: f64 = 250.0;
const WIDTH: f64 = 760.0;
/// Paper around all of it, which has a colour of its own: that of the page may not follow the reader's preference.
const EDGE: usize = 14;
const PAPER_WIDTH: usize = 760 + 2 * EDGE;
/// Room for the figure after the longest bar.
const MARGIN: f64 = 90.0;

/// Where the first bar begins, below the numbers of the axis.
const TOP: usize = 62;

/// Horizontal bars from zero, as long as their figures, over an axis with ticks.
pub(crate) fn bars(title: &str, unit: &str, bars: &[Bar]) -> String {
    let largest = bars.iter().map(|bar| bar.figure).fold(1e-9, f64::max);
    let length = |figure: f64| (figure / largest * (WIDTH - LABELS - MARGIN)).max(1.0);
    let height = TOP + 4 + ROW * bars.len();
    let paper_height = height + 2 * EDGE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-{EDGE} -{EDGE} {PAPER_WIDTH} {paper_height}\" \
         width=\"{PAPER_WIDTH}\" height=\"{paper_height}\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <title>{title}</title>\n\
         <style>text {{ fill: #24292f }} .small {{ fill: #57606a }} .other {{ fill: #8c959f }} .ours {{ fill: #0969da }} \
         .tick {{ stroke: #d0d7de }} .paper {{ fill: #ffffff }}\n\
         @media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} .small {{ fill: #9198a1 }} \
         .other {{ fill: #656c76 }} .ours {{ fill: #4493f8 }} .tick {{ stroke: #30363d }} .paper {{ fill: #0d1117 }} }}</style>\n\
         <rect class=\"paper\" x=\"-{EDGE}\" y=\"-{EDGE}\" width=\"{PAPER_WIDTH}\" height=\"{paper_height}\" rx=\"6\"/>\n\
         <text x=\"0\" y=\"18\" font-size=\"15\" font-weight=\"600\">{title}</text>\n\
         <text class=\"small\" x=\"0\" y=\"38\">{unit}</text>\n"
    );
    for tick in ticks(largest) {
        let x = LABELS + tick / largest * (WIDTH - LABELS - MARGIN);
        let shown = if tick == 0.0 { "0".to_owned() } else { super::report::number(tick) };
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<text class=\"small\" x=\"{x:.1}\" y=\"52\" text-anchor=\"middle\" font-size=\"11\">{shown}</text>\
             <line class=\"tick\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"56\" y2=\"{height}\"/>"
        );
    }
    let mut top = TOP;
    for Bar { label, figure, ours } in bars {
        let length = length(*figure);
        let class = if *ours { "ours" } else { "other" };
        let (text, behind) = (top + 14, LABELS + length + 6.0);
        let shown = super::report::number(*figure);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\">{label}</text>\
             <rect class=\"{class}\" x=\"{LABELS}\" y=\"{top}\" width=\"{length:.1}\" height=\"18\" rx=\"2\"/>\
             <text class=\"small\" x=\"{behind:.1}\" y=\"{text}\">{shown}</text>",
            LABELS - 8.0
        );
        top += ROW;
    }
    svg.push_str("</svg>\n");
    svg
}

/// Four to ten round numbers from zero to `largest`.
fn ticks(largest: f64) -> Vec<f64> {
    let decade = 10_f64.powf(largest.log10().floor());
    let step = [0.1, 0.2, 0.25, 0.5, 1.0, 2.0].map(|step| step * decade);
    let step = step.into_iter().find(|step| largest / step < 6.0).unwrap_or(decade);
    std::iter::successors(Some(0.0), |tick| Some(tick + step)).take_while(|tick| *tick <= largest).collect()
}
