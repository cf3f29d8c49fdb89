//! Dialling and TLS, for every kind of node.

mod dial;
mod socket;
mod stream;
mod thread;
#[cfg(feature = "tls")]
mod tls;

pub use dial::{Dial, SystemDial};
pub(crate) use quorlock_protocol::node::TlsFailure;
pub(crate) use socket::{go_past_the_runtime, is_past_the_runtime};
pub use stream::Stream;
pub(crate) use thread::SharedWork;
#[cfg(feature = "tls")]
pub use tls::Tls;
