//! The check in services, and in object stores.
//!
//! # A service
//!
//! Each request carries its token in the header [`HEADER`], and the service looks at it where it
//! writes: with any other check of this module. It answers [`STALE`] to a token that is too old, and
//! [`MISSING`] to a request that has none: one unfenced client spoils it for all.
//!
//! A proxy or a gateway may check early, but a request that it lets pass can still be overtaken
//! behind it.
//!
//! # An object store
//!
//! A bucket cannot compare numbers, but it can refuse to replace an object that has changed. So the
//! writer reads object, entity tag and token; checks; and writes with a condition. When the store
//! says that the condition failed, another client has written meanwhile: read again. Each repetition
//! means that another write came first, and writers with smaller tokens give up when they read, so it ends; give
//! it a limit all the same.
//!
//! ```text
//! loop {
//!     object = GET                               404: there is none
//!     condition = precondition(object, token)?   Stale: give up, and start over under a new lease
//!     PUT with the token and the condition       412, or 409 in some stores: again
//! }
//! ```
//!
//! The token goes where it is replaced together with the data: into the object's metadata, or into
//! the data. Amazon S3 has `If-None-Match: *` since August 2024 and `If-Match` for puts since
//! November 2024; Google Cloud Storage and Azure have had conditional writes for long. Deleting an
//! object deletes the token: put an empty one instead.

use super::{Stale, check};
use quorlock_protocol::FencingToken;

/// The header with the fencing token of a request, as a decimal number.
///
/// # Examples
///
/// What a service does, in any framework:
///
/// ```
/// use quorlock::FencingToken;
/// use quorlock::fence::{Guarded, http};
///
/// fn put(account: &Guarded<String>, header: Option<&str>, body: &str) -> u16 {
///     // header: what the request has under http::HEADER
///     let Some(token) = header else { return http::MISSING };
///     let Ok(token) = token.parse::<FencingToken>() else { return 400 };
///     match account.with(token, |account| body.clone_into(account)) {
///         Ok(()) => 204,
///         Err(_stale) => http::STALE,
///     }
/// }
///
/// let account = Guarded::new(String::new());
/// assert_eq!(put(&account, Some("34"), "150"), 204);
/// assert_eq!(put(&account, Some("33"), "70"), 412);
/// assert_eq!(put(&account, None, "70"), 428);
/// assert_eq!(put(&account, Some("-1"), "70"), 400);
/// ```
pub const HEADER: &str = "Quorlock-Fencing-Token";

/// The status for a token that is too old: 412 Precondition Failed
/// ([RFC 9110](https://www.rfc-editor.org/rfc/rfc9110#status.412)).
///
/// # Examples
///
/// ```
/// assert_eq!(quorlock::fence::http::STALE, 412);
/// ```
pub const STALE: u16 = 412;

/// The status for a request without a token: 428 Precondition Required
/// ([RFC 6585](https://www.rfc-editor.org/rfc/rfc6585#section-3)).
///
/// # Examples
///
/// ```
/// assert_eq!(quorlock::fence::http::MISSING, 428);
/// ```
pub const MISSING: u16 = 428;

/// The condition for replacing an object, so that no write came in between.
///
/// # Examples
///
/// ```
/// use quorlock::fence::http::Precondition;
///
/// let header = |condition| match condition {
///     Precondition::Unchanged(tag) => ("If-Match", tag),
///     Precondition::Absent => ("If-None-Match", "*"),
/// };
/// assert_eq!(header(Precondition::Unchanged("\"a5\"")), ("If-Match", "\"a5\""));
/// assert_eq!(header(Precondition::Absent), ("If-None-Match", "*"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "an object is there or it is not")]
pub enum Precondition<Tag> {
    /// `If-Match`: it is still the one that was read, of this entity tag or version.
    Unchanged(Tag),
    /// `If-None-Match: *`: there is still none.
    Absent,
}

/// Decides whether a write with `token` may replace an object, and on what condition.
///
/// `object` is what was just read: its entity tag, and its token if it has one. `None` if there is
/// no object.
///
/// # Errors
///
/// [`Stale`] if the object is from a later holder. Do not write then.
///
/// # Examples
///
/// ```
/// use quorlock::fence::http::{Precondition, precondition};
///
/// let object = Some(("\"a5\"", Some("34".parse()?)));
/// assert_eq!(precondition(object, "35".parse()?)?, Precondition::Unchanged("\"a5\""));
/// assert!(precondition(object, "33".parse()?).is_err());
/// assert_eq!(precondition::<&str>(None, "33".parse()?)?, Precondition::Absent);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn precondition<Tag>(
    object: Option<(Tag, Option<FencingToken>)>,
    token: FencingToken,
) -> Result<Precondition<Tag>, Stale> {
    let Some((tag, newest)) = object else { return Ok(Precondition::Absent) };
    check(newest, token)?;
    Ok(Precondition::Unchanged(tag))
}
