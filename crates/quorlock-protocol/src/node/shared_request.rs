//! A request, created once for all nodes.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::Request;

/// A [`Request`], created once and shared by all nodes.
///
/// It dereferences to the request, and clones cheaply.
#[derive(Clone)]
pub struct SharedRequest(Arc<Inner>);

struct Inner {
    request: Request,
    /// The bytes for the servers that use this encoding, once one of them was asked.
    encoded: OnceLock<(u8, SmallVec<[u8; USUAL]>)>,
}

/// The length of a usual request, which then needs no allocation.
const USUAL: usize = 384;

impl SharedRequest {
    /// Returns the encoded request, if the first server used this `form`.
    #[doc(hidden)]
    #[must_use]
    pub fn encoded(&self, form: u8) -> Option<&[u8]> {
        self.0.encoded.get().filter(|(kept, _)| *kept == form).map(|(_, bytes)| bytes.as_slice())
    }

    /// Keeps the encoded request for servers that use the same `form`.
    #[doc(hidden)]
    pub fn keep_encoded(&self, form: u8, bytes: &[u8]) {
        // Another thread may have set it at the same time.
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
