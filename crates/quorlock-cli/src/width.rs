//! Line widths.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Row, Table};
use rustix::termios::tcgetwinsize;

/// Returns the columns of `stream`, if it is a terminal that reports them.
pub(crate) fn of(stream: impl AsFd + IsTerminal) -> Option<usize> {
    let size = if stream.is_terminal() { tcgetwinsize(stream).ok() } else { None };
    size.map(|size| usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// Wraps `text` to lines of at most `width` characters, between words if possible.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let letters: Vec<char> = word.chars().collect();
        for part in letters.chunks(width.max(1)) {
            let line = lines.last_mut().filter(|line| line.chars().count() + 1 + part.len() <= width);
            match line {
                Some(line) => {
                    line.push(' ');
                    line.extend(part);
                }
                None => lines.push(part.iter().collect()),
            }
        }
    }
    lines
}

/// Returns a table without rows, some columns of which are on the right, in lines of at most `width` if given.
pub(crate) fn table(headings: impl Into<Row>, right: &[usize], width: Option<usize>) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(headings);
    for column in right {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    if let Some(width) = width {
        let width = u16::try_from(width).unwrap_or(u16::MAX);
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    table
}

/// Wraps or cuts other columns than these only, if they leave room: a broken address or number cannot be copied.
pub(crate) fn keep_whole(table: &mut Table, width: Option<usize>, columns: &[usize]) {
    const LEAST_FOR_WORDS: usize = 16;
    const BETWEEN: usize = 2;
    let Some(width) = width else { return };
    let widths = table.column_max_content_widths();
    let taken: usize =
        columns.iter().filter_map(|column| widths.get(*column)).map(|width| usize::from(*width)).sum();
    if taken + BETWEEN * widths.len() + LEAST_FOR_WORDS > width {
        return;
    }
    for column in columns {
        if let Some(column) = table.column_mut(*column) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wider_than_asked_for() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("one", 7), ["one"]);
        assert_eq!(wrapped("unbreakable", 4), ["unbr", "eaka", "ble"]);
    }
}
