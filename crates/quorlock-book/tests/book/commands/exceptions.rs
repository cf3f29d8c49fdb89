//! The commands that are not run here, each with the reason.

use super::script::Step;

/// A command that is not run.
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
    except(
        "docs/trust.md",
        "cargo run --release --bin quorlock-chaos",
        "finds its violation reliably only in its full duration, which is too long for a test",
    ),
    except("docs/chaos.md", "scripts/porcupine", "each takes minutes, and needs Go and its registry"),
    except("README.md", "scripts/check", "an hour, and it runs this test"),
    except(
        "CONTRIBUTING.md",
        "scripts/",
        "each takes minutes, or runs this test; `named` checks that they exist",
    ),
    except("CONTRIBUTING.md", "cargo bench", "the figures need an idle machine, and nothing asserts them"),
    except(
        "CONTRIBUTING.md",
        "cargo run --release --bin quorlock-chaos",
        "ten minutes; crates/quorlock-chaos/tests/chaos has short ones",
    ),
    except(
        "CONTRIBUTING.md",
        "INSTA_UPDATE",
        "it writes to the project; the gate runs it without the variable",
    ),
    except("CONTRIBUTING.md", "QUORLOCK_API", "the same"),
    except("CONTRIBUTING.md", "QUORLOCK_FAULTS_SECONDS", "ten minutes; shorter in the gate"),
    except(
        "compose/README.md",
        "compose/start",
        "needs Docker; crates/quorlock-chaos/tests/chaos/compose.rs runs it",
    ),
    except(
        "compose/README.md",
        "docker-compose exec client quorlock run --json",
        "needs proxies that hold traffic",
    ),
    except("compose/README.md", "echo $?", "of the same"),
    except("compose/README.md", "cargo run --release --bin quorlock-chaos", "needs the containers"),
    except("compose/README.md", "docker-compose down", "there are no containers here"),
    except(
        "docs/tutorial.md",
        "cargo new",
        "cargo's own; tests/book/snippets.rs has the program and runs it",
    ),
    except("docs/tutorial.md", "cd ../orders", "the folder of the program"),
    except("docs/tutorial.md", "cargo add", "cargo's own, and builds everything once more"),
    except("docs/tutorial.md", "quorlock demo -- cargo run", "tests/book/snippets.rs runs the program"),
];
