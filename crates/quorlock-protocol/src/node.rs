//! What is asked of a node, and what it answers: the contract as types, and as one pure function for stores that can
//! exchange [`record`]s.

mod capabilities;
mod error;
mod reason;
pub mod record;
mod request;
mod response;
mod shared_request;
mod tls_failure;

pub use capabilities::{
    Capabilities, Capability, Durability, Grants, Hints, NodeLimits, Order, Reach, StandsFor, risk_of_one,
};
pub use error::{Access, NodeError, NodeErrorKind};
pub use reason::Reason;
pub use request::Request;
pub use response::{Expiry, Holding, Identity, QueueListing, Queued, QueuedWaiter, Response, Vote};
pub use shared_request::SharedRequest;
pub use tls_failure::TlsFailure;
