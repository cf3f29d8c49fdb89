//! Versions of the measured software.

/// `rslock 0.10.0`, as this program was built.
pub(crate) fn of_crate(name: &str) -> String {
    format!("{name} {}", version(include_str!("../Cargo.lock"), name).unwrap_or("of unknown version"))
}

/// The newest, if the lock file has several: the older ones are dependencies of other crates.
fn version<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    lock.split("[[package]]")
        .filter(|package| field(package, "name") == Some(name))
        .filter_map(|package| field(package, "version"))
        .last()
}

fn field<'a>(package: &'a str, field: &str) -> Option<&'a str> {
    package.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(" = \"")?.strip_suffix('"'))
}
