//! Kinds of node, which make nodes from URLs.

use std::fmt;
use std::sync::Arc;

use super::{Node, Seams};
use crate::address::AddressError;
use crate::node::Reason;

/// A kind of node, which is selected by the scheme of a URL.
///
/// [`Builder::kind`](crate::Builder::kind) adds one for [`Builder::nodes`](crate::Builder::nodes).
/// [`Kinds`](crate::node::Kinds) passes a set of kinds to a program such as the command line.
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
    /// Returns the schemes of its URLs, the part before `://`, in lower case. Messages list them in this
    /// order. No two kinds of a program may share a scheme.
    fn schemes(&self) -> &[&str];

    /// Parses a URL with one of those schemes, in upper or lower case. The scheme is followed by `://`, or by
    /// `:` and something other than a port. Contacts no server.
    ///
    /// # Errors
    ///
    /// The error names the problem and the fix. A malformed URL may contain a password in an unexpected
    /// place, so the error must show only the parts that were understood.
    fn parse(&self, url: &str) -> Result<Box<dyn NodeAddress>, AddressError>;

    /// Returns whether a URL of this kind that precedes a comma in a list continues after the comma, as one
    /// that names several hosts does. Text with a scheme of its own always starts a new URL. Returns `false`
    /// unless overridden.
    fn goes_on_after(&self, url_so_far: &str) -> bool {
        let _ = url_so_far;
        false
    }
}

/// The parsed address of a node.
///
/// `Display` is its display name. Neither `Display` nor `Debug` may show a password.
pub trait NodeAddress: fmt::Debug + fmt::Display + Send + Sync {
    /// Returns the servers behind the address, each in a normalized spelling without user, password and
    /// database. Two addresses of a kind that have a server in common are refused, because a server must not
    /// vote twice.
    fn servers(&self) -> Vec<String>;

    /// Creates the node. It connects at the first request or call of [`Node::ready`], not before. Called when
    /// the coordinator is built, possibly outside any Tokio runtime; later calls of the node may come from
    /// several runtimes, each of which may end before the node does.
    ///
    /// # Errors
    ///
    /// Says why there can be no such node, such as a file that cannot be read.
    fn node(&self, seams: &Seams) -> Result<Arc<dyn Node>, Reason>;
}
