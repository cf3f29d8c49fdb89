//! The largest token and the data, behind one mutex.

use std::sync::{Mutex, PoisonError};

use super::{Stale, check};
use quorlock_protocol::FencingToken;

/// Data in memory that is accessed only with a fencing token, and not with one that is too old.
///
/// Check and access are one step: after an access, no earlier holder is admitted. Reads count too, so what was read
/// stays true until a later holder comes.
///
/// # Examples
///
/// ```
/// use quorlock::{FencingToken, fence::Guarded};
///
/// let balance = Guarded::new(100);
/// let (anna, ben): (FencingToken, FencingToken) = ("33".parse()?, "34".parse()?);
///
/// let hers = balance.with(anna, |balance| *balance)?; // and then she is paused
/// balance.with(ben, |balance| *balance += 50)?;
/// assert!(balance.with(anna, |balance| *balance = hers - 30).is_err());
/// assert_eq!(balance.with(ben, |balance| *balance)?, 150);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Guarded<T> {
    inside: Mutex<Inner<T>>,
}

#[derive(Debug, Default)]
struct Inner<T> {
    newest: Option<FencingToken>,
    data: T,
}

impl<T> Guarded<T> {
    /// Guards `data`, for which no token was seen yet.
    ///
    /// # Examples
    ///
    /// ```
    /// use quorlock::fence::Guarded;
    ///
    /// static LINES: Guarded<Vec<String>> = Guarded::new(Vec::new());
    /// LINES.with("33".parse()?, |lines| lines.push("first".to_owned()))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn new(data: T) -> Guarded<T> {
        Guarded { inside: Mutex::new(Inner { newest: None, data }) }
    }

    /// Runs `work` on the data, unless a larger token was seen. It blocks other callers meanwhile, so keep it short.
    ///
    /// If `work` panics, the data stays as it left it and the token counts as seen.
    ///
    /// # Errors
    ///
    /// [`Stale`] if a larger token was seen. `work` is not run then.
    ///
    /// # Examples
    ///
    /// ```
    /// use quorlock::fence::Guarded;
    ///
    /// let balance = Guarded::new(100);
    /// balance.with("34".parse()?, |balance| *balance += 50)?;
    /// assert!(balance.with("33".parse()?, |_| unreachable!("34 was seen")).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with<R>(&self, token: FencingToken, work: impl FnOnce(&mut T) -> R) -> Result<R, Stale> {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        check(inside.newest, token)?;
        inside.newest = Some(token);
        Ok(work(&mut inside.data))
    }
}
