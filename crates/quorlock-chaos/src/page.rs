//! One HTML page that shows what runs came to. It needs nothing but itself: no network, no fonts.
//!
//! All that a verdict rests on is written here, in Rust, and is there without JavaScript. The script
//! draws the timelines, from the outcome's JSON that the page carries.

mod overview;
mod scenario;
mod text;

use crate::outcome::Outcome;

/// In one piece, so that it is strict throughout.
const SCRIPT: &str = concat!(
    include_str!("page/page.js"),
    include_str!("page/timeline.js"),
    include_str!("page/legend.js"),
    include_str!("page/marks.js"),
    include_str!("page/lanes.js"),
);

/// The page for these outcomes, in their order.
pub(crate) fn page(outcomes: &[Outcome]) -> String {
    let scenarios: String =
        outcomes.iter().zip(1..).map(|(outcome, number)| scenario::section(outcome, number)).collect();
    fill(
        include_str!("page/page.html"),
        &[
            ("title", &overview::title(outcomes)),
            ("style", include_str!("page/page.css")),
            ("overview", &overview::overview(outcomes)),
            ("scenarios", &scenarios),
            ("script", SCRIPT),
        ],
    )
}

/// Puts each field where the template says `{{its name}}`. It looks at the template only once, so that
/// nothing in a field can ask for another field.
fn fill(template: &str, fields: &[(&str, &str)]) -> String {
    let mut pieces = template.split("{{");
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once("}}").unwrap_or(("", piece));
        let value = fields.iter().find(|(field, _)| *field == name).map_or("", |(_, value)| value);
        filled.push_str(value);
        filled.push_str(rest);
    }
    filled
}

#[cfg(test)]
mod browser;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
