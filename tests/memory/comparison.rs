//! The claims about speed in `docs/comparison.md` match the measurements in `docs/benchmarks.md`.

const PAGE: &str = include_str!("../../docs/comparison.md");
const MEASURED: &str = include_str!("../../docs/benchmarks.md");

/// The cells of the tables under a heading, or of the one table whose header begins with `first`.
fn table<'a>(page: &'a str, heading: &str, first: &str) -> Vec<Vec<&'a str>> {
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let head = format!("| {first}").trim_end().to_owned() + " |";
    let lines = section.lines().skip_while(|line| !line.starts_with(&head));
    let rows = lines.take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The figure at the beginning of a cell: `**3,338**` or `1,871 (6.63×)`.
fn figure(cell: &str) -> f64 {
    let figure = cell.trim_matches('*').split(' ').next().unwrap().replace(',', "");
    figure.parse().unwrap_or_else(|_| panic!("`{cell}` begins with no figure"))
}

/// The word for a figure compared with ours, where `theirs` is the factor by which it is better.
fn word(times: f64) -> &'static str {
    match times {
        much if much >= 3.0 => "much faster",
        more if more > 1.1 => "faster",
        same if same >= 1.0 / 1.1 => "about the same",
        less if less > 1.0 / 3.0 => "slower",
        _ => "much slower",
    }
}

/// A measured column: its heading, its name, and whether a larger figure is better.
type Column<'a> = (&'a str, &'a str, bool);

fn check(first: &str, ours: &str, columns: &[Column<'_>; 3]) -> usize {
    let rows = table(PAGE, "Measured", first);
    let mut wrong = Vec::new();
    for row in &rows[2..] {
        for (index, (heading, column, more_is_better)) in columns.iter().enumerate() {
            let measured = table(MEASURED, heading, "");
            let at = measured[0].iter().position(|name| name == column).unwrap();
            let of = |name: &str| {
                let row = measured.iter().find(|row| row[0] == name);
                figure(row.unwrap_or_else(|| panic!("`{name}` was not measured"))[at])
            };
            let times = if *more_is_better { of(row[0]) / of(ours) } else { of(ours) / of(row[0]) };
            if word(times) != row[index + 1] {
                wrong.push(format!(
                    "{}, {column}: {} (the page says {})",
                    row[0],
                    word(times),
                    row[index + 1]
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "docs/benchmarks.md says otherwise:\n{}", wrong.join("\n"));
    rows.len() - 2
}

#[test]
fn claims_of_speed_are_true() {
    const FREE: &str = "A free lock";
    const SYSTEMS: &str = "Other lock systems";
    let libraries = check(
        "compared with quorlock",
        "quorlock",
        &[
            (FREE, "cycle p50, 1 task (µs)", false),
            (FREE, "cycles/s, 64 tasks", true),
            ("A contended lock", "32 arrive together: all have held once (ms)", false),
        ],
    );
    let systems = check(
        "compared with quorlock on five servers",
        "five Redis, in memory, quorlock",
        &[
            (SYSTEMS, "cycle p50, 1 task (µs)", false),
            (SYSTEMS, "cycles/s, 64 tasks", true),
            (SYSTEMS, "hand-over p50 (µs)", false),
        ],
    );
    assert_eq!((libraries, systems), (10, 5));
}

#[test]
fn every_lock_is_in_each_table_with_its_source() {
    let failing = table(PAGE, "Servers that fail", "lock");
    let plain = |cell: &str| cell.replace(['[', '*'], "").split("](").next().unwrap().to_owned();
    // `[etcd](…)` and `etcd` are the same lock, and so are `[a](…) with [b](…)` and `a with b`.
    let name = |cell: &str| {
        let parts = cell.split('[').map(|part| match part.split_once("](") {
            Some((text, rest)) => text.to_owned() + rest.split_once(')').unwrap().1,
            None => part.to_owned(),
        });
        plain(&parts.collect::<String>())
    };
    let names: Vec<String> = failing[2..].iter().map(|row| name(row[0])).collect();
    assert!(names.len() > 18, "{} were found", names.len());
    for row in &failing[3..] {
        assert!(row[0].contains("](https://"), "no source for {}", row[0]);
    }
    for heading in ["Holders that fail", "Waiters and cancelled"] {
        let others: Vec<String> = table(PAGE, heading, "lock")[2..].iter().map(|row| name(row[0])).collect();
        assert_eq!(others, names, "{heading}");
    }
}
