//! Dialling and TLS, for every kind of node.

mod dial;
mod no_tls;
mod thread;
#[cfg(feature = "tls")]
mod tls;

pub use dial::{Dial, Stream, SystemDial};
pub(crate) use no_tls::TlsFailure;
#[cfg(feature = "tls")]
pub use tls::Tls;
