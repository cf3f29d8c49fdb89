//! Kinds of node: what makes a node of a URL.

use std::fmt;
use std::sync::Arc;

use super::{Node, Seams};
use crate::address::AddressError;
use crate::reason::Reason;

/// A kind of node, which URLs can name by their scheme.
///
/// [`Builder::kind`](crate::Builder::kind) adds one to those of [`Builder::nodes`](crate::Builder::nodes),
/// [`Kinds`](crate::node::Kinds) hands all of them to a program, such as the command line.
///
/// # Examples
///
/// ```
/// use std::fmt;
/// use std::sync::Arc;
///
/// use quorlock::{Coordinator, node::{AddressError, Node, NodeAddress, NodeKind, Reason, Seams}};
///
/// #[derive(Debug)]
/// struct Memory;
///
/// impl NodeKind for Memory {
///     fn schemes(&self) -> &[&str] {
///         &["memory"]
///     }
///
///     fn parse(&self, url: &str) -> Result<Box<dyn NodeAddress>, AddressError> {
///         match url.split_once("://").map(|(_, name)| name) {
///             Some(name) if !name.is_empty() => Ok(Box::new(Named(name.to_owned()))),
///             _ => Err(AddressError::malformed("memory://", "has no name", "write `memory://name`")),
///         }
///     }
/// }
///
/// #[derive(Debug)]
/// struct Named(String);
///
/// impl NodeAddress for Named {
///     fn servers(&self) -> Vec<String> {
///         vec![self.0.clone()]
///     }
///
///     fn node(&self, _seams: &Seams) -> Result<Arc<dyn Node>, Reason> {
///         Ok(Arc::new(quorlock_testkit::MemoryNode::new(self.to_string())))
///     }
/// }
///
/// impl fmt::Display for Named {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         write!(f, "memory://{}", self.0)
///     }
/// }
///
/// let urls = ["memory://a", "memory://b", "redis://10.0.0.1"];
/// Coordinator::builder().kind(Memory).nodes(urls).build()?;
/// # Ok::<(), quorlock::ConfigError>(())
/// ```
pub trait NodeKind: fmt::Debug + Send + Sync + 'static {
    /// What stands before `://` in its URLs, in lower case. Messages list them in this order. No two kinds
    /// of a program may have one in common.
    fn schemes(&self) -> &[&str];

    /// Reads a URL with one of those schemes, in upper or lower case. Behind the scheme stands `://`, or `:` and
    /// something else than a port. Contacts no server.
    ///
    /// # Errors
    ///
    /// Says what is wrong and what would be right. A malformed URL may have a password in an unexpected
    /// place, so no more of it may be shown than was understood.
    fn parse(&self, url: &str) -> Result<Box<dyn NodeAddress>, AddressError>;

    /// Whether a URL of this kind that stands before a comma in a list goes on behind it, as one that
    /// names several hosts does. What has a scheme behind the comma is a URL of its own in any case.
    /// `false` unless overridden.
    fn goes_on_after(&self, url_so_far: &str) -> bool {
        let _ = url_so_far;
        false
    }
}

/// Where a node of some kind is.
///
/// `Display` is what people call it, and neither that nor `Debug` may show a password.
pub trait NodeAddress: fmt::Debug + fmt::Display + Send + Sync {
    /// What it leads to, each server in the one spelling that this kind has for it: a user, a password or a
    /// database does not make it another one. Two addresses of a kind that have one in common are refused,
    /// because a server must not vote twice.
    fn servers(&self) -> Vec<String>;

    /// The node that is there. Contacts nobody until it is asked, or until somebody waits for
    /// [`Node::ready`]. Called when the coordinator is built, which may be outside of any Tokio runtime; later
    /// calls of the node may come from several runtimes, and each of these may end before the node does.
    ///
    /// # Errors
    ///
    /// Says why there can be no such node, such as a file that cannot be read.
    fn node(&self, seams: &Seams) -> Result<Arc<dyn Node>, Reason>;
}
