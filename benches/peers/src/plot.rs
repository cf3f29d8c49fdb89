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
/// Room for the figure after the longest bar.
const MARGIN: f64 = 90.0;

/// Horizontal bars, longest where the figure is largest. On a logarithmic scale each decade has the
/// same length, which the subtitle says: the figures differ by a factor of a thousand.
pub(crate) fn bars(title: &str, unit: &str, bars: &[Bar]) -> String {
    let largest = bars.iter().map(|bar| bar.figure).fold(1.0, f64::max).log10();
    let smallest = bars.iter().map(|bar| bar.figure).filter(|figure| *figure > 0.0);
    let floor = smallest.fold(f64::INFINITY, f64::min).log10().min(largest - 1.0) - 0.3;
    let height = 56 + ROW * bars.len();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <title>{title}</title>\n\
         <style>text {{ fill: #24292f }} .small {{ fill: #57606a }} .other {{ fill: #8c959f }} .ours {{ fill: #0969da }}\n\
         @media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} .small {{ fill: #9198a1 }} \
         .other {{ fill: #656c76 }} .ours {{ fill: #4493f8 }} }}</style>\n\
         <text x=\"0\" y=\"18\" font-size=\"15\" font-weight=\"600\">{title}</text>\n\
         <text class=\"small\" x=\"0\" y=\"38\">{unit}, logarithmic scale</text>\n"
    );
    let mut top = 52;
    for Bar { label, figure, ours } in bars {
        let length = (figure.max(1e-9).log10() - floor) / (largest - floor) * (WIDTH - LABELS - MARGIN);
        let length = length.max(1.0);
        let class = if *ours { "ours" } else { "other" };
        let (text, behind) = (top + 14, LABELS + length + 6.0);
        let shown = super::report::number(*figure);
        // Writing to a string cannot fail.
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
