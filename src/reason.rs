//! The sentence of an error, and what it comes from.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

/// The longest text of a source that is written behind a sentence, in characters.
const LONGEST: usize = 400;

/// The sentence of an error, and the error that it comes from. Cloning it is cheap.
///
/// `{}` writes the sentence, `{:#}` the source as well: stripped of control characters, and at most 400
/// characters of it, because it may be the text of a server. Without a sentence it is written as its source.
///
/// Two are equal if they read the same with `{:#}`.
///
/// # Examples
///
/// ```
/// use std::{error::Error, io};
///
/// use quorlock::node::Reason;
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
    /// Whether it stands in parentheses behind the sentence: it is what the server has said.
    quoted: bool,
}

impl Reason {
    /// A reason in these words.
    #[must_use]
    pub fn new(words: impl Into<Box<str>>) -> Reason {
        Reason(Arc::new(Inner { words: words.into(), source: None }))
    }

    /// The same, and the error that it comes from.
    #[must_use]
    pub fn because(self, source: impl Error + Send + Sync + 'static) -> Reason {
        self.with(Source { error: Arc::new(source), quoted: false })
    }

    /// The same, and what the server has said, which is written in parentheses.
    pub(crate) fn quoting(self, source: impl Error + Send + Sync + 'static) -> Reason {
        self.with(Source { error: Arc::new(source), quoted: true })
    }

    /// The same with a source that is boxed already.
    pub(crate) fn quoting_boxed(self, source: Box<dyn Error + Send + Sync>) -> Reason {
        self.with(Source { error: source.into(), quoted: true })
    }

    /// The same about a part of the node: `its master a: connection refused`.
    pub(crate) fn within(&self, place: impl fmt::Display) -> Reason {
        let Inner { words, source } = &*self.0;
        let words = if words.is_empty() { place.to_string() } else { format!("{place}: {words}") };
        Reason(Arc::new(Inner { words: words.into(), source: source.clone() }))
    }

    fn with(mut self, source: Source) -> Reason {
        Arc::make_mut(&mut self.0).source = Some(source);
        self
    }

    /// What it comes from.
    pub(crate) fn cause(&self) -> Option<&(dyn Error + 'static)> {
        let source: &(dyn Error + 'static) = &*self.0.source.as_ref()?.error;
        Some(source)
    }

    pub(crate) fn has_words(&self) -> bool {
        !self.0.words.is_empty()
    }

    /// Writes `what: ` before it.
    pub(crate) fn write_after(&self, what: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(what)?;
        if self.has_words() {
            f.write_str(": ")?;
        }
        self.write(f)
    }

    /// Writes the words, if there are any, and with `{:#}` the source.
    pub(crate) fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.words)?;
        match &self.0.source {
            Some(Source { error, quoted }) if f.alternate() => {
                let said = printable(&format!("{error:#}"), LONGEST);
                if *quoted && self.has_words() { write!(f, " ({said})") } else { write!(f, ": {said}") }
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// The words of a server or a library: they must not move the cursor of the terminal that shows them, nor fill it.
pub(crate) fn printable(words: &str, most: usize) -> String {
    words.chars().filter(|c| !c.is_control()).take(most).collect()
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.source {
            Some(Source { error, .. }) if !self.has_words() => {
                let said = if f.alternate() { format!("{error:#}") } else { error.to_string() };
                f.write_str(&printable(&said, LONGEST))
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
    /// Without a sentence it stands for its source, and so has the source of that.
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
    /// The system has said all there is to say.
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
    fn the_sentence_and_its_source_are_each_written_once() {
        let quoted = Reason::new("it wants a password").quoting(io());
        for (reason, short, full) in [
            (Reason::from("plain"), "plain", "plain"),
            (Reason::new("because").because(io()), "because", "because: [2Jrefused"),
            (quoted, "it wants a password", "it wants a password ([2Jrefused)"),
            (Reason::from(io()).within("its master a"), "its master a", "its master a: [2Jrefused"),
        ] {
            assert_eq!((reason.to_string().as_str(), format!("{reason:#}").as_str()), (short, full));
        }
    }

    #[test]
    fn what_others_have_said_is_stripped_and_bounded() {
        let reason = Reason::new("it says").because(io::Error::other("x".repeat(10_000)));
        assert!(format!("{reason:#}").chars().count() < 500, "it could fill the screen");
        assert!(
            !format!("{:#}", Reason::from(io())).chars().any(char::is_control),
            "it could move the cursor"
        );
    }
}
