//! The few commands that are not carried out here, each with the reason.

use crate::script::Step;

/// A command that is left out.
pub(crate) struct Exception {
    pub(crate) page: &'static str,
    pub(crate) begins: &'static str,
    #[expect(dead_code, reason = "for people")]
    why: &'static str,
}

impl Exception {
    pub(crate) fn is_of(&self, step: &Step) -> bool {
        matches!(step, Step::Command { text, .. } if text.starts_with(self.begins))
    }
}

const fn except(page: &'static str, begins: &'static str, why: &'static str) -> Exception {
    Exception { page, begins, why }
}

pub(crate) const EXCEPTIONS: &[Exception] = &[
    except("README.md", "scripts/check", "it is what runs this test"),
    except("README.md", "examples/fenced_postgres.sh", "it wants a database; tests/examples.rs runs it"),
    except(
        "docs/safety.md",
        "cargo run --release --bin quorlock-chaos",
        "finds for sure what it is to find only in its full time, of which the tests have none",
    ),
    except("docs/tutorial.md", "cargo new", "cargo's own; tests/snippets has the program and runs it"),
    except("docs/tutorial.md", "cd ../orders", "the folder of the program"),
    except("docs/tutorial.md", "cargo add", "cargo's own, and builds everything once more"),
    except("docs/tutorial.md", "quorlock demo -- cargo run", "tests/snippets runs the program"),
];
