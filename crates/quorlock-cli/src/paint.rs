//! Colours for the terminal.

use std::env;
use std::fmt;
use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;

use clap::ValueEnum;

/// When to colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum When {
    // On a terminal.
    #[default]
    Auto,
    Always,
    Never,
}

static WHEN: OnceLock<When> = OnceLock::new();

/// Sets the choice of the command line, before anything is printed.
pub(crate) fn choose(when: When) {
    // Chosen once.
    let _ = WHEN.set(when);
}

/// Colours text, or leaves it as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// Returns the colours for stdout: as chosen; else off with `NO_COLOR`, else on with `CLICOLOR_FORCE`, else
    /// on for a terminal.
    pub(crate) fn for_stdout() -> Paint {
        match WHEN.get().copied().unwrap_or_default() {
            When::Auto => Paint { on: Paint::is_likely_wanted() },
            When::Always => Paint { on: true },
            When::Never => Paint { on: false },
        }
    }

    /// Returns no colours, for text that goes elsewhere.
    pub(crate) fn none() -> Paint {
        Paint { on: false }
    }

    fn is_likely_wanted() -> bool {
        let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        !no_color && (set("CLICOLOR_FORCE") || (io::stdout().is_terminal() && !dumb))
    }

    pub(crate) fn good(self, text: impl fmt::Display) -> String {
        self.wrap("32", &text)
    }

    pub(crate) fn bad(self, text: impl fmt::Display) -> String {
        self.wrap("31", &text)
    }

    pub(crate) fn strong(self, text: impl fmt::Display) -> String {
        self.wrap("1", &text)
    }

    pub(crate) fn faint(self, text: impl fmt::Display) -> String {
        self.wrap("2", &text)
    }

    fn wrap(self, code: &str, text: &dyn fmt::Display) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}
