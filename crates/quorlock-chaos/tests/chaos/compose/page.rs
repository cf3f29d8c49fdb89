//! The tables of faults in `compose/README.md`.

use std::fs;

use super::{Outcome, folder};

/// Returns the first cell of each row.
pub(crate) fn faults() -> Outcome<Vec<String>> {
    let page = fs::read_to_string(folder().join("README.md"))?;
    let (_, section) = page.split_once("\n## Break it\n").ok_or("a section `Break it`")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.filter_map(|row| row.split(" | ").next().map(str::to_owned));
    Ok(cells.filter(|cell| cell != "do").collect())
}
