//! TLS errors.

use std::error::Error;
use std::fmt;
use std::io;

/// A TLS failure, with a message that names its remedy: the inner error of a stream's
/// [`io::Error`].
#[derive(Debug)]
pub(crate) struct TlsFailure {
    /// The message.
    pub(crate) meaning: String,
    /// The TLS library's error.
    pub(crate) source: Box<dyn Error + Send + Sync>,
}

impl TlsFailure {
    /// Returns the TLS failure inside `error`, if there is one.
    pub(crate) fn behind(error: io::Error) -> Result<TlsFailure, io::Error> {
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
