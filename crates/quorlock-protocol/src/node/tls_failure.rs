//! TLS errors.

use std::error::Error;
use std::fmt;
use std::io;

/// A TLS failure, with a message that names its remedy: the inner error of a stream's
/// [`io::Error`].
#[derive(Debug)]
#[doc(hidden)]
pub struct TlsFailure {
    /// The message.
    pub(super) meaning: String,
    /// The TLS library's error.
    pub(super) source: Box<dyn Error + Send + Sync>,
}

impl TlsFailure {
    /// Creates a failure with this message and the TLS library's error.
    #[must_use]
    pub fn new(meaning: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> TlsFailure {
        TlsFailure { meaning: meaning.into(), source: source.into() }
    }

    /// Returns the TLS failure inside `error`, if there is one.
    ///
    /// # Errors
    ///
    /// The same error, if it is another.
    pub fn behind(error: io::Error) -> Result<TlsFailure, io::Error> {
        error.downcast()
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.meaning)
    }
}

impl Error for TlsFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
