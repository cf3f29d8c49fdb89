use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::Question;

/// A [`Question`] as nodes are asked it: made once, and shared by all of them.
///
/// It reads as the question that it is, and is cloned at next to no cost.
#[derive(Clone)]
pub struct Asked(Arc<Question>);

impl From<Question> for Asked {
    fn from(question: Question) -> Asked {
        Asked(Arc::new(question))
    }
}

impl Deref for Asked {
    type Target = Question;

    fn deref(&self) -> &Question {
        &self.0
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
