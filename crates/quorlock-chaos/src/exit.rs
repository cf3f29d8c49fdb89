//! The exit codes, which scripts may rely on.

/// Every expectation of every scenario held.
pub(crate) const HELD: u8 = 0;
/// An expectation did not hold.
pub(crate) const FAILED: u8 = 1;
/// The arguments make no sense (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;
/// A scenario cannot be read or meant (`EX_CONFIG`).
pub(crate) const CONFIG: u8 = 78;
/// The program itself failed: nothing is known.
pub(crate) const INTERNAL: u8 = 125;
/// It was interrupted (128 + SIGINT): nothing is known.
pub(crate) const INTERRUPTED: u8 = 130;
