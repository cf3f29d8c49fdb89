//! Colours, where they are wanted.

use std::env;
use std::fmt;
use std::io::{self, IsTerminal as _};

/// Colours text, or leaves it as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// For stdout: `NO_COLOR` says no, else `CLICOLOR_FORCE` says yes, else a terminal does.
    pub(crate) fn for_stdout() -> Paint {
        let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        let on = !no_color && (set("CLICOLOR_FORCE") || (io::stdout().is_terminal() && !dumb));
        Paint { on }
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
