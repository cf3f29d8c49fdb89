//! Why there is no TLS.

use std::error::Error;
use std::fmt;
use std::io;

/// Why there is no TLS, as the TLS library has it and as a sentence with the cure: what a stream's
/// [`io::Error`] carries.
#[derive(Debug)]
pub(crate) struct NoTls {
    /// The sentence.
    pub(crate) meaning: String,
    /// What the library says.
    pub(crate) source: Box<dyn Error + Send + Sync>,
}

impl NoTls {
    /// What `error` carries, if it is that.
    pub(crate) fn behind(error: io::Error) -> Result<NoTls, io::Error> {
        error.downcast()
    }
}

impl fmt::Display for NoTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.meaning)
    }
}

impl Error for NoTls {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
