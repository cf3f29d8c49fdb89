//! The HTML page: a static page that contains the outcomes as JSON, and needs no network and no fonts.
//!
//! Its script builds the tables and timelines from the JSON.

use crate::outcome::Outcome;

const STYLE: &str = include_str!("page/page.css");
/// One script, so that all of it is strict.
const SCRIPT: &str = concat!(
    include_str!("page/base.js"),
    include_str!("page/tables.js"),
    include_str!("page/timeline.js"),
    include_str!("page/legend.js"),
    include_str!("page/marks.js"),
    include_str!("page/lanes.js"),
    include_str!("page/page.js"),
);

/// Returns the page for these outcomes, in their order.
pub(crate) fn page(outcomes: &[Outcome]) -> serde_json::Result<String> {
    // `<` could end the element that contains the JSON. It occurs only in strings.
    let json = serde_json::to_string(outcomes)?.replace('<', "\\u003c");
    let page = include_str!("page/page.html").replace("{{style}}", STYLE).replace("{{script}}", SCRIPT);
    // Last, so that nothing in the outcomes is replaced.
    Ok(page.replace("{{outcomes}}", &json))
}

#[cfg(test)]
mod browser;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
