//! Connections: how they are opened, and TLS. What every kind of node may use.

mod dial;
mod no_tls;
mod thread;
#[cfg(feature = "tls")]
mod tls;

pub use dial::{Dial, Stream, SystemDial};
pub(crate) use no_tls::NoTls;
#[cfg(feature = "tls")]
pub use tls::Tls;
