//! The codec of the Redis protocol, RESP: frames messages, decodes them, and encodes requests.

pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod frame;
