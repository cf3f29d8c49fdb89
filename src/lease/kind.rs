//! Whether a lock or a lease is of one resource or of several.

/// Marks the lock of one resource: a [`Lock`](crate::Lock) without a parameter, and its [`Lease`](crate::Lease).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Single {}

/// Marks a lock of several resources: a [`MultiLock`](crate::MultiLock), and its [`MultiLease`](crate::MultiLease).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Multi {}
