//! A question, made once for all nodes.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::Question;

/// A [`Question`] as nodes are asked it: made once, and shared by all of them.
///
/// It reads as the question that it is, and is cloned at next to no cost.
#[derive(Clone)]
pub struct Asked(Arc<Inside>);

struct Inside {
    question: Question,
    /// Bytes for servers that are asked in this form, once one of them has been.
    request: OnceLock<(u8, SmallVec<[u8; USUAL]>)>,
}

/// As long as a usual request, which then needs no room of its own.
const USUAL: usize = 384;

impl Asked {
    /// The question as servers are asked it in this form, if the first one was.
    pub(crate) fn request(&self, form: u8) -> Option<&[u8]> {
        self.0.request.get().filter(|(kept, _)| *kept == form).map(|(_, request)| request.as_slice())
    }

    /// The others may be asked in the same words.
    pub(crate) fn keep_request(&self, form: u8, request: &[u8]) {
        // Two may have been asked at once.
        drop(self.0.request.set((form, SmallVec::from_slice(request))));
    }
}

impl From<Question> for Asked {
    fn from(question: Question) -> Asked {
        Asked(Arc::new(Inside { question, request: OnceLock::new() }))
    }
}

impl Deref for Asked {
    type Target = Question;

    fn deref(&self) -> &Question {
        &self.0.question
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
