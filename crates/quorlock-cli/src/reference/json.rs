//! The fields of JSON output, which the page lists by hand, below the files that print them. A test compares the
//! names with those in the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use regex::Regex;

/// Returns the section as it stands in the page.
pub(super) fn section(page: &str) -> &str {
    let begins = page.find("\n## JSON output\n").expect("the page has the section");
    let length = page[begins..].find("\n## Metrics\n").expect("another one follows it");
    &page[begins..begins + length]
}

#[test]
fn the_reference_lists_the_json_fields_of_the_code() {
    let key = Regex::new(r#""([a-z0-9_]+)"(?::\s|\.to_owned\(\),\s*json!)"#).unwrap();
    let event = Regex::new(r#""event": "([a-z_]+)""#).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let names = |file: &str, pattern: &Regex| -> BTreeSet<String> {
        let code = fs::read_to_string(source.join(file)).unwrap();
        let code = code.split("#[cfg(test)]").next().unwrap();
        pattern.captures_iter(code).map(|found| found[1].to_owned()).collect()
    };
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(super::PAGE)).unwrap();
    let mut listed: BTreeMap<&str, [BTreeSet<String>; 2]> = BTreeMap::new();
    for part in section(&page).split("\n### ").skip(1) {
        let [fields, events] = names_in(part);
        let files = part.split_once("<!-- src/").and_then(|(_, rest)| rest.split_once(" -->"));
        let (files, _) = files.unwrap_or_else(|| panic!("no file prints {part}"));
        let files: Vec<&str> = files.split(", src/").collect();
        let printed = files.iter().flat_map(|file| names(file, &key)).collect();
        let unknown: Vec<_> = fields.difference(&printed).collect();
        assert!(unknown.is_empty(), "{files:?} print no {unknown:?}");
        for file in files {
            let of_file = listed.entry(file).or_default();
            of_file[0].extend(fields.clone());
            of_file[1].extend(events.clone());
        }
    }
    for path in super::events::files(&source) {
        let file = path.strip_prefix(&source).unwrap().to_str().unwrap();
        if fs::read_to_string(&path).unwrap().contains("json!(") {
            let [fields, events] = listed.remove(file).unwrap_or_default();
            let missing: Vec<_> = names(file, &key).difference(&fields).cloned().collect();
            assert!(missing.is_empty(), "fields of src/{file} that are not listed: {missing:?}");
            let missing: Vec<_> = names(file, &event).difference(&events).cloned().collect();
            assert!(missing.is_empty(), "events of src/{file} that are not listed: {missing:?}");
        }
    }
}

/// Returns the fields in the table, and the events.
fn names_in(table: &str) -> [BTreeSet<String>; 2] {
    let (mut fields, mut events) = (BTreeSet::new(), BTreeSet::new());
    let has_events = table.contains("| event |");
    for row in table.lines().filter(|line| line.contains(" | `") || line.starts_with("| `")) {
        let mut cells = row.split('|').skip(1).map(|cell| cell.replace('`', ""));
        if has_events {
            events.extend(cells.next().unwrap().split(", ").map(|event| event.trim().to_owned()));
        }
        let field = cells.next().unwrap();
        fields.extend(field.trim().split('.').map(|name| name.trim_end_matches("[]").to_owned()));
    }
    fields.extend(has_events.then(|| "event".to_owned()));
    [fields, events]
}
