//! The message of an error, and its source.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::printable;

/// The most characters of a source that are displayed.
const LONGEST: usize = 400;

/// The message of an error, and its source. Cheap to clone.
///
/// `{}` writes the message, `{:#}` the source as well, at most 400 characters of it, since it may
/// come from a server; both with [hidden characters escaped](printable()). Without a message, the
/// source is written in its place.
///
/// Two reasons are equal if they read the same with `{:#}`.
///
/// # Examples
///
/// ```
/// use std::{error::Error, io};
///
/// use quorlock_protocol::node::Reason;
///
/// let reason = Reason::new("its disk cannot be read").because(io::Error::other("bad sector"));
/// assert_eq!(reason.to_string(), "its disk cannot be read");
/// assert_eq!(format!("{reason:#}"), "its disk cannot be read: bad sector");
/// assert!(reason.source().unwrap().is::<io::Error>());
/// ```
#[derive(Clone)]
pub struct Reason(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    words: Box<str>,
    source: Option<Source>,
}

#[derive(Clone)]
struct Source {
    error: Arc<dyn Error + Send + Sync>,
    /// Whether it follows in parentheses, because it quotes the server.
    quoted: bool,
}

impl Reason {
    /// Creates a reason with this message.
    #[must_use]
    pub fn new(words: impl Into<Box<str>>) -> Reason {
        Reason(Arc::new(Inner { words: words.into(), source: None }))
    }

    /// Adds the source.
    #[must_use]
    pub fn because(self, source: impl Error + Send + Sync + 'static) -> Reason {
        self.with(Source { error: Arc::new(source), quoted: false })
    }

    /// Adds the server's own message, which is written in parentheses.
    #[doc(hidden)]
    #[must_use]
    pub fn quoting(self, source: impl Error + Send + Sync + 'static) -> Reason {
        self.with(Source { error: Arc::new(source), quoted: true })
    }

    /// Like [`quoting`](Reason::quoting), for a boxed source.
    #[doc(hidden)]
    #[must_use]
    pub fn quoting_boxed(self, source: Box<dyn Error + Send + Sync>) -> Reason {
        self.with(Source { error: source.into(), quoted: true })
    }

    /// Prefixes the part of the node that it is about: `its master a: connection refused`.
    #[doc(hidden)]
    #[must_use]
    pub fn within(&self, place: impl fmt::Display) -> Reason {
        let Inner { words, source } = &*self.0;
        let words = if words.is_empty() { place.to_string() } else { format!("{place}: {words}") };
        Reason(Arc::new(Inner { words: words.into(), source: source.clone() }))
    }

    fn with(mut self, source: Source) -> Reason {
        Arc::make_mut(&mut self.0).source = Some(source);
        self
    }

    /// Returns the source.
    #[doc(hidden)]
    #[must_use]
    pub fn cause(&self) -> Option<&(dyn Error + 'static)> {
        let source: &(dyn Error + 'static) = &*self.0.source.as_ref()?.error;
        Some(source)
    }

    #[doc(hidden)]
    #[must_use]
    pub fn has_words(&self) -> bool {
        !self.0.words.is_empty()
    }

    /// Writes `what: `, then the reason.
    pub(super) fn write_after(&self, what: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(what)?;
        if self.has_words() {
            f.write_str(": ")?;
        }
        self.write(f)
    }

    /// Writes the message, if there is one, and with `{:#}` the source.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", printable(&self.0.words))?;
        match &self.0.source {
            Some(Source { error, quoted }) if f.alternate() => {
                let message = format!("{error:#}");
                let message = printable(&message).cut(LONGEST);
                if *quoted && self.has_words() { write!(f, " ({message})") } else { write!(f, ": {message}") }
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.source {
            Some(Source { error, .. }) if !self.has_words() => {
                let message = if f.alternate() { format!("{error:#}") } else { error.to_string() };
                write!(f, "{}", printable(&message).cut(LONGEST))
            }
            Some(_) | None => self.write(f),
        }
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { words, source } = &*self.0;
        let mut debug = f.debug_tuple("Reason");
        debug.field(words);
        if let Some(source) = source {
            debug.field(&source.error);
        }
        debug.finish()
    }
}

impl Error for Reason {
    /// Without a message it stands for its source, and has that one's source.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let cause = self.cause()?;
        if self.has_words() { Some(cause) } else { cause.source() }
    }
}

impl PartialEq for Reason {
    fn eq(&self, other: &Reason) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || format!("{self:#}") == format!("{other:#}")
    }
}

impl Eq for Reason {}

impl From<&str> for Reason {
    fn from(words: &str) -> Reason {
        Reason::new(words)
    }
}

impl From<String> for Reason {
    fn from(words: String) -> Reason {
        Reason::new(words)
    }
}

impl From<io::Error> for Reason {
    /// The operating system's message is enough.
    fn from(error: io::Error) -> Reason {
        Reason::new("").because(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io() -> io::Error {
        io::Error::other("\x1b[2Jrefused")
    }

    #[test]
    fn the_message_and_its_source_are_written_once() {
        let quoted = Reason::new("it wants a password").quoting(io());
        for (reason, short, full) in [
            (Reason::from("plain"), "plain", "plain"),
            (Reason::new("because").because(io()), "because", r"because: \u{1b}[2Jrefused"),
            (quoted, "it wants a password", r"it wants a password (\u{1b}[2Jrefused)"),
            (Reason::from(io()).within("its master a"), "its master a", r"its master a: \u{1b}[2Jrefused"),
        ] {
            assert_eq!((reason.to_string().as_str(), format!("{reason:#}").as_str()), (short, full));
        }
    }

    #[test]
    fn foreign_text_is_escaped_and_bounded() {
        let reason = Reason::new("it says").because(io::Error::other("x".repeat(10_000)));
        assert!(format!("{reason:#}").chars().count() < 500, "it could fill the screen");
        assert!(
            !format!("{:#}", Reason::from(io())).chars().any(char::is_control),
            "it could move the cursor"
        );
    }
}
