//! `docs/interoperability.md` lists the versions that are tested.

use std::fs;
use std::path::Path;

use crate::library::libraries;

#[test]
fn the_page_names_every_library_with_version_and_prefix() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/interoperability.md");
    let page = fs::read_to_string(page).unwrap();
    for library in libraries() {
        let begins = format!("| {} {} |", library.name, library.version);
        let row = page.lines().find(|line| line.starts_with(&begins));
        let row = row.unwrap_or_else(|| panic!("no row begins with `{begins}`"));
        let prefix = format!("`{}` before", library.prefix);
        assert_eq!(row.contains(&prefix), !library.prefix.is_empty(), "{row}");
    }
}
