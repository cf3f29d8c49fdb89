//! What the type of a lock or a lease says: whether it is of one resource or of several, and whether it has a fencing token.

/// Marks the lock of one resource: a [`Lock`](crate::Lock) without a parameter, and its [`Lease`](crate::Lease).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Single {}

/// Marks a lock of several resources: a [`MultiLock`](crate::MultiLock), and its [`MultiLease`](crate::MultiLease).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Multi {}

/// Marks a lock whose leases have a fencing token: every lock, unless it says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fenced {}

/// Marks a lock whose leases have no fencing token: see [`Lock::unfenced`](crate::Lock::unfenced).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Unfenced {}
