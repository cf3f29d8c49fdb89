//! Each lock that `docs/comparison.md` compares has its source.

const PAGE: &str = include_str!("../../docs/comparison.md");

#[test]
fn every_lock_has_its_source() {
    let section = PAGE.split("\n## ").find(|section| section.starts_with("Side by side")).unwrap();
    let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| ")).collect();
    // The heading, quorlock, and the others.
    assert!(rows.len() > 20, "{} were found", rows.len());
    assert!(rows[1].starts_with("| **quorlock** |"), "{}", rows[1]);
    for row in &rows[2..] {
        let lock = row.split(" | ").next().unwrap();
        assert!(lock.contains("](https://"), "no source for {lock}");
    }
}
