//! A request, made once for all nodes.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::Request;

/// A [`Request`] as nodes are asked it: made once, and shared by all of them.
///
/// It reads as the request that it is, and is cloned at next to no cost.
#[derive(Clone)]
pub struct SharedRequest(Arc<Inner>);

struct Inner {
    request: Request,
    /// Bytes for servers that are asked in this form, once one of them has been.
    encoded: OnceLock<(u8, SmallVec<[u8; USUAL]>)>,
}

/// As long as a usual request, which then needs no room of its own.
const USUAL: usize = 384;

impl SharedRequest {
    /// The request as servers are asked it in this form, if the first one was.
    pub(crate) fn encoded(&self, form: u8) -> Option<&[u8]> {
        self.0.encoded.get().filter(|(kept, _)| *kept == form).map(|(_, bytes)| bytes.as_slice())
    }

    /// The others may be asked in the same words.
    pub(crate) fn keep_encoded(&self, form: u8, bytes: &[u8]) {
        // Two may have been asked at once.
        drop(self.0.encoded.set((form, SmallVec::from_slice(bytes))));
    }
}

impl From<Request> for SharedRequest {
    fn from(request: Request) -> SharedRequest {
        SharedRequest(Arc::new(Inner { request, encoded: OnceLock::new() }))
    }
}

impl Deref for SharedRequest {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.0.request
    }
}

impl fmt::Debug for SharedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
