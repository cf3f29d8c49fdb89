//! The bytes of the Redis protocol: where a message ends, what is in it, and how a request is written.

pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod frame;
