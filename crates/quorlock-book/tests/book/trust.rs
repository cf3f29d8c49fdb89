//! Checks that the tests and scenarios that `docs/trust.md` names exist.

use std::fs;

use quorlock_book::block::spans;
use quorlock_book::page::{page, root};

#[test]
fn every_test_of_a_broken_assumption_exists() {
    let mut count = 0;
    for span in spans(&page("docs/trust.md").unwrap().text) {
        let parts: Vec<&str> = span.text.split("::").collect();
        let (file, what) = match parts.as_slice() {
            ["model", file, test] => {
                (format!("crates/quorlock-model/tests/model/{file}.rs"), format!("fn {test}()"))
            }
            ["sim", file, test] => {
                (format!("crates/quorlock-sim/tests/sim/{file}.rs"), format!("fn {test}()"))
            }
            // The others are tests, which `tests/memory/rivals/promises.rs` looks for.
            ["chaos", scenario] if scenario.starts_with("violation-") => {
                (format!("crates/quorlock-chaos/scenarios/{scenario}.toml"), "violations = [\"".to_owned())
            }
            _ => continue,
        };
        let text = fs::read_to_string(root().join(&file)).unwrap_or_default();
        assert!(text.contains(&what), "line {} of docs/trust.md: {file} has no `{what}`", span.line);
        count += 1;
    }
    assert!(count > 15, "{count} were found");
}
