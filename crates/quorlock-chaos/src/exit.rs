//! The exit codes: a stable interface.

/// Every expectation of every scenario held.
pub(crate) const HELD: u8 = 0;
/// An expectation did not hold.
pub(crate) const FAILED: u8 = 1;
/// Invalid arguments (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;
/// This machine can run none of the scenarios (`EX_UNAVAILABLE`): no verdict.
pub(crate) const UNAVAILABLE: u8 = 69;
/// A scenario or record is invalid (`EX_CONFIG`).
pub(crate) const CONFIG: u8 = 78;
/// The program itself failed: no verdict.
pub(crate) const INTERNAL: u8 = 125;
/// Interrupted (128 + SIGINT): no verdict.
pub(crate) const INTERRUPTED: u8 = 130;
