use std::fmt;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::{BoxStream, empty, try_unfold};

use super::NodeError;

/// The keys of a store, page by page: what [`Node::list_keys`](super::Node::list_keys) returns.
#[must_use = "no page is made until it is awaited"]
pub struct KeyPages {
    pub(crate) pages: BoxStream<'static, Result<Vec<Arc<str>>, NodeError>>,
}

impl KeyPages {
    /// Makes pages one after another: `step` is called with `start`, and then with what the step before has returned
    /// beside its page. `None` ends the pages, and so does an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use quorlock::node::KeyPages;
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let mut pages = KeyPages::unfold(1, |number| async move {
    ///     Ok((number < 3).then(|| (vec![format!("orders/{number}").into()], number + 1)))
    /// });
    /// assert_eq!(*pages.next().await.expect("a page").expect("no error")[0], *"orders/1");
    /// assert_eq!(*pages.next().await.expect("a page").expect("no error")[0], *"orders/2");
    /// assert!(pages.next().await.is_none());
    /// # });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn unfold<State, Step>(start: State, step: impl FnMut(State) -> Step + Send + 'static) -> KeyPages
    where
        State: Send + 'static,
        Step: Future<Output = Result<Option<(Vec<Arc<str>>, State)>, NodeError>> + Send + 'static,
    {
        KeyPages { pages: Box::pin(try_unfold(start, step)) }
    }

    /// No page.
    pub fn none() -> KeyPages {
        KeyPages { pages: Box::pin(empty()) }
    }

    /// Returns the next page, `None` after the last one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no page; call again.
    pub async fn next(&mut self) -> Option<Result<Vec<Arc<str>>, NodeError>> {
        self.pages.next().await
    }
}

impl fmt::Debug for KeyPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPages").finish_non_exhaustive()
    }
}
