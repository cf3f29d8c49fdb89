//! The names of resources.

use std::fmt;
use std::sync::Arc;

use super::is_auxiliary_key;
use super::printable::printable;

/// A protected resource. Its name, after the deployment's prefix, is its key on the nodes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    name: Arc<str>,
}

impl Resource {
    /// The longest name accepted, in bytes. The name is stored on every node, sent with every
    /// request and shown in every message.
    pub const MAX_LEN: usize = 1024;

    /// Checks a name: not empty, and not longer than [`Resource::MAX_LEN`]; any character is
    /// allowed.
    ///
    /// # Errors
    ///
    /// When the name is empty or too long.
    #[inline]
    pub fn parse(name: &str) -> Result<Resource, ResourceError> {
        Resource::check(name)?;
        Ok(Resource { name: name.into() })
    }

    /// Like [`parse`](Resource::parse), without copying the name.
    ///
    /// # Errors
    ///
    /// When the name is empty or too long.
    #[inline]
    pub fn share(name: &Arc<str>) -> Result<Resource, ResourceError> {
        Resource::check(name)?;
        Ok(Resource { name: name.clone() })
    }

    /// Checks several names that are locked together, and returns their resource, with the name
    /// `all`.
    ///
    /// # Errors
    ///
    /// When a name is empty or too long, for the first such name.
    #[inline]
    pub fn together(names: &[Arc<str>], all: &Arc<str>) -> Result<Resource, ResourceError> {
        names.iter().try_for_each(|name| Resource::check(name))?;
        Ok(Resource { name: all.clone() })
    }

    fn check(name: &str) -> Result<(), ResourceError> {
        if name.is_empty() {
            Err(ResourceError::Empty)
        } else if name.len() > Resource::MAX_LEN {
            Err(ResourceError::TooLong { length: name.len(), most: Resource::MAX_LEN })
        } else {
            Ok(())
        }
    }

    /// Refuses to lock `keys` under which nodes store [something else](is_auxiliary_key), of another lock.
    ///
    /// # Errors
    ///
    /// [`ResourceError::Reserved`], for the first such key.
    pub fn check_keys<'a>(keys: impl IntoIterator<Item = &'a Arc<str>>) -> Result<(), ResourceError> {
        let reserved = keys.into_iter().find(|key| is_auxiliary_key(key));
        reserved.map_or(Ok(()), |key| Err(ResourceError::Reserved { name: key.clone() }))
    }

    /// Returns the name.
    #[must_use]
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

/// The name, [`printable`]: for people. [`Resource::as_str`] is the name itself.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&printable(&self.name), f)
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name, f)
    }
}

/// Why a resource name is not valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResourceError {
    /// The name is empty.
    #[error("a resource name is empty; name what the lock protects, such as `orders/42`")]
    Empty,
    /// The name is too long.
    #[error(
        "a resource name has {length} bytes, more than the {most} allowed{}; use a hash of it",
        if *.most < Resource::MAX_LEN { " where a permit's number follows" } else { "" }
    )]
    TooLong {
        /// Its length in bytes.
        length: usize,
        /// The longest allowed: less than [`Resource::MAX_LEN`] for a semaphore, each permit of which has a number.
        most: usize,
    },
    /// Nodes store something else under that key, beside a lock or semaphore.
    #[error(
        "`{}` is the name of something that is stored beside a lock, and so cannot be locked; choose a name without \
         `quorlock:`",
        printable(.name)
    )]
    Reserved {
        /// The name.
        name: Arc<str>,
    },
}
